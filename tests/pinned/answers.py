"""A plan of every kind and domain, and the value of answers in its cells: for clients in other languages.

For the generator alone. Coins and a device's own 64 bits are 2^63.
"""

import re
import sys
from typing import Any

from dither_shared.text_normalization import folded, newer, normal, unseen
from tests.pinned.metrics import CHOICE, CHOICES, FLAG, NUMBER, TEXT, choice, choices, flag, number, text
from tests.pinned.placing import answered
from tests.pinned.registries import HEAD, registry_of

FRESH, HIDDEN = "reports = 1", 'presence = "hidden"'
MEMO = "memoize = true\nanswers = 2\nepsilon_permanent = 4"
RANGES = "low = 0\nhigh = 60\nbuckets = 12"
WORDS: list[Any] = [
    *TEXT,
    "to",
    " to ",
    "Straße",
    "STRASSE",
    "Visual Studio Code",
    "e\u0301\u2003",
    "日本 \U0001f600",
    "\x1c-",
]
SCRIPTS: list[Any] = [
    *(
        "Привет",
        "Ёлка 2",
        "מחשב",
        "مرحبا",
        "हिन्दी",
        "北京",
        "東京タワー",
        "ひらがな",
        "서울",
        "Ωμέγα",
        "naïve Ωж",
        "ѣ",
        "龘𠮷",
    ),
    *("com.google.android.youtube", "comorg.", "python-dev", "https://www.example.co.uk", "a..b", "\x7f"),
]
"""Words of several scripts, characters that no script has, and pieces that begin with others."""
NAMES: list[Any] = ["com.google.android.apps.messaging", "www.linux.org", "forum.example.co.uk", "org.project.client"]
"""Names with pieces of several lengths, which names of sites and packages are coded by."""
WRITTEN: list[Any] = [
    "Caf\u00e9",
    "Cafe\u0301",
    "q\u0323\u0307",
    "q\u0307\u0323",
    "a\u0301\U0001e4ec\u0327\u0301",
    "e\U0001e4ef\u0301",
    "e\u0301" * 200,
    "e\u0301" * 201,
    " " * 300 + "x" + " " * 300,
    "x" + " " * 800,
    "1\ufe0f\u20e3",
    "\U0001f469\u200d\U0001f52c",
    "\u0646\u200c\u0645",
    "fire\u200dfox",
    "fire\ufe0ffox",
    "a\u202eb",
    "zero\u200bwidth",
    "two\nlines",
    "\ue000",
    "\u0600",
]
"""Texts that are one in NFC of Unicode 14, or that nobody sees: no later version changes what they are."""
VERSIONS = 'crashed = ["no", "yes"], version = ["157", "158"]'
WIDE = (
    'version = ["157", "158"], age = { edges = [20, 40, 60], unit = "years" }, '
    'rating = { low = 0, high = 10, asks = ["mean"] }, color = ["red", "green", "blue", "grey", "black", "white"]'
)
SIXTEEN = ", ".join((VERSIONS, *(f'q{place} = ["no", "yes"]' for place in range(14))))
ROWS: list[Any] = [
    {"crashed": "yes", "version": "158"},
    {"crashed": "no", "version": "156"},
    {"version": "157", "age": 40, "rating": 10, "color": "white"},
    {"version": "158", "age": 19.9, "rating": 0, "color": "red"},
    {"version": 158, "age": "40", "rating": None, "color": "pink"},
    {"rating": 7.5},
    {},
]


def table(columns: str, *more: str) -> str:
    return "\n".join(['kind = "table"', f"columns = {{ {columns} }}", "epsilon = 2", FRESH, *more])


def words(*more: str) -> str:
    return "\n".join(['kind = "words"', "epsilon = 2", FRESH, *more])


def fresh_text(*more: str) -> str:
    return "\n".join(['kind = "text"', "epsilon = 2", FRESH, *more])


ARMS = HEAD + 'public = { arm = ["control", "treatment"] }\n'
ASKED: list[tuple[str, str, list[Any]]] = [
    ("a flag", registry_of(flag("2", FRESH)), FLAG),
    ("a hidden flag", registry_of(flag("2", FRESH, HIDDEN)), FLAG),
    ("a memoized flag", registry_of(flag("1", MEMO)), FLAG),
    ("a choice", registry_of(choice(16, "1", FRESH)), CHOICE),
    ("a hidden choice, a point", registry_of(choice(60, "1", FRESH, HIDDEN, 'mechanism = "pgr"')), CHOICE),
    ("a memoized choice, as bits", registry_of(choice(5, "1", MEMO, 'mechanism = "oue"')), CHOICE),
    ("choices", registry_of(choices(5, 2, "2", FRESH)), CHOICES),
    ("hidden choices", registry_of(choices(5, 2, "2", FRESH, HIDDEN)), CHOICES),
    ("memoized choices", registry_of(choices(5, 2, "1", MEMO)), CHOICES),
    ("a number's ranges", registry_of(number("1", RANGES, FRESH)), NUMBER),
    ("hidden ranges", registry_of(number("1", "edges = [0, 1, 5, 250]\ndecimals = 1", FRESH, HIDDEN)), NUMBER),
    ("a number's mean", registry_of(number("1", 'low = 0\nhigh = 60\nasks = ["mean"]', FRESH)), NUMBER),
    ("a memoized number", registry_of(number("1", "low = 0\nhigh = 60\nbuckets = 4", MEMO)), [*NUMBER, 44.9, 31]),
    ("a fresh text", registry_of(fresh_text()), TEXT),
    ("a fresh text, as it may be written", registry_of(fresh_text()), WRITTEN),
    ("words, as they may be written", registry_of(words()), WRITTEN),
    ("capitals that do not matter, as they may be written", registry_of(words("casefold = true")), WRITTEN),
    (
        "a memoized text, as it may be written",
        registry_of(text("1", "4", 'answers = 2\nmechanism = "rappor"')),
        WRITTEN,
    ),
    (
        "a choice of what may be written in two ways",
        registry_of('kind = "choice"\nvalues = ["Caf\u00e9", "q\u0307\u0323", "1\ufe0f\u20e3"]\nepsilon = 2\n' + FRESH),
        WRITTEN,
    ),
    ("a hidden text", registry_of(fresh_text(HIDDEN)), TEXT),
    ("a memoized text, hashed", registry_of(text("1", "4", "answers = 2\ncandidates_expected = 20")), TEXT),
    ("a memoized text, Bloom bits", registry_of(text("1", "4", 'answers = 2\nmechanism = "rappor"', HIDDEN)), TEXT),
    ("words", registry_of(words()), WORDS),
    ("long words without capitals, hidden", registry_of(words('length = "long"', "casefold = true", HIDDEN)), WORDS),
    ("words in Cyrillic", registry_of(words('alphabet = "cyrillic"')), [*WORDS, *SCRIPTS]),
    ("words in any script, hidden", registry_of(words('alphabet = "any"', HIDDEN)), [*WORDS, *SCRIPTS]),
    ("words of sites", registry_of(words('alphabet = "site"')), [*WORDS, *SCRIPTS, *NAMES]),
    ("words of packages", registry_of(words('alphabet = "package"')), [*WORDS, *SCRIPTS, *NAMES]),
    ("long identifiers", registry_of(words('alphabet = "identifier"', 'length = "long"')), [*WORDS, *SCRIPTS]),
    ("a table at once", registry_of(table(VERSIONS)), ROWS),
    ("a hidden table", registry_of(table(VERSIONS, HIDDEN)), ROWS),
    ("a table in pairs", registry_of(table(WIDE)), ROWS),
    ("a table of sixteen columns", registry_of(table(SIXTEEN)), ROWS[:2]),
    ("a table beside a public column", registry_of(table(WIDE), head=ARMS), ROWS),
]


def pinned() -> list[dict[str, Any]]:
    """Return each plan with its digest and its memo's key, and each answer with its values."""
    return [{"name": name, **answered(registry, answers)} for name, registry, answers in ASKED]


def texts() -> dict[str, Any]:
    """Return the ranges of code points that Unicode 14 does not have, and the forms of texts."""
    runs = re.finditer(f"(?:{newer().pattern})+", "".join(map(chr, range(sys.maxunicode + 1))))
    written = [text for text in WRITTEN if len(text) < 20]
    return {
        "newer": [[run.start(), run.end() - 1] for run in runs],
        "forms": [
            {"text": text, "normal": normal(text), "folded": folded(normal(text)), "unseen": unseen(normal(text))}
            for text in written
        ],
    }
