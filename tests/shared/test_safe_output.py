"""Texts of strangers where they leave: cells that no spreadsheet runs, lines and names that are what they seem."""

import csv
import io
import random
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from dither_shared.safe_output import VisibleStream, csv_cell, file_name, is_visible, to_csv, visible
from tests.support.aggregators import ENVIRONMENT
from tests.support.soaking import scaled

ROOT = Path(__file__).parents[2]
ROOMS = ("aggregator/dither_aggregator", "client/dither", "shared/dither_shared")
FORMULAS = "=+-@\uff1d\uff0b\uff0d\uff20"
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
HOSTILE = (*FORMULAS, *',;\t"\r\n\0\x7f\x9b\ufeff\u2028', "\r\n", "\x1b[7m", *BIDI)
HARMLESS = ["red", "1+1", "a=b", "'=1", " =1", "Größe", "“quoted”", "50\N{NO-BREAK SPACE}%", "日本\u3000語", "नमस्ते", ""]
JOINED = ["\u0646\u200c\u0645", "\U0001f469\u200d\U0001f52c", "\u0915\u094d\u200d\u0937"]
"""Written with a joiner: words of Persian and Hindi, and one picture of two."""


def texts(seed: int, n: int) -> Iterator[str]:
    """Yield texts that are made of what does harm, of letters, and of characters drawn from all there are."""
    chance = random.Random(seed)
    for _ in range(n):
        parts = [*HOSTILE, *"aZ1 'é" * 4, *(chr(chance.randrange(sys.maxunicode + 1)) for _ in range(4))]
        yield "".join(chance.choices(parts, k=chance.randrange(1, 9)))


def read(table: str, separator: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(table, newline=""), delimiter=separator))


# For spreadsheets.


@pytest.mark.parametrize("separator", ",;\t")
def test_no_cell_begins_a_formula_whatever_separates_cells(separator: str) -> None:
    """Readers heed quotes or do not, and strip what is unseen or do not: no cell of any of them runs."""
    n = scaled(4_000, 200_000)
    tables = [to_csv(["one", "other"], [row]) for row in zip(texts(1, n), texts(2, n), strict=True)]
    cells = {cell for table in tables for row in read(table, separator) for cell in row}
    cells.update(re.split(f"[\r\n{separator}]", "".join(tables)))
    begun = {next((each for each in cell if each != '"' and is_visible(each)), "") for cell in cells}
    assert len(begun) > 50
    assert begun.isdisjoint(FORMULAS)


def test_a_text_is_read_back_with_its_apostrophes_alone() -> None:
    for text in texts(3, scaled(2_000, 200_000)):
        ((back,),) = read(to_csv(["value"], [[text]]))[1:] or (("",),)
        bare, own = (re.sub(f"'(?=[{re.escape(FORMULAS)}\t\r])", "", each) for each in (back, text))
        assert bare == own


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("-", "'-"),
        ("a;=1", '"a;\'=1"'),
        ('";=1+1', '""";\'=1+1"'),
        ("\t=1", "\"'\t'=1\""),
        ("\r=1", "\"'\r'=1\""),
        ("a\n@SUM(A1)", '"a\n\'@SUM(A1)"'),
        ("\ufeff=1", "\ufeff'=1"),
        ('=cmd|"/c calc"!A1', '"\'=cmd|""/c calc""!A1"'),
    ],
)
def test_an_apostrophe_stands_before_what_a_spreadsheet_would_run(text: str, cell: str) -> None:
    assert csv_cell(text) == cell


@pytest.mark.parametrize("text", [*HARMLESS, *JOINED, 'say "hi"', "one\ntwo", "a;b", "a,b"])
def test_any_other_text_stays_what_it_is(text: str) -> None:
    assert read(to_csv(["value", "n"], [[text, 1]])) == [["value", "n"], [text, "1"]]


@pytest.mark.parametrize("number", [-1, -0.25, 1e-300, -1.5e22, 0.1 + 0.2, 10**18])
def test_a_number_stays_a_number(number: float) -> None:
    cell = to_csv(["n"], [[number]]).splitlines()[1]
    assert type(number)(cell) == number


def test_nothing_is_an_empty_cell() -> None:
    assert to_csv(["a", "b", "c"], [[None, True, ""]]) == "a,b,c\r\n,true,\r\n"


def test_every_table_and_every_files_name_comes_by_here() -> None:
    """A house rule, read off the source: nobody writes CSV or names a download in another way."""
    sources = {path: path.read_text("utf-8") for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert not [path for path, text in sources.items() if re.search(r"csv\.(writer|DictWriter)", text)]
    named = [line for text in sources.values() for line in text.splitlines() if "Content-Disposition" in line]
    assert len(named) == 2
    assert all("file_name(" in line for line in named)


# For logs and terminals.


def test_whatever_is_unseen_is_an_escape_and_a_text_that_is_seen_stays() -> None:
    for text in texts(4, scaled(5_000, 500_000)):
        shown = visible(text)
        assert is_visible(shown)
        assert visible(shown) == shown
        assert (shown == text) is is_visible(text)
        assert all(unicodedata.category(each)[0] != "C" or each in "\u200c\u200d" for each in shown)


@pytest.mark.parametrize(
    "text", [*HARMLESS, *JOINED, "e\u0301", "☎\ufe0f", "❤\ufe0f\u200d🔥", "葛\U000e0100", "1\ufe0f\u20e3"]
)
def test_what_people_write_is_seen(text: str) -> None:
    assert is_visible(text)
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[7m", r"\u{1b}[7m"),
        ("a\u202eb", r"a\u{202e}b"),
        ("fire\u200dfox", r"fire\u{200d}fox"),
        ("\u200d日", r"\u{200d}日"),
        ("日\u200d\u200d本", r"日\u{200d}\u{200d}本"),
        ("one\nother\t.", r"one\u{a}other\u{9}."),
        ("fire\u3164fox\ufe0f", r"fire\u{3164}fox\u{fe0f}"),
        ("❤\ufe0f\ufe0f", "❤\ufe0f\\u{fe0f}"),
        ("\u2800\U000e0100", r"\u{2800}\u{e0100}"),
        ("日\u200d\u0378", r"日\u{200d}\u{378}"),
        ("x\ufe0f\u200d日", r"x\u{fe0f}\u{200d}日"),
    ],
)
def test_what_controls_turns_round_or_hides_is_an_escape(text: str, shown: str) -> None:
    assert not is_visible(text)
    assert visible(text) == shown


def test_a_stream_keeps_lines_and_tabs() -> None:
    behind = io.StringIO()
    print("a\tb\x1b[2J", "\u202e", file=VisibleStream(behind))
    assert behind.getvalue() == "a\tb\\u{1b}[2J \\u{202e}\n"


def test_a_record_of_the_log_is_one_line_and_what_was_raised_passes_for_none() -> None:
    code = r"""
import logging
from dither_aggregator.operations.signal_handling import set_up_logging

set_up_logging("text")
log = logging.getLogger("dither_aggregator")
log.warning("said %s", "\x1b[7mwell\n2026-11-20 00:00:00,000 dither_aggregator WARNING all is well\u202e")
try:
    raise ValueError("it failed\n2026-11-20 00:00:00,000 dither_aggregator WARNING all is well \x9b7m")
except ValueError:
    log.exception("it failed")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert is_visible(done.stderr.replace("\n", ""))
    lines = [line for line in done.stderr.splitlines() if not line.startswith("  ")]
    assert [line.split(" ")[3] for line in lines] == ["WARNING", "ERROR"]


# For files.


def test_a_files_name_is_one_name_everywhere() -> None:
    names = ["..", ".bashrc", "../../etc/passwd", "C:\\x", "con", "NUL.csv", "w" * 999]
    for name in (*names, *texts(5, scaled(2_000, 200_000))):
        made = file_name(name, "csv")
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,160}\.csv", made)
        assert not re.match(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\.|$)", made)
    assert file_name("theme-2026-11-20", "csv") == "theme-2026-11-20.csv"
