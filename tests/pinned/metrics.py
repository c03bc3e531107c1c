"""The metrics that are pinned, and those that are refused, by what their registries ask. For the generator alone."""

import tempfile
from pathlib import Path
from typing import Any

from tests.pinned.adapter import compiled_form, describe, refusal
from tests.pinned.registries import HEAD, listed, registry_of, write_values

FRESH = "reports = 3"
MEMO = "memoize = true\nanswers = 2"
FLAG = [True, False, None, "yes", 1]
CHOICE: list[Any] = ["v0", "v1", "unheard of", "none", None, True]
CHOICES: list[Any] = [["v1", "v0"], ["v0", "v0", "unheard of"], [], "v1", None]
NUMBER: list[Any] = [-1, 0, 0.3, 1, 5, 12.5, 60, 1e300, None, True, "5"]
TEXT = ["v0", "", "größer", "x" * 201, "none", None, 5]


def flag(epsilon: str, *more: str) -> str:
    return "\n".join(['kind = "flag"', f"epsilon = {epsilon}", *more])


def values(d: int) -> str:
    return f"values = {listed(d)}" if d <= 64 else f'values_file = "{d}.txt"'


def choice(d: int, epsilon: str, *more: str) -> str:
    return "\n".join(['kind = "choice"', values(d), f"epsilon = {epsilon}", *more])


def choices(d: int, ticks: int, epsilon: str, *more: str) -> str:
    return "\n".join(['kind = "choices"', values(d), f"ticks_max = {ticks}", f"epsilon = {epsilon}", *more])


def text(epsilon: str, permanent: str, *more: str) -> str:
    return "\n".join(['kind = "text"', f"epsilon = {epsilon}", permanently(permanent), *more])


def number(epsilon: str, ranges: str, *more: str) -> str:
    return "\n".join(['kind = "number"', 'unit = "s"', f"epsilon = {epsilon}", ranges, *more])


def permanently(epsilon: str) -> str:
    return f"{MEMO}\nepsilon_permanent = {epsilon}"


def by(name: str) -> str:
    return f'mechanism = "{name}"'


HIDDEN = 'presence = "hidden"'

METRICS: dict[str, tuple[str, list[Any]]] = {
    "flag, epsilon 2": (flag("2.0", FRESH), FLAG),
    "flag, the smallest epsilon": (flag("0.01", FRESH), FLAG),
    "flag, the largest epsilon": (flag("20", FRESH), FLAG),
    "flag, an epsilon of six digits": (flag("1.234567", "reports = 800"), FLAG),
    "flag, hidden": (flag("1", FRESH, HIDDEN), FLAG),
    "flag, memoized": (flag("1", permanently("4")), FLAG),
    "flag, memoized and hidden": (flag("0.5", permanently("3"), HIDDEN), FLAG),
    "flag, memoized, epsilons a millionth apart": (flag("1", permanently("1.000001")), FLAG),
    "choice of one and other": (choice(1, "2", FRESH), CHOICE),
    "choice, few values": (choice(3, "2", FRESH, 'period = "7d"'), CHOICE),
    "choice, few values, hidden": (choice(3, "2", FRESH, HIDDEN), CHOICE),
    "choice of 16, epsilon 1": (choice(15, "1", FRESH), CHOICE),
    "choice of 16, epsilon 0.1": (choice(15, "0.1", FRESH), CHOICE),
    "choice of 41, epsilon 2": (choice(40, "2", FRESH), CHOICE),
    "choice of 129, epsilon 1": (choice(128, "1", FRESH), CHOICE),
    "choice of 129, epsilon 4": (choice(128, "4", FRESH), CHOICE),
    "choice of 129, epsilon 8": (choice(128, "8", FRESH), CHOICE),
    "choice of 1001, epsilon 2": (choice(1000, "2", FRESH), CHOICE),
    "choice of 1001, epsilon 5": (choice(1000, "5", FRESH), CHOICE),
    "choice of 20001, epsilon 3": (choice(20000, "3", FRESH), CHOICE),
    "choice of 300, hidden": (choice(298, "2.5", FRESH, HIDDEN), CHOICE),
    "choice, grr": (choice(40, "2", FRESH, by("grr")), CHOICE),
    "choice, ss": (choice(40, "2", FRESH, by("ss")), CHOICE),
    "choice, ss by its members": (choice(1000, "5", FRESH, by("ss")), CHOICE),
    "choice, pgr": (choice(40, "2", FRESH, by("pgr")), CHOICE),
    "choice, pgr of many": (choice(5000, "3.5", FRESH, by("pgr")), CHOICE),
    "choice, oue": (choice(40, "2", FRESH, by("oue")), CHOICE),
    "choice, sue": (choice(40, "2", FRESH, by("sue")), CHOICE),
    "choice, pgr far from its best order": (choice(3, "15", FRESH, by("pgr")), CHOICE),
    "choice, memoized": (choice(3, "1", permanently("4")), CHOICE),
    "choice, memoized, hidden": (choice(3, "1", permanently("4"), HIDDEN), CHOICE),
    "choice of 31, memoized": (choice(30, "2", permanently("5")), CHOICE),
    "choice of 64, memoized": (choice(63, "1.5", permanently("3")), CHOICE),
    "choice of 300, memoized": (choice(299, "2", permanently("4")), CHOICE),
    "choice, memoized grr": (choice(12, "2", permanently("4"), by("grr")), CHOICE),
    "choice, memoized ss": (choice(7, "1", permanently("2"), by("ss")), CHOICE),
    "choice, memoized pgr": (choice(12, "2", permanently("4"), by("pgr")), CHOICE),
    "choice, memoized oue": (choice(12, "2", permanently("4"), by("oue")), CHOICE),
    "choice, memoized sue": (choice(12, "2", permanently("4"), by("sue")), CHOICE),
    "choices, two ticks": (choices(5, 2, "2", FRESH), CHOICES),
    "choices, two ticks, hidden": (choices(5, 2, "2", FRESH, HIDDEN), CHOICES),
    "choices, many ticks": (choices(40, 9, "3", FRESH), CHOICES),
    "choices of 500": (choices(500, 4, "4", FRESH), CHOICES),
    "choices, privset": (choices(12, 3, "4", FRESH, by("privset")), CHOICES),
    "choices, oue": (choices(12, 3, "4", FRESH, by("oue")), CHOICES),
    "choices, sue": (choices(12, 3, "4", FRESH, by("sue")), CHOICES),
    "choices, memoized": (choices(5, 2, "2", permanently("5")), CHOICES),
    "choices, memoized, many ticks": (choices(12, 9, "4", permanently("9")), CHOICES),
    "choices, memoized privset": (choices(5, 2, "2", permanently("5"), by("privset")), CHOICES),
    "choices, memoized oue": (choices(12, 3, "2", permanently("6"), by("oue"), HIDDEN), CHOICES),
    "choices, memoized sue": (choices(12, 3, "2", permanently("6"), by("sue")), CHOICES),
    "number, even ranges": (number("1", "low = 0\nhigh = 60\nbuckets = 12", FRESH), NUMBER),
    "number, many ranges": (number("2", "low = -5\nhigh = 5\nbuckets = 256\ndecimals = 3", FRESH), NUMBER),
    "number, a logarithmic scale": (number("0.5", 'low = 0.01\nhigh = 60\nbuckets = 64\nscale = "log"', FRESH), NUMBER),
    "number, whole powers": (number("4", 'low = 1\nhigh = 1024\nbuckets = 10\nscale = "log"', FRESH), NUMBER),
    "number, listed edges, hidden": (number("1", "edges = [0, 1, 5, 250]\ndecimals = 1", FRESH, HIDDEN), NUMBER),
    "number, the mean alone": (number("1", 'low = 0\nhigh = 60\nasks = ["mean"]', FRESH), NUMBER),
    "number, the mean alone, epsilon 6": (number("6", 'low = -0.5\nhigh = 0.5\nasks = ["mean"]', FRESH), NUMBER),
    "number, memoized": (number("1", "low = 0\nhigh = 60", permanently("2")), NUMBER),
    "number, memoized, four steps": (number("2", "edges = [0, 1, 2, 5, 60]", permanently("8")), NUMBER),
    "text": (text("1", "4"), TEXT),
    "text, fresh": ('kind = "text"\nepsilon = 1\nreports = 3', TEXT),
    "text, fresh and hidden": (f'kind = "text"\nepsilon = 4\nreports = 1\n{HIDDEN}', TEXT),
    "words in Cyrillic": ('kind = "words"\nepsilon = 2\nreports = 3\nalphabet = "cyrillic"', TEXT),
    "words": ('kind = "words"\nepsilon = 2\nreports = 3', TEXT),
    "words, long and in one case, hidden": (
        f'kind = "words"\nepsilon = 1\nreports = 1\nlength = "long"\ncasefold = true\n{HIDDEN}',
        TEXT,
    ),
    "text, hidden": (text("2", "6", HIDDEN, f"candidates = {listed(3)}"), TEXT),
    "text, few candidates": (text("4", "8", "candidates_expected = 20"), TEXT),
    "text, more candidates than are expected": (
        text("2", "4", "candidates_expected = 5", 'candidates_file = "300.txt"'),
        TEXT,
    ),
    "text, many candidates": (text("3", "9", "candidates_expected = 100000"), TEXT),
    "text, epsilons close together": (text("0.5", "0.6"), TEXT),
    "text, google_default": (text("1.074286", "4.39445", 'parameter_set = "google_default"'), TEXT),
    "text, chromium_string": (text("2.043303", "4.39445", 'parameter_set = "chromium_string"'), TEXT),
    "text, google_demo": (text("1.021652", "2.197225", 'parameter_set = "google_demo"'), TEXT),
    "text, parameters of one's own": (
        text("1.074286", "4.39445", "parameters = { k = 8, h = 2, m = 4, f = 0.5, p = 0.5, q = 0.75 }"),
        TEXT,
    ),
}

REFUSED: dict[str, str] = {
    "no kind": "epsilon = 1\nreports = 1",
    "a kind there is not": 'kind = "nubmer"\nepsilon = 1\nreports = 1',
    "no epsilon": 'kind = "flag"\nreports = 1',
    "an epsilon too small": flag("0.009", FRESH),
    "an epsilon of seven digits": flag("1.2345678", FRESH),
    "a flag with values": flag("1", FRESH, values(3)),
    "no presence": registry_of(flag("1", FRESH)).replace('presence = "public"\n', ""),
    "a flag without a number of reports": flag("1"),
    "fresh answers with a permanent epsilon": flag("1", FRESH, "epsilon_permanent = 2"),
    "memoized answers with a number of reports": flag("1", permanently("2"), FRESH),
    "a permanent epsilon not above epsilon": flag("2", permanently("2")),
    "a schedule for memoized answers": flag("1", permanently("2"), 'schedule = "spread"'),
    "a choice without values": 'kind = "choice"\nepsilon = 1\nreports = 1',
    "a value twice": choice(2, "1", FRESH).replace('"v1"', '"v0"'),
    "other among the values": choice(2, "1", FRESH).replace('"v1"', '"other"'),
    "none among the values, where presence is hidden": choice(2, "1", FRESH, HIDDEN).replace('"v1"', '"none"'),
    "a mechanism there is not": choice(3, "1", FRESH, by("rr")),
    "a mechanism of several ticks for one": choice(3, "1", FRESH, by("privset")),
    "a mechanism for too many values": choice(5000, "1", FRESH, by("oue")),
    "too many values to memoize": choice(5000, "1", permanently("3"), by("oue")),
    "one tick": choices(5, 1, "1", FRESH),
    "more ticks than values": choices(5, 7, "1", FRESH),
    "several ticks of grr": choices(5, 2, "1", FRESH, by("grr")),
    "ticks of a choice": choice(3, "1", FRESH, "ticks_max = 2"),
    "a number without a unit": number("1", "low = 0\nhigh = 1\nbuckets = 4", FRESH).replace('unit = "s"\n', ""),
    "a number with edges in two ways": number("1", "edges = [0, 1]\nlow = 0", FRESH),
    "a logarithmic scale from zero": number("1", 'low = 0\nhigh = 1\nbuckets = 4\nscale = "log"', FRESH),
    "a memoized number of three ranges": number("1", "edges = [0, 1, 2, 3]", permanently("2")),
    "a memoized number of one range": number("1", "edges = [0, 1]", permanently("2")),
    "a hidden mean": number("1", 'low = 0\nhigh = 1\nasks = ["mean"]', FRESH, HIDDEN),
    "a fresh text with Bloom bits": 'kind = "text"\nepsilon = 1\nreports = 1\nparameter_set = "google_default"',
    "a fresh text with other as a candidate": 'kind = "text"\nepsilon = 1\nreports = 1\ncandidates = ["other"]',
    "words in a memo": 'kind = "words"\nepsilon = 1\nmemoize = true\nepsilon_permanent = 2\nanswers = 1',
    "words in no alphabet": 'kind = "words"\nepsilon = 1\nreports = 1\nalphabet = "runes"',
    "words with a list": 'kind = "words"\nepsilon = 1\nreports = 1\ncandidates = ["a"]',
    "a text with a mechanism": text("1", "2", by("grr")),
    "a text with values": text("1", "2", values(3)),
    "a set and parameters": text(
        "1", "2", 'parameter_set = "google_demo"', "parameters = { k = 8, h = 2, m = 4, f = 0.5, p = 0.5, q = 0.75 }"
    ),
    "an epsilon that is not that of the parameters": text("1", "4.39445", 'parameter_set = "google_default"'),
    "parameters that may not be repeated": text(
        "1", "4", "parameters = { k = 8, h = 2, m = 4, f = 0.5, p = 0.0, q = 1.0 }"
    ),
    "too many cells": text("1", "4", "parameters = { k = 8, h = 2, m = 256, f = 0.5, p = 0.5, q = 0.75 }"),
    "more than the device may spend": flag("20", "reports = 51"),
    "a key there is not": flag("1", FRESH, "epsilom = 2"),
}


def pinned() -> dict[str, Any]:
    """Return the vectors of metrics.json."""
    with tempfile.TemporaryDirectory() as there:
        directory = Path(there)
        metrics, refused = [], []
        for name, (keys, answers) in METRICS.items():
            toml = registry_of(keys)
            write_values(toml, directory)
            metrics.append({"name": name, "registry": toml, "pinned": describe(toml, directory, answers)})
        for name, keys in REFUSED.items():
            toml = keys if keys.startswith("[") else registry_of(keys)
            write_values(toml, directory)
            refused.append({"name": name, "registry": toml, "error": refusal(toml, directory)})
    return {"metrics": metrics, "refused": refused}


COMPILED = (
    "flag, epsilon 2",
    "choice, few values, hidden",
    "choice, memoized",
    "choices, two ticks",
    "choice, pgr",
    "choice, oue",
    "choices, privset",
    "number, listed edges, hidden",
    "number, the mean alone",
    "number, memoized",
    "text, fresh",
    "text, few candidates",
    "text, hidden",
    "words",
)
TABLE = """name = table
kind = "table"
epsilon = 2
reports = 3
columns = { crashed = ["no", "yes"], size = { unit = "MB", edges = [0, 1, 900000000000000000] } }
"""


def compiled() -> dict[str, Any]:
    """Return the vectors of compiled.json: a registry of every kind, and what it is compiled to."""
    head = HEAD + 'linkable = true\npublic = { arm = ["a", "b"] }\n'
    asked = [f"name = m{place}\n{METRICS[name][0]}" for place, name in enumerate(COMPILED)]
    toml = registry_of(*asked, TABLE, head=head)
    return {"registry": toml, "compiled": compiled_form(toml, Path())}
