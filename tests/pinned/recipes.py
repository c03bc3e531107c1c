"""How the streams were drawn, each from a seed of its own. For the generator alone: the vectors hold the reports."""

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.pinned.adapter import devices_say, draw, upload_id
from tests.pinned.metrics import FRESH, HIDDEN, by, choice, choices, flag, permanently, text
from tests.pinned.registries import listed, registry_of
from tests.pinned.streams import replay

Step = dict[str, Any]
GROUPS_MAX = 40
READING = "asked"


def step(do: str, **with_: Any) -> Step:
    return {"do": do, "with": with_}


def uploads(groups: Sequence[dict[str, Any]], rng: random.Random, parts: int = 1) -> list[Step]:
    """Return steps that upload the groups: each group in so many parts, no more than 40 in an upload."""
    split = [
        {**group, "reports": group["reports"][part::parts]}
        for part in range(parts)
        for group in groups
        if group["reports"][part::parts]
    ]
    return [
        step("upload", id_=upload_id(rng), groups=split[place : place + GROUPS_MAX])
        for place in range(0, len(split), GROUPS_MAX)
    ]


def finally_read(*metrics: str, days: Sequence[int] = (0,)) -> list[Step]:
    """Return steps that close the days and read them."""
    readings = [step("read", metric=metric, day=day) for metric in metrics or (READING,) for day in days]
    return [step("travel", days=2), step("maintain"), step("ledger"), *readings]


def answers_of(kind: str, rng: random.Random, number: int, d: int) -> list[Any]:
    """Draw answers, low values often; some are not listed."""
    names = [f"v{place}" for place in range(d)]
    weights = [1 / (place + 1) for place in range(d)]
    if kind == "flag":
        return [rng.random() < 0.3 for _ in range(number)]
    if kind == "choices":
        return [rng.sample(names, rng.randrange(min(d, 4))) for _ in range(number)]
    return rng.choices([*names, "unheard of"], [*weights, 0.2], k=number)


def simple(seed: int, keys: str, kind: str, d: int, number: int, repeats: int = 1, silent: int = 0) -> list[Step]:
    """Return a stream of one metric on one day; of hidden presence `silent` devices have nothing to say."""
    rng, toml = random.Random(f"stream {seed}"), registry_of(keys)
    answers = answers_of(kind, rng, number, d) + ["none"] * silent
    groups = draw(toml, READING, answers, rng, repeats)
    sent = uploads(groups, rng, parts=3 if len(groups) == 1 else 1)
    return [
        step("load", text=toml),
        *sent[:-1],
        step("fold"),
        *sent[-1:],
        step("ledger"),
        step("fold"),
        step("read", metric=READING),
        *finally_read(),
    ]


def own_parameters(k: int, h: int, m: int) -> str:
    return f"parameters = {{ k = {k}, h = {h}, m = {m}, f = 0.5, p = 0.5, q = 0.75 }}"


def one_of(h: int, *more: str) -> str:
    epsilons = {1: ("0.537143", "2.197225"), 2: ("1.074286", "4.39445")}
    return text(*epsilons[h], *more)


def candidates(number: int) -> str:
    return f"candidates = {listed(number)}"


def bad_groups() -> list[Step]:
    """Refused groups, and those taken beside them; copies, conflicts."""
    rng = random.Random("bad groups")
    toml = registry_of(
        "name = color\n" + choice(3, "2", FRESH), "name = word\n" + one_of(2, own_parameters(16, 2, 8), candidates(3))
    )
    color = draw(toml, "color", answers_of("choice", rng, 60, 3), rng)
    words = draw(toml, "word", answers_of("text", rng, 40, 3), rng)
    one, word = color[0]["reports"], words[0]
    bad: list[list[dict[str, Any]]] = [
        [*color, {"metric": "nobody", "reports": [1, 2]}],
        [{"metric": "color", "plan": "0123456789abcdef", "reports": [1]}, words[1]],
        [{"metric": "color", "reports": [*one[:3], 4]}, words[2]],
        [{"metric": "color", "cell": 0, "reports": one[:3]}, words[3]],
        [{"metric": "word", "reports": word["reports"]}, {**word, "cell": 8}, {**word, "cell": -1}, words[4]],
        [{**word, "cell": True}, {"metric": "color", "reports": [True]}, {"metric": "color", "reports": [2, 2]}],
        [{"metric": "word", "cell": 1, "reports": [*word["reports"], "AAAA"]}, {"metric": "color", "reports": [0]}],
        [{"metric": "Color", "reports": [0]}, {"metric": "color", "reports": []}, {"metric": "color", "reports": [3]}],
        [{"metric": "color", "reports": [9]}],
        [{"metric": "color", "plan": "not hex", "reports": [1]}],
    ]
    steps = [step("upload", id_=upload_id(rng), groups=groups) for groups in bad]
    other_body = {"id_": steps[0]["with"]["id_"], "groups": [{"metric": "color", "reports": [1]}]}
    copies = [steps[0], {"do": "upload", "with": other_body}, steps[8], step("upload", id_="too short", groups=color)]
    return [step("load", text=toml), *steps, *copies, step("fold"), steps[1], *finally_read("color", "word")]


def quarantine() -> list[Step]:
    """Groups that cannot be counted: one is replayed on the same day, one later, one is dropped, one stays."""
    rng = random.Random("quarantine")
    toml = registry_of("name = color\n" + choice(3, "2", FRESH), "name = dark\n" + flag("1", FRESH))
    steps = [step("load", text=toml)]
    for number in range(4):
        color = draw(toml, "color", answers_of("choice", rng, 30, 3), rng)
        dark = draw(toml, "dark", answers_of("flag", rng, 10, 2), rng)
        poison = {"metric": "color", "reports": [3, 3, 3, 3, number % 2]}
        steps += uploads([*color, *dark], rng)
        steps += uploads([poison, {"metric": "dark", "reports": [1]}], rng)
    return [
        *steps,
        step("fold", fails_on="03030303"),
        step("quarantined"),
        step("ledger"),
        step("replay", id_="0-1"),
        step("ledger"),
        step("fold"),
        step("drop", id_="0-2"),
        step("drop", id_="0-2"),
        step("travel", days=1),
        step("replay", id_="0-3"),
        step("fold"),
        step("ledger"),
        step("quarantined"),
        step("read", metric="color", day=1),
        *finally_read("color", "dark", days=(0, 1)),
    ]


def changes() -> list[Step]:
    """Another rev while the old one is still sent, one that is retired, and days on which metrics have expired."""
    rng = random.Random("changes")
    metrics = ["name = color\n" + choice(3, "2", FRESH), "name = dark\n" + flag("1", permanently("3"))]
    first = registry_of(*metrics)
    second = registry_of("name = color\nrev = 2\n" + choice(4, "1", FRESH, HIDDEN), metrics[1])

    def some(toml: str, rev: int) -> list[Step]:
        color = draw(toml, "color", answers_of("choice", rng, 40, 4), rng)
        dark = draw(toml, "dark", answers_of("flag", rng, 40, 2), rng)
        return uploads([{**color[0], "rev": rev}, *dark], rng)

    return [
        step("load", text=first),
        *some(first, 1),
        step("travel", days=1),
        *some(first, 1),
        step("load", text=second),
        *some(first, 1),
        *some(second, 2),
        step("fold"),
        step("ledger"),
        step("read", metric="color", rev=2, day=1),
        step("retire", metric="color", rev=1),
        *some(first, 1),
        *some(second, 2),
        step("travel", days=105),
        *some(second, 2),
        step("travel", days=2),
        *some(first, 1),
        *uploads([{"metric": "color", "rev": 1, "reports": [0]}], rng),
        *uploads([{"metric": "color", "rev": 2, "reports": [0]}], rng),
        step("fold"),
        *finally_read("color", "dark", days=(0, 1)),
        step("read", metric="color", rev=2, day=1),
        step("read", metric="color", rev=2, day=106),
    ]


def devices() -> list[Step]:
    """Uploads as devices make them: several metrics in one, each device in its own cell."""
    rng = random.Random("devices")
    toml = registry_of(
        "name = color\n" + choice(3, "2", FRESH),
        "name = dark\n" + flag("1", permanently("3")),
        "name = several\n" + choices(5, 2, "4", FRESH),
        "name = word\n" + one_of(2, own_parameters(8, 2, 4), candidates(4)),
    )
    said = [
        {
            "color": rng.choice(["v0", "v1", "v2", None]),
            "dark": rng.random() < 0.4,
            "several": rng.sample(["v0", "v1", "v2", "v3"], rng.randrange(3)),
            "word": rng.choice(["v0", "v0", "v1", "v2", "unheard of"]),
        }
        for _ in range(60)
    ]
    sent = [step("upload", **upload) for upload in devices_say(toml, said)]
    return [step("load", text=toml), *sent, step("fold"), *finally_read("color", "dark", "several", "word")]


def several_days() -> list[Step]:
    """Three days of one metric, one of them without an upload, one read before it is over."""
    rng, toml = random.Random("days"), registry_of(choice(4, "1.5", FRESH))
    steps = [step("load", text=toml)]
    for days in (2, 1):
        steps += uploads(draw(toml, READING, answers_of("choice", rng, 150, 4), rng), rng, parts=2)
        steps += [step("fold"), step("travel", days=days), step("maintain")]
    return [*steps, *finally_read(days=(0, 1, 2))]


STREAMS: dict[str, Callable[[], list[Step]]] = {
    "a flag": lambda: simple(1, flag("2", FRESH), "flag", 2, 400),
    "a hidden flag": lambda: simple(2, flag("1", FRESH, HIDDEN), "flag", 2, 250, silent=100),
    "a memoized flag, sent twice": lambda: simple(3, flag("1", permanently("4")), "flag", 2, 200, repeats=2),
    "a hidden choice of few": lambda: simple(4, choice(4, "2", FRESH, HIDDEN), "choice", 4, 300, silent=50),
    "very few reports": lambda: simple(5, choice(4, "3", FRESH), "choice", 4, 12),
    "subset selection as bits": lambda: simple(6, choice(15, "1", FRESH), "choice", 15, 300),
    "subset selection by members": lambda: simple(7, choice(50, "3", FRESH, by("ss")), "choice", 50, 400),
    "projective geometry": lambda: simple(8, choice(12, "1.5", FRESH, by("pgr")), "choice", 12, 400),
    "OUE": lambda: simple(9, choice(10, "2", FRESH, by("oue")), "choice", 10, 300),
    "SUE": lambda: simple(10, choice(6, "1", FRESH, by("sue")), "choice", 6, 500),
    "memoized GRR": lambda: simple(11, choice(5, "1", permanently("4"), by("grr")), "choice", 5, 200, repeats=3),
    "memoized projective geometry": lambda: simple(12, choice(30, "2", permanently("5")), "choice", 30, 400),
    "memoized SUE, hidden": lambda: simple(
        13, choice(9, "2", permanently("5"), by("sue"), HIDDEN), "choice", 9, 250, silent=50
    ),
    "PrivSet": lambda: simple(14, choices(5, 2, "2", FRESH), "choices", 5, 400),
    "PrivSet, memoized, hidden": lambda: simple(
        15, choices(5, 2, "2", permanently("5"), HIDDEN), "choices", 5, 250, repeats=2, silent=50
    ),
    "several ticks by memoized OUE": lambda: simple(
        16, choices(10, 3, "4", permanently("9"), by("oue")), "choices", 10, 300
    ),
    "texts": lambda: simple(17, text("2", "4", "candidates_expected = 5", by("rappor"), candidates(5)), "text", 8, 900),
    "hidden texts, some of which no cell tells apart": lambda: simple(
        18, one_of(1, own_parameters(4, 1, 2), candidates(9), HIDDEN), "text", 6, 900, silent=300
    ),
    "texts, more candidates than equations can bear": lambda: simple(
        19, one_of(2, own_parameters(16, 2, 4), candidates(40)), "text", 40, 1500
    ),
    "texts, of which the list misses what many have": lambda: simple(
        20, one_of(2, own_parameters(8, 2, 16), 'candidates = ["v1", "v2", "v3", "nobody"]'), "text", 6, 2000
    ),
    "bad groups": bad_groups,
    "quarantine": quarantine,
    "changes": changes,
    "devices": devices,
    "several days": several_days,
}


def pinned() -> list[dict[str, Any]]:
    """Return the vectors of streams.json."""
    streams = []
    for name, made in STREAMS.items():
        steps = made()
        with tempfile.TemporaryDirectory() as directory:
            came = replay(steps, Path(directory))
        recorded = [{**one, "then": then} for one, then in zip(steps, came, strict=True)]
        streams.append({"name": name, "steps": recorded})
    return streams
