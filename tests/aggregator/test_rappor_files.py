"""google/rappor's files: what they hold is read exactly, and damage is named with its line, never with a traceback."""

import csv
import gzip
import io
import json
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dither_aggregator import google_rappor
from dither_aggregator.google_rappor import (
    BadFile,
    Params,
    Refused,
    Report,
    count_lines,
    map_line,
    read_candidates,
    read_counts,
    read_map,
    read_params,
    read_reports,
    sum_reports,
)
from dither_shared.errors import InvalidParameter
from tests.support.aggregators import ENVIRONMENT
from tests.support.soaking import SOAK, scaled

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "rappor.json").read_text(encoding="utf-8"))
PARAMS = Params(4, 2, 3, Fraction(1, 4), Fraction(3, 4), Fraction(1, 2))
COUNTS = "10,1,2,3,10\n0,0,0,0,0\n7,7,0,0,1\n"
MAP = "a,1,2,5,6,9,9\nb,4,3,8,7,12,11\n"
REPORTS = "client,cohort,irr\nc1,0,0001\nc2,2,1000\n"

READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "params": ("k,h,m,p,q,f\n4,2,3,0.25,0.75,0.5\n", read_params),
    "counts": (COUNTS, lambda path: read_counts(path, PARAMS)),
    "map": (MAP, lambda path: read_map(path, PARAMS)),
    "candidates": ("a\nb\n", read_candidates),
    "reports": (REPORTS, lambda path: list(read_reports(path, PARAMS))),
}


def written(tmp_path: Path, content: str | bytes, name: str = "file.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def refusal(tmp_path: Path, reader: str, content: str | bytes) -> str:
    """Return what is said of a file, after its name."""
    path = written(tmp_path, content)
    with pytest.raises(BadFile) as refused:
        READERS[reader][1](path)
    message = str(refused.value)
    assert message.startswith(f"{path}: line ")
    return message.removeprefix(f"{path}: ")


# Parameters.


def test_parameters_are_read_exactly(tmp_path: Path) -> None:
    assert read_params(written(tmp_path, "k,h,m,p,q,f\n16,2,64,0.39,.61,4.5e-1\n")) == Params(
        16, 2, 64, Fraction(39, 100), Fraction(61, 100), Fraction(9, 20)
    )


def test_parameters_are_found_by_name(tmp_path: Path) -> None:
    path = written(tmp_path, '"f","q","p","note","m","h","k"\r\n0,1,0.,"x, y",3,2, 4\r\n\r\n')
    assert read_params(path) == Params(4, 2, 3, Fraction(0), Fraction(1), Fraction(0))


def test_the_rates_are_those_of_two_stages_of_noise() -> None:
    params = Params(8, 2, 128, Fraction(39, 100), Fraction(61, 100), Fraction(45, 100))
    for bloom_bit, rate in enumerate((params.p_star, params.q_star)):
        memo = params.f / 2 + (1 - params.f) * bloom_bit
        assert rate == memo * params.q + (1 - memo) * params.p
    assert params.q_star - params.p_star == (1 - params.f) * (params.q - params.p)
    loose = Params(8, 2, 128, Fraction(1, 4), Fraction(3, 4), Fraction(0))
    assert (loose.p_star, loose.q_star) == (Fraction(1, 4), Fraction(3, 4))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("4,2,3,0.5,0.50,0.5", "line 2: p and q must differ, or a report says nothing, got 1/2 for both"),
        ("4,2,3,0.25,0.75,1", "line 2: f must be below 1, or a report says nothing, got 1"),
        ("4,2,3,-0.25,0.75,0", "line 2: p must be a number from 0 to 1, got '-0.25'"),
        ("4,2,3,0.25,1.75,0", "line 2: q must be a number from 0 to 1, got '1.75'"),
        ("4,2,3,0.25,0.75,1e999", "line 2: f must be a number from 0 to 1, got '1e999'"),
        ("4,2,3,0.25,0.75,nan", "line 2: f must be a number from 0 to 1, got 'nan'"),
        ("4,2,3,0.25,0.75,1/2", "line 2: f must be a number from 0 to 1, got '1/2'"),
        ("4,2,3,0.25,0.75,1_0e-2", "line 2: f must be a number from 0 to 1, got '1_0e-2'"),
        ("0,2,3,0.25,0.75,0", "line 2: k must be a whole number from 1 to 1,000,000,000,000, got '0'"),
        ("4097,2,3,0.25,0.75,0", "line 2: k must be from 1 to 4096, got 4097"),
        ("4.5,2,3,0.25,0.75,0", "line 2: k must be a whole number from 1"),
        ("4,5,3,0.25,0.75,0", "line 2: h must be from 1 to 4, got 5"),
        ("64,17,3,0.25,0.75,0", "line 2: h must be from 1 to 16, got 17"),
        ("4,2,0,0.25,0.75,0", "line 2: m must be a whole number from 1"),
        ("4,2,16385,0.25,0.75,0", "line 2: m must be from 1 to 16384, got 16385"),
        ("4096,2,16384,0.25,0.75,0", "line 2: m times k must be at most 4194304, got 16384 times 4096"),
        ("4,2,3,0.25,0.75", "line 2: must have 6 cells, as the header has, got 5"),
        ("4,2,3,0.25,0.75,0\n4,2,3,0.25,0.75,0", "line 3: must have one row below the header, got 2"),
        ("", "line 1: must have one row below the header, got 0"),
    ],
)
def test_parameters_that_cannot_be_are_refused(row: str, message: str, tmp_path: Path) -> None:
    assert message in refusal(tmp_path, "params", f"k,h,m,p,q,f\n{row}\n")


def test_a_parameter_file_needs_each_column_once(tmp_path: Path) -> None:
    needed = "line 1: must be a header with the columns k,h,m,p,q,f; "
    assert refusal(tmp_path, "params", "k,h,m,p,q\n4,2,3,0.25,0.75\n") == f"{needed}f is there 0 times"
    assert refusal(tmp_path, "params", "k,k,h,m,p,q,f\n4,4,2,3,0.25,0.75,0\n") == f"{needed}k is there 2 times"
    assert refusal(tmp_path, "params", "4,2,3,0.25,0.75,0\n") == f"{needed}k is there 0 times"


def test_parameters_made_in_code_are_checked_too() -> None:
    with pytest.raises(InvalidParameter, match="f must be below 1"):
        Params(4, 2, 3, Fraction(0), Fraction(1), Fraction(1))


# Counts.


def test_counts_have_a_row_a_cohort(tmp_path: Path) -> None:
    counts = read_counts(written(tmp_path, COUNTS), PARAMS)
    assert counts.dtype == np.int64
    assert counts.tolist() == [[10, 1, 2, 3, 10], [0, 0, 0, 0, 0], [7, 7, 0, 0, 1]]
    assert "".join(f"{line}\n" for line in count_lines(counts)) == COUNTS


def test_a_whole_number_may_be_written_as_r_does(tmp_path: Path) -> None:
    text = COUNTS.replace("10,1,2,3,10", '1e+05, 1,"2",3.0,100000')
    assert read_counts(written(tmp_path, text), PARAMS)[0].tolist() == [100_000, 1, 2, 3, 100_000]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0,0,0,0,0\n", "", "line 2: must not be the last: a row for each of m = 3 cohorts is needed"),
        ("0,0,0,0,0\n", "0,0,0,0,0\n" * 2, "line 4: must not be there: a row for each of m = 3 cohorts came before"),
        ("0,0,0,0,0", "0,0,0,0", "line 2: must have 5 cells, N and k = 4 counts, got 4"),
        ("0,0,0,0,0", "0,0,0,0,0,0", "line 2: must have 5 cells, N and k = 4 counts, got 6"),
        ("7,7,0,0,1", "7,8,0,0,1", "line 3: the count of bit 0 must be at most N = 7, got 8"),
        ("7,7,0,0,1", "7,7,0,0,-1", "line 3: the count of bit 3 must be a whole number from 0"),
        ("7,7,0,0,1", "-7,7,0,0,1", "line 3: N must be a whole number from 0 to 1,000,000,000,000, got '-7'"),
        ("7,7,0,0,1", "7,7,0,0,0.5", "line 3: the count of bit 3 must be a whole number from 0"),
        ("7,7,0,0,1", "7,7,0,0,", "line 3: the count of bit 3 must be a whole number from 0"),
        ("7,7,0,0,1", "7,7,0,0,NA", "got 'NA'"),
        ("7,7,0,0,1", "1e13,7,0,0,1", "line 3: N must be a whole number from 0 to 1,000,000,000,000, got '1e13'"),
        ("7,7,0,0,1", "9" * 5000 + ",7,0,0,1", "line 3: N must be a whole number from 0 to"),
        ("7,7,0,0,1", "\u0667,7,0,0,1", "line 3: N must be a whole number from 0 to"),
        ("10,1", "N,bit0,bit1,bit2,bit3\n10,1", "line 1: N must be a whole number from 0"),
    ],
)
def test_counts_that_cannot_be_are_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert message in refusal(tmp_path, "counts", COUNTS.replace(old, new, 1))


# Maps and candidates.


def test_the_map_is_the_vectors(tmp_path: Path) -> None:
    vector = VECTORS["map"]
    params = read_params(written(tmp_path, vector["params"]))
    values = read_candidates(written(tmp_path, vector["candidates"]))
    assert "".join(f"{map_line(value, params)}\n" for value in values) == vector["map"]
    read, bits = read_map(written(tmp_path, vector["map"]), params)
    assert list(read) == values == ["abc", "v1", "", 'a,b "c"']
    assert bits.dtype == np.int64
    assert bits.shape == (4, 4, 2)
    assert bits[0].tolist() == [[6, 13], [3, 12], [2, 5], [13, 7]]


def test_repeated_bits_of_a_map_are_kept(tmp_path: Path) -> None:
    values, bits = read_map(written(tmp_path, MAP), PARAMS)
    assert values == ("a", "b")
    assert bits.tolist() == [[[0, 1], [0, 1], [0, 0]], [[3, 2], [3, 2], [3, 2]]]


def test_the_java_map_is_another_one(tmp_path: Path) -> None:
    params = read_params(written(tmp_path, VECTORS["map"]["params"]))
    assert map_line("abc", params).startswith("abc,7,14,")
    assert map_line("abc", params, java=True).startswith("abc,14,13,")


@given(values=st.lists(st.text(max_size=20), min_size=1, max_size=5, unique=True), java=st.booleans())
@example(values=['"', "a\r", "\n", ",", "", "\x00", "\ufeff"], java=False)
@settings(deadline=None, max_examples=scaled(10, 500))
def test_any_values_survive_a_map(values: list[str], java: bool) -> None:
    assume(not values[0].startswith("\ufeff"))  # at a file's beginning it is a byte order mark
    with TemporaryDirectory() as directory:
        path = written(Path(directory), "".join(f"{map_line(value, PARAMS, java=java)}\n" for value in values))
        assert list(read_map(path, PARAMS)[0]) == values


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("a,1,2,5,6,9,9", "a,0,2,5,6,9,9", "line 1: an index must be a whole number from 1 to m k = 12, got '0'"),
        ("a,1,2,5,6,9,9", "a,1,2,5,6,9,13", "line 1: an index must be a whole number from 1 to m k = 12, got '13'"),
        ("a,1,2,5,6,9,9", "a,1,-2,5,6,9,9", "line 1: an index must be a whole number from 1 to m k = 12, got '-2'"),
        ("a,1,2,5,6,9,9", "a,1,x,5,6,9,9", "line 1: an index must be a whole number from 1 to m k = 12, got 'x'"),
        ("a,1,2,5,6,9,9", "a,1,1.5,5,6,9,9", "got '1.5'"),
        (
            "a,1,2,5,6,9,9",
            "a,1,2,3,6,9,9",
            "line 1: must have 1 to h = 2 different indices from 1 to 4, those of cohort 0",
        ),
        ("b,4,3", "b,4,3,3", "line 2: must have at most 6 indices, for 3 cohorts and 2 hashes each, got 7"),
        (",12,11\n", ",\n", "indices from 9 to 12, those of cohort 2, got 0"),
        (",12,11\n", "\n", "indices from 9 to 12, those of cohort 2, got 0"),
        ("b,", '"', "line 2: must be CSV: unexpected end of data"),
        ("b,", '"b"b,', "line 2: must be CSV: ',' expected after '\"'"),
        ("b,", "b\rb,", "line 2: must have 1 to h = 2 different indices from 1 to 4, those of cohort 0, got 0"),
        ("b,", "b" * 70_000 + ",", "line 2: a value must have at most 65536 characters, got 70000"),
    ],
)
def test_maps_that_cannot_be_are_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert message in refusal(tmp_path, "map", MAP.replace(old, new, 1))


def test_a_value_of_several_lines_does_not_shift_the_lines_that_follow(tmp_path: Path) -> None:
    text = '"two\nlines",1,2,5,6,9,9\nb,4,3,8,7,12,99\n'
    assert refusal(tmp_path, "map", text).startswith("line 3: an index must be")


def test_candidates_are_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeffa\r\n b \n\nc,\u2028\u0085d\n\ufeff")
    assert read_candidates(path) == ["a", " b ", "", "c,\u2028\u0085d", "\ufeff"]


def test_of_a_candidate_that_comes_again_the_first_row_counts(tmp_path: Path) -> None:
    again: list[int] = []
    assert read_candidates(written(tmp_path, "a\nb\na\n\n\n"), again.append) == ["a", "b", ""]
    values, bits = read_map(written(tmp_path, MAP + "a,1,1,5,5,9,9\n"), PARAMS, again.append)
    assert (values, again) == (("a", "b"), [3, 5, 3])
    assert bits.tolist() == read_map(written(tmp_path, MAP), PARAMS)[1].tolist()


@pytest.mark.parametrize("reader", ["map", "candidates"])
def test_candidates_that_come_again_without_end_are_refused(
    reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(google_rappor, "CANDIDATES_MAX", 3)
    again = {"map": MAP.splitlines()[0], "candidates": "a"}[reader]
    assert refusal(tmp_path, reader, f"{again}\n" * 6).startswith("line 5: must not be there: 3 candidates before it")


def google_map(rows: Sequence[tuple[str, Sequence[Sequence[int]]]], rng: random.Random) -> str:
    """Write a map as google/rappor's tools and R do: what collides is left out, in one of their ways."""
    text, blank = "", rng.choice(["", "NA", " "])
    end, all_quoted = rng.choice(["\n", "\r\n", "\r"]), rng.random() < 0.3
    sets, short, shuffled = rng.random() < 0.8, rng.random() < 0.5, rng.random() < 0.3
    for value, cohorts in rows:
        cells: list[object] = []
        for cohort, bits in enumerate(cohorts):
            kept = list(dict.fromkeys(bits)) if sets else bits
            cells += [cohort * 4 + bit + 1 for bit in kept]
        if shuffled:
            rng.shuffle(cells)
        cells += [] if short else [blank] * (6 - len(cells))
        line = io.StringIO()
        csv.writer(line, quoting=csv.QUOTE_ALL if all_quoted else csv.QUOTE_NONNUMERIC, lineterminator=end).writerow(
            [value, *cells]
        )
        text += line.getvalue() + rng.choice(["", "", end, f"  {end}"])
        if rng.random() < 0.1:
            text += line.getvalue()
    return text


def as_r_may(number: int, rng: random.Random) -> str:
    """Write a whole number in one of the ways that R writes and reads it."""
    rounded = f"{number:.0e}" if number and number % 10 ** (len(str(number)) - 1) == 0 else f"{number}.0"
    return rng.choice(["{}", " {}", "{} ", '"{}"', "+{}"]).format(rng.choice([str(number), rounded]))


def test_counts_and_parameters_as_r_writes_them_are_read_as_clean_ones(tmp_path: Path) -> None:
    rng = random.Random(12)
    for _ in range(scaled(60, 3_000)):
        counts = [[10**6, *(rng.choice([0, 7, 100, 20_000, rng.randrange(10**6)]) for _ in range(4))] for _ in range(3)]
        end = rng.choice(["\n", "\r\n", "\r", "\n\n", "\r\n  \r\n"])
        text = rng.choice(["", end]) + "".join(",".join(as_r_may(n, rng) for n in row) + end for row in counts)
        assert read_counts(written(tmp_path, text), PARAMS).tolist() == counts
        names = rng.choice(["k,h,m,p,q,f", '"k","h","m","p","q","f"', "k, h, m, p, q, f"])
        row = ",".join([*(as_r_may(n, rng) for n in (4, 2, 3)), *(rng.choice(pair) for pair in PROBABILITIES)])
        assert read_params(written(tmp_path, f"{names}{end}{row}{rng.choice(['', end])}")) == PARAMS


PROBABILITIES = ((".25", "0.25", "2.5e-01"), ("0.75", '"0.75"', " .750"), ("0.5", "5e-1", "+.5"))


def test_maps_as_google_rappor_writes_them_are_read_as_clean_ones(tmp_path: Path) -> None:
    rng, values = random.Random(11), ["a", "größer", "x, y", "two\rlines", 'a "\r" b', 'say "a"', " b ", "NA", "7"]
    for _ in range(scaled(60, 3_000)):
        rows = [
            (f"{rng.choice(values)}{number}", cohorts)
            for number in range(rng.randrange(1, 6))
            for cohorts in [[[rng.randrange(4) for _ in range(2)] for _ in range(3)]]
        ]
        read, bits = read_map(written(tmp_path, google_map(rows, rng)), PARAMS)
        assert list(read) == [value for value, _ in rows]
        sets = [[set(of_cohort) for of_cohort in cohorts] for cohorts in bits.tolist()]
        assert sets == [[set(of_cohort) for of_cohort in cohorts] for _, cohorts in rows]


def test_candidates_that_cannot_be_are_refused(tmp_path: Path) -> None:
    assert "carriage return" in refusal(tmp_path, "candidates", "a\rb\rc\n")
    assert refusal(tmp_path, "candidates", "x" * 65_537).startswith("line 1: a value must have at most 65536")


# Reports.


def test_reports_are_read_or_refused_row_by_row(tmp_path: Path) -> None:
    vector = VECTORS["reports"]
    params = read_params(written(tmp_path, vector["params"]))
    path = written(tmp_path, "".join(f"{row['row']}\n" for row in vector["rows"]))
    rows = list(read_reports(path, params))
    for line, (expected, row) in enumerate(zip(vector["rows"][1:], rows, strict=True), start=2):
        assert row.line == line
        if isinstance(row, Refused):
            assert row.reason == expected["refused"], expected["name"]
        else:
            bits = [bit for bit in range(params.k) if row.bits >> bit & 1]
            assert (row.cohort, bits) == (expected["cohort"], expected["bits"]), expected["name"]
    counts = sum_reports((row for row in rows if isinstance(row, Report)), params)
    assert "".join(f"{line}\n" for line in count_lines(counts)) == vector["counts"]


def test_many_reports_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google_rappor, "_REPORTS_AT_ONCE", 64)
    rng = random.Random(4)
    params = Params(37, 2, 5, Fraction(0), Fraction(1), Fraction(0))
    reports = [Report(line, "c", rng.randrange(4), rng.getrandbits(37)) for line in range(1000)]
    counts = sum_reports(reports, params)
    for cohort in range(5):
        own = [report.bits for report in reports if report.cohort == cohort]
        assert counts[cohort].tolist() == [len(own), *(sum(bits >> bit & 1 for bits in own) for bit in range(37))]
    assert counts[4].sum() == 0


def test_reports_without_rows_count_nothing(tmp_path: Path) -> None:
    assert list(read_reports(written(tmp_path, "client,cohort,irr\n"), PARAMS)) == []


@pytest.mark.parametrize("name", ["client", "cohort", "irr"])
def test_reports_need_their_columns(name: str, tmp_path: Path) -> None:
    message = refusal(tmp_path, "reports", REPORTS.replace(name, "other"))
    assert message == f"line 1: must be a header with the columns client,cohort,irr; {name} is there 0 times"


# All files.


@pytest.mark.parametrize("reader", READERS)
class TestEveryFile:
    def same(self, reader: str, tmp_path: Path, content: bytes) -> None:
        """Hold that other bytes read like the plain file."""
        text, read = READERS[reader]
        plain, other = written(tmp_path, text, "plain"), written(tmp_path, content, "other")
        assert repr(read(plain)) == repr(read(other))

    def test_gzip_is_known_by_its_content(self, reader: str, tmp_path: Path) -> None:
        text = READERS[reader][0].encode()
        self.same(reader, tmp_path, gzip.compress(text))
        self.same(reader, tmp_path, gzip.compress(text[:7]) + gzip.compress(text[7:]))

    def test_a_byte_order_mark_and_other_line_ends_change_nothing(self, reader: str, tmp_path: Path) -> None:
        text = READERS[reader][0].encode()
        self.same(reader, tmp_path, b"\xef\xbb\xbf" + text)
        self.same(reader, tmp_path, text.replace(b"\n", b"\r\n"))
        if reader != "candidates":  # which R does not read
            self.same(reader, tmp_path, text.replace(b"\n", b"\r"))
        self.same(reader, tmp_path, text.rstrip(b"\n"))

    def test_an_empty_file_is_refused(self, reader: str, tmp_path: Path) -> None:
        for content in (b"", gzip.compress(b""), b"\xef\xbb\xbf"):
            assert refusal(tmp_path, reader, content).endswith("got an empty file")

    def test_what_is_not_utf_8_is_refused_with_its_line(self, reader: str, tmp_path: Path) -> None:
        first, _, rest = READERS[reader][0].partition("\n")
        content = f"{first}\n".encode() + b"ab\xe9" + rest.encode()
        assert refusal(tmp_path, reader, content) == "line 2: must be UTF-8, got byte 0xe9 as byte 3"
        assert "must be UTF-8" in refusal(tmp_path, reader, f"{first}\n{rest}".encode("utf-16"))

    def test_broken_gzip_is_refused(self, reader: str, tmp_path: Path) -> None:
        packed = gzip.compress(READERS[reader][0].encode())
        for damaged in (packed[:-9], packed[:12], packed[:2], packed[:-8] + bytes(8), b"\x1f\x8b\x07" + packed[3:]):
            assert "must be whole gzip" in refusal(tmp_path, reader, damaged)

    def test_a_bomb_is_not_inflated(self, reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(google_rappor, "LINE_BYTES_MAX", 1 << 20)
        assert "must have at most 1,048,576 bytes" in refusal(tmp_path, reader, gzip.compress(bytes(5_000_000)))
        for limit in ("PARAMS_BYTES_MAX", "FILE_BYTES_MAX", "REPORTS_BYTES_MAX"):
            monkeypatch.setattr(google_rappor, limit, 3)
        assert "a file may hold 3 bytes, inflated" in refusal(tmp_path, reader, READERS[reader][0])

    @given(data=st.data())
    @settings(deadline=None, max_examples=scaled(12, 500))
    def test_garbage_is_refused_in_words(self, reader: str, data: st.DataObject) -> None:
        text, read = READERS[reader]
        content = data.draw(st.one_of(st.binary(max_size=200), spoiled(text.encode())), label="content")
        if data.draw(st.booleans(), label="gzip"):
            content = gzip.compress(content)
            if data.draw(st.booleans(), label="damaged"):
                content = data.draw(spoiled(content), label="packed")
        with TemporaryDirectory() as directory:
            path = written(Path(directory), content)
            with suppress(BadFile):
                read(path)


@st.composite
def spoiled(draw: Any, content: bytes) -> bytes:
    """Some bytes of a good file replaced by others."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        end = draw(st.integers(start, min(len(content), start + 6)))
        token = st.sampled_from(
            [b"", b",", b'"', b"\n", b"\r", b"\0", b"-", b"e9", b"1e999", b"\xff", b"999999999999999"]
        )
        content = content[:start] + draw(st.one_of(token, st.binary(max_size=4))) + content[end:]
    return content


def test_more_candidates_than_memory_allows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google_rappor, "INDICES_MAX", 11)
    assert refusal(tmp_path, "map", MAP) == "line 2: must not be there: a map may hold 11 indices"
    monkeypatch.setattr(google_rappor, "CANDIDATES_MAX", 1)
    assert refusal(tmp_path, "candidates", "a\nb\n") == "line 2: must not be there: at most 1 candidates can be read"


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_params(tmp_path / "none.csv")


# Bounds, held against what a process of its own takes.

BOUNDED = """
import resource, sys, time
from pathlib import Path
from tests.aggregator.test_rappor_files import READERS, BadFile
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # code that fails takes no more of the machine
size = lambda: next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = size()
for line in sys.stdin:
    name, path = line.split()
    open("/proc/self/clear_refs", "w").write("5")
    before, began, said = size(), time.process_time(), "read"
    try:
        READERS[name][1](Path(path))
    except BadFile as error:
        said = str(error)
    print(size() - before, time.process_time() - began, said, flush=True)
"""
GROWTH_KB_MAX, PROCESSOR_S_MAX = scaled(100, 200) * 1024, scaled(5, 60)
TIMES = scaled(1, 10)
"""Once, what has a bound is just above it."""
MOST = (("candidates", "long values"), ("map", "a row over many lines"), ("counts", "a row of many cells"))
TAKEN = (("candidates", "blank lines"), ("candidates", "high exponents"))
"""One value that comes again and again is that one value, up to a bound."""
HOSTILE: dict[str, Callable[[], bytes]] = {
    "a row over many lines": lambda: b'"\n' + b'","\n' * (1_100_000 * TIMES),
    "a row of many cells": lambda: b"," * (1_000_000 * TIMES),
    "a line without end": lambda: b"0" * (5_000_000 * TIMES),
    "returns within quotes": lambda: b'"' + b"\r" * (1_000_000 * TIMES),
    "blank lines": lambda: b"\n" * (250_000 * TIMES),
    "quotes": lambda: b'"' * (1_000_000 * TIMES),
    "long values": lambda: b"".join(b"%d%b\n" % (number, b"a" * 60_000) for number in range(scaled(1_200, 3_000))),
    "no text": lambda: b"\xff" * 1_000_000,
    "high exponents": lambda: b"1e999999999,2,3,4,5\n" * 100_000,
}


def test_hostile_files_are_refused_in_words_within_bounds(tmp_path: Path) -> None:
    paths = [
        written(tmp_path, gzip.compress(content(), 1), f"{number}.gz")
        for number, content in enumerate(HOSTILE.values())
    ]
    asked = [(reader, name, path) for reader in READERS for name, path in zip(HOSTILE, paths, strict=True)]
    if not SOAK:  # each file once: the ones that a reader takes the most of by it, the others by turns
        most = [name for _, name in MOST]
        turns = [one for place, one in enumerate(asked) if place % len(READERS) == 2 and one[1] not in most]
        asked = [one for one in asked if one[:2] in MOST] + turns
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED], input="".join(f"{reader} {path}\n" for reader, _, path in asked),
        text=True, capture_output=True, check=True, timeout=250, env=ENVIRONMENT,
    )  # fmt: skip
    told = [line.split(" ", 2) for line in done.stdout.splitlines()]
    for (reader, name, path), (grown_kb, took_s, said) in zip(asked, told, strict=True):
        assert int(grown_kb) < GROWTH_KB_MAX, (reader, name)
        assert float(took_s) < PROCESSOR_S_MAX, (reader, name)
        assert said.startswith(f"{path}: line ") or (said == "read" and (reader, name) in TAKEN), (reader, name)
        assert len(said) < 300
