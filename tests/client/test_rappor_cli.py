"""`dither rappor` as people call it: what they have from google/rappor goes in, and comes out decoded."""

import argparse
import csv
import gzip
import hashlib
import io
import json
import os
import random
import re
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stderr
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dither.cli import main
from dither_aggregator.commands import rappor
from dither_aggregator.google_rappor import Params
from dither_shared.errors import DitherError
from tests.support.aggregators import dither
from tests.support.soaking import scaled

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "rappor.json").read_text(encoding="utf-8"))
K, H, M = 16, 2, 32
SHARES = {"often": 0.5, "seldom": 0.2, "größer, auch": 0.1}
LISTED = [*SHARES, *(f"nobody {number}" for number in range(20))]


def digest(value: str, cohort: int) -> list[int]:
    return [byte % K for byte in hashlib.md5(cohort.to_bytes(4, "big") + value.encode()).digest()[:H]]


def bits_of(value: str, cohort: int) -> set[int]:
    return set(digest(value, cohort))


def counts_text(f: float, n: int = 4000, seed: int = 1) -> str:
    """Draw counts of n reports a cohort from their law; what is left of the shares are strings with one report each."""
    rng = np.random.default_rng(seed)
    rows = []
    for cohort in range(M):
        numbers = rng.multinomial(n, [*SHARES.values(), 1 - sum(SHARES.values())])
        ones = rng.multinomial(numbers[-1], [1 / K] * K) * H  # the unlisted set each bit about as often
        for value, number in zip(SHARES, numbers, strict=False):
            for bit in bits_of(value, cohort):
                ones[bit] += number
        memo = f / 2 + (1 - f) * np.array([[0], [1]])
        zero, one = (memo * 0.75 + (1 - memo) * 0.25).ravel()
        ones = np.minimum(ones, n)
        rows.append([n, *(rng.binomial(ones, one) + rng.binomial(n - ones, zero)).tolist()])
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def map_text(values: Sequence[str]) -> str:
    """Return a map, worked out without the code under test."""
    text = io.StringIO()
    for value in values:
        csv.writer(text).writerow([value, *(c * K + bit + 1 for c in range(M) for bit in digest(value, c))])
    return text.getvalue()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with the files of a collection, as google/rappor's tools write them."""
    (tmp_path / "params.csv").write_text(f"k,h,m,p,q,f\n{K},{H},{M},0.25,0.75,0.5\n")
    (tmp_path / "counts.csv").write_text(counts_text(0.5))
    (tmp_path / "map.csv").write_bytes(map_text(LISTED).encode())
    return tmp_path


def decoding(directory: Path, *options: str, **other: Path) -> Sequence[object]:
    named = {name: other.get(name, directory / f"{name}.csv") for name in ("params", "counts", "map")}
    return ["rappor", "decode", *(word for name, path in named.items() for word in (f"--{name}", path)), *options]


def decoded(directory: Path, **other: Path) -> dict[str, Any]:
    done = dither(*decoding(directory, "--json", **other))
    assert (done.returncode, done.stderr) == (0, "")
    document: dict[str, Any] = json.loads(done.stdout, parse_constant=pytest.fail)
    return document


def refused(*arguments: object) -> str:
    """Run a command that must refuse its input: exit code 2, nothing on stdout, no traceback."""
    done = dither("rappor", *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr.count("\n") == 1
    return done.stderr


def ends(*arguments: object) -> str:
    """Run a command in this process; return what it refuses its input with, empty when it does not."""
    parser = argparse.ArgumentParser()
    rappor.add_arguments(parser)
    try:
        assert rappor.run(parser.parse_args([str(word) for word in arguments])) in (0, 1)
    except DitherError as error:
        return str(error)
    return ""


def test_each_command_explains_itself_with_an_example() -> None:
    for action in ("decode", "hash-candidates", "sum-bits"):
        shown = dither("rappor", action, "--help")
        assert shown.returncode == 0
        assert f"example: dither rappor {action} --params params.csv" in " ".join(shown.stdout.split())
    assert "ACTION" in dither("rappor").stderr


def test_decoding_finds_what_is_there_and_says_so_in_one_document(directory: Path) -> None:
    document = decoded(directory)
    assert list(document) == ["rows", "summary"]
    assert [row["value"] for row in document["rows"]] == LISTED
    keys = ["value", "estimate", "std_error", "lower", "upper", "proportion"]
    keys += ["significant", "significant_holm", "group"]
    for row in document["rows"]:
        assert list(row) == keys
        assert None not in row.values()
        truth = SHARES.get(row["value"], 0.0)
        assert abs(row["estimate"] - truth) < 5 * row["std_error"]
        assert row["significant_holm"] is (truth > 0)
    assert document["summary"]["n"] == 4000 * M
    assert {"chi_square", "degrees_of_freedom", "seconds", "sentences"} <= document["summary"].keys()


def test_without_a_permanent_stage_it_decodes_too(directory: Path) -> None:
    (directory / "params.csv").write_text(f"f,q,p,m,h,k\n0,0.75,0.25,{M},{H},{K}\n")
    (directory / "counts.csv").write_text(counts_text(0))
    assert {row["value"] for row in decoded(directory)["rows"] if row["significant_holm"]} == set(SHARES)


def test_gzip_decodes_to_the_same(directory: Path) -> None:
    packed = {}
    for name in ("params", "counts", "map"):
        packed[name] = directory / f"{name}.anything"
        packed[name].write_bytes(gzip.compress((directory / f"{name}.csv").read_bytes()))
    assert decoded(directory, **packed)["rows"] == decoded(directory)["rows"]


def test_the_table_begins_with_what_was_found(directory: Path) -> None:
    done = dither(*decoding(directory))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("128,000 reports, 23 candidates, ")
    assert [line.split("  ")[1] for line in lines[3:6]] == list(SHARES)
    assert all(line.endswith("surely") for line in lines[3:6])
    assert max(map(len, lines)) <= 100
    assert "more that were not found (--all prints them)" in done.stdout
    everything = dither(*decoding(directory, "--all")).stdout
    assert all(f"  {value}  " in everything for value in LISTED)


def test_the_share_of_false_ones_is_what_was_asked_for(directory: Path) -> None:
    found = {}
    for share in ("0.001", "0.05", ".5"):
        document = json.loads(dither(*decoding(directory, "--json", "--false-share", share)).stdout)
        assert document["summary"]["false_share"] == float(share)
        found[share] = {row["value"] for row in document["rows"] if row["significant"]}
    assert {*SHARES} <= found["0.001"] <= found["0.05"] <= found[".5"]
    table = " ".join(dither(*decoding(directory, "--false-share", "0.1")).stdout.split())
    assert "at most 10 % of those named are expected to be false" in table
    for share in ("0", "0.0001", "0.6", "1", "nan", "-.1", "5%"):
        assert "must be a number from 0.001 to 0.5" in dither(*decoding(directory, f"--false-share={share}")).stderr


def test_only_what_is_significant_is_found(directory: Path) -> None:
    """A candidate may be sure at 95 % and not be named: less may be false than what that verdict is by."""
    document = decoded(directory)
    row = next(row for row in document["rows"] if row["value"] == "often")
    row.update(significant=False, significant_holm=True)
    lines = list(rappor._table(document, False))
    found = sum(each["significant"] for each in document["rows"])
    assert f", {found} of them found" in lines[0]
    assert sum(line.endswith(("surely", "yes")) for line in lines[3:13]) == found
    assert not next(line for line in lines if line.startswith("  often ")).endswith("surely")


def test_candidates_with_equal_bits_are_shown_as_one(directory: Path) -> None:
    rows = (directory / "map.csv").read_text(encoding="utf-8").splitlines()
    twins = [rows[0].replace("often", name) for name in ("twin", "t" * 50, "\x1b[2J\u65e5\u672c" * 9)]
    (directory / "map.csv").write_text("".join(f"{row}\n" for row in [*rows, *twins]), encoding="utf-8")
    groups = {row["value"]: row["group"] for row in decoded(directory)["rows"]}
    assert [groups[name] for name in ("often", "twin", "seldom")] == ["often", "often", ""]
    lines = dither(*decoding(directory)).stdout.splitlines()
    assert lines[3].startswith("  often  ")
    assert lines[4].startswith("    together with twin, ttttttttttttttttttttttttttttt..., \\u{1b}[2J")
    assert max(map(len, lines)) <= 100


def test_a_list_that_does_not_fit_is_a_sentence(directory: Path) -> None:
    (directory / "map.csv").write_text(map_text([f"else {number}" for number in range(30)]))
    document = decoded(directory)
    assert document["summary"]["sentences"]
    flat = " ".join(dither(*decoding(directory)).stdout.split())
    assert all(" ".join(sentence.split()) in flat for sentence in document["summary"]["sentences"])


def test_any_terminal_can_show_the_table(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", terminal)
    assert main([str(word) for word in decoding(directory)]) == 0
    terminal.seek(0)
    assert "gr\\xf6\\xdfer, auch" in terminal.read()


def test_the_map_is_in_utf_8_whatever_the_terminal_takes(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "candidates.txt").write_text("".join(f"{value}\n" for value in LISTED), encoding="utf-8")
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr("sys.stdout", terminal)
    hashing = ["rappor", "hash-candidates", "--params", f"{directory}/params.csv", f"{directory}/candidates.txt"]
    assert main(hashing) == 0
    terminal.seek(0)
    assert (terminal.encoding, terminal.read()) == ("utf-8", (directory / "map.csv").read_text(encoding="utf-8"))


def test_the_map_of_candidates_is_the_vectors(tmp_path: Path) -> None:
    vector = VECTORS["map"]
    for name in ("params", "candidates"):
        (tmp_path / name).write_text(vector[name], encoding="utf-8")
    arguments = ["rappor", "hash-candidates", "--params", tmp_path / "params", tmp_path / "candidates"]
    done = dither(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, vector["map"], "")
    java = dither(*arguments, "--java")
    assert java.returncode == 0
    assert java.stdout.startswith("abc,14,13,")
    (tmp_path / "candidates").write_text("a\n b\n")
    done = dither(*arguments)
    assert done.stdout.splitlines()[1].startswith(" b,")
    assert done.stderr == "1 of 2 values have space around them; it is part of the value\n"


def test_hashes_that_a_client_does_not_have_are_refused(tmp_path: Path) -> None:
    (tmp_path / "params").write_text("k,h,m,p,q,f\n512,9,4,0.25,0.75,0.5\n")
    (tmp_path / "candidates").write_text("a\n")
    arguments = ["hash-candidates", "--params", tmp_path / "params", tmp_path / "candidates"]
    assert "k must be from 1 to 256 for the Python and C++ hash, got 512" in refused(*arguments)
    assert "h must be from 1 to 8 for the Java hash, got 9" in refused(*arguments, "--java")


def test_bits_are_summed_and_bad_rows_are_named(tmp_path: Path) -> None:
    vector = VECTORS["reports"]
    (tmp_path / "params.csv").write_text(vector["params"])
    path = tmp_path / "reports.csv"
    path.write_text("".join(f"{row['row']}\n" for row in vector["rows"]), encoding="utf-8")
    done = dither("rappor", "sum-bits", "--params", tmp_path / "params.csv", path)
    assert (done.returncode, done.stdout) == (1, vector["counts"])
    lines = done.stderr.splitlines()
    bad = [line for line, row in enumerate(vector["rows"], start=1) if "refused" in row]
    assert [line.split(" refused: ")[0] for line in lines[:-1]] == [f"{path}: line {line}:" for line in bad]
    assert lines[-1] == "9 rows refused, 5 reports counted"
    assert not any("c2" in line or "c, 4" in line for line in lines)


def test_reports_are_summed_hashed_and_decoded_from_end_to_end(directory: Path) -> None:
    rng = random.Random(2)
    rows = ["cohort,irr,client,prr"]
    for client in range(20_000):
        cohort = rng.randrange(M)
        value = rng.choices([*SHARES], [*SHARES.values()])[0]
        pattern = bits_of(value, cohort)
        text = "".join(str(int(rng.random() < (0.75 if bit in pattern else 0.25))) for bit in reversed(range(K)))
        rows.append(f"{cohort},{text},c{client},")
    (directory / "reports.csv").write_text("\n".join(rows) + "\n")
    (directory / "params.csv").write_text(f"k,h,m,p,q,f\n{K},{H},{M},0.25,0.75,0\n")
    done = dither("rappor", "sum-bits", "--params", directory / "params.csv", directory / "reports.csv")
    assert (done.returncode, done.stderr) == (0, "")
    (directory / "counts.csv").write_text(done.stdout)
    document = decoded(directory)
    assert document["summary"]["n"] == 20_000
    for row in document["rows"]:
        truth = SHARES.get(row["value"], 0.0) / sum(SHARES.values())
        assert abs(row["estimate"] - truth) < 5 * row["std_error"]
        assert row["significant_holm"] is (truth > 0)


REFUSED = scaled(8_000, 20_000)
"""Kept, they would take more than 1 MB."""


def test_rows_that_are_refused_are_counted_and_not_kept(tmp_path: Path) -> None:
    """A file of 16 MB may inflate to billions of them."""
    path = tmp_path / "reports.csv"
    path.write_text("client,cohort,irr\n" + "a,b,c\n" * REFUSED, encoding="ascii")
    counted: Counter[str] = Counter()
    tracemalloc.start()
    try:
        with Path(os.devnull).open("w") as nothing, redirect_stderr(nothing):
            assert not any(
                rappor._accepted(path, Params(K, H, M, Fraction(1, 2), Fraction(3, 4), Fraction(1, 2)), counted)
            )
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert counted.total() == REFUSED


def test_files_that_cannot_be_used_are_refused_by_name_and_line(directory: Path) -> None:
    bad = directory / "bad.csv"
    damages: list[tuple[str, str | bytes, str]] = [
        (
            "counts",
            counts_text(0.5).replace("\n", "\n1,", 1),
            "line 2: must have 17 cells, N and k = 16 counts, got 18",
        ),
        ("map", "", "line 1: must hold rows of CSV, got an empty file"),
        ("map", "a" + ",1" * K * M + "\n", "line 1: must have at most 64 indices"),
        ("map", "a" + ",1" * H * M + "\n", "line 1: must have 1 to h = 2 different indices from 17 to 32"),
        ("map", b"\xff\xfe", "line 1: must be UTF-8, got byte 0xff as byte 1"),
        ("params", "k,h,m,p,q,f\n16,2,32,0.5,0.5,0\n", "line 2: p and q must differ"),
        ("params", "k,h,m,p,q,f\n16,2,32,0.25,0.75,1\n", "line 2: f must be below 1"),
        ("params", "k,h,m,p,q\n", "line 1: must be a header with the columns k,h,m,p,q,f; f is there 0 times"),
    ]
    for name, content, message in damages:
        bad.write_bytes(content.encode() if isinstance(content, str) else content)
        assert ends(*decoding(directory, **{name: bad})[1:]).startswith(f"{bad}: {message}")
    bad.write_text("a,1\n")
    assert refused(*decoding(directory, map=bad)[1:]).startswith(f"dither: {bad}: line 1: must have 1 to h = 2 ")
    assert "No such file" in refused(*decoding(directory, map=directory / "none.csv")[1:])
    bad.write_text("client,cohort\n1,2\n")
    shown = refused("sum-bits", "--params", directory / "params.csv", bad)
    assert f"{bad}: line 1: must be a header with the columns client,cohort,irr; irr is there 0 times" in shown


def google_map(values: Sequence[str]) -> str:
    """Return a map where a bit that two hashes set is there once, in rows that are shorter or filled up."""
    rows = ""
    for number, value in enumerate(values):
        cells = [str(c * K + bit + 1) for c in range(M) for bit in sorted(bits_of(value, c), reverse=True)]
        quoted = '"' + value.replace('"', '""') + '"'
        rows += ",".join([quoted, *cells]) + ("," * (H * M - len(cells)) if number % 2 else "") + "\r\n"
    return rows


def test_a_map_with_collisions_left_out_decodes_to_the_same(directory: Path) -> None:
    collided = [value for value in LISTED if any(len(bits_of(value, cohort)) < H for cohort in range(M))]
    assert len(collided) > 10
    path = directory / "google.csv"
    path.write_text(google_map([*LISTED, "often"]), encoding="utf-8")
    done = dither(*decoding(directory, "--json", map=path))
    assert (done.returncode, done.stderr) == (
        0,
        f"{path}: 1 value that came before, the first in line 24: passed over\n",
    )
    assert json.loads(done.stdout)["rows"] == decoded(directory)["rows"]


def findings(directory: Path, counts: np.ndarray[Any, Any], *options: str) -> list[str]:
    """Return what is found of counts that must not be decoded, as the table and the document say it."""
    path = directory / "found.csv"
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in counts.tolist()))
    done = dither(*decoding(directory, "--json", *options, counts=path))
    if done.returncode == 0:
        return []
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    assert list(document) == ["findings"]
    shown = dither(*decoding(directory, *options, counts=path))
    assert shown.returncode == 1
    said = " ".join(shown.stdout.split())
    assert all(" ".join(sentence.split()) in said for sentence in document["findings"])
    assert "95 % interval " not in shown.stdout
    found: list[str] = document["findings"]
    return found


def test_counts_that_cannot_be_are_a_finding_and_no_table(directory: Path) -> None:
    sound = np.array([[int(cell) for cell in row.split(",")] for row in counts_text(0.5).splitlines()])
    assert findings(directory, sound) == []
    rng = np.random.default_rng(5)
    n = sound[:, :1]
    garbage = {
        "no bit": np.hstack([n, 0 * sound[:, 1:]]),
        "all bits": np.hstack([n, np.broadcast_to(n, (M, K))]),
        "any number": np.hstack([n, rng.integers(0, 4001, (M, K))]),
        "flipped": np.hstack([n, n - sound[:, 1:]]),
        "too many": np.hstack([n, sound[:, 1:] + (n - sound[:, 1:]) // 5]),
        "fewer reports": np.hstack([n + 1500, sound[:, 1:]]),
        "one bit": np.where(np.arange(K + 1) == 3, 0, sound),
        "one cohort": np.where(np.arange(M)[:, None] == 2, np.hstack([n, 0 * sound[:, 1:]]), sound),
    }
    for name, counts in garbage.items():
        assert findings(directory, counts), name
    assert findings(directory, np.where(np.arange(K + 1) == 3, 4001, sound))[0].endswith("at most N = 4000, got 4001")
    (directory / "params.csv").write_text(f"k,h,m,p,q,f\n{K},{H},{M},0.5,0.75,0.5\n")
    assert findings(directory, sound)  # of another collection


def test_few_reports_and_unlisted_ones_are_no_finding(directory: Path) -> None:
    """False alarms are rarer than 1e-9 a file by the laws' proofs: none is seen in files of all sizes."""
    for n in (1, 2, 5, 20, 200):
        text = counts_text(0.5, n, seed=n)
        assert (
            findings(directory, np.array([[int(cell) for cell in row.split(",")] for row in text.splitlines()])) == []
        )
    for cohorts in (0, 1):  # no reports at all, or of one cohort alone
        sound = np.array([[int(cell) for cell in row.split(",")] for row in counts_text(0.5).splitlines()])
        sound[cohorts:] = 0
        assert findings(directory, sound) == []


def test_reports_that_few_clients_repeat_are_counted_as_that(directory: Path) -> None:
    """Every client sends 100,000 reports with one permanent noise: no finding where that is said."""
    rng = np.random.default_rng(6)
    rows = np.zeros((M, K + 1), dtype=np.int64)
    for client in range(2 * M):
        cohort = client % M
        bloom = np.isin(np.arange(K), list(bits_of("often", cohort)))
        memo = np.where(rng.random(K) < 0.5, rng.random(K) < 0.5, bloom)
        rows[cohort] += [100_000, *rng.binomial(100_000, np.where(memo, 0.75, 0.25))]
    assert findings(directory, rows)
    assert findings(directory, rows, "--repeats", "100000") == []


def test_one_client_may_have_sent_all_of_thirty_reports(directory: Path) -> None:
    """One client in 400 has a permanent noise by which all of its bits are set, whatever it says."""
    (directory / "params.csv").write_text("k,h,m,p,q,f\n8,2,2,0.5,1,0.75\n")
    (directory / "map.csv").write_text("listed,1,2,11,12\n")
    rows = np.array([[30] * 9, [0] * 9])
    assert findings(directory, rows) == []
    assert findings(directory, rows, "--repeats", "1")


def test_a_share_of_all_is_no_finding_by_its_last_digit(directory: Path) -> None:
    """Two bits tell nothing of other strings: they hold all or nothing, without an error."""
    (directory / "params.csv").write_text("k,h,m,p,q,f\n2,1,2,0.5,0.75,0.5\n")
    (directory / "map.csv").write_text("".join(f"{one},{1 + one % 2},{3 + one // 10}\n" for one in range(20)))
    assert findings(directory, np.array([[1084, 646, 667], [1810, 1071, 1082]])) == []


def test_more_unlisted_strings_than_reports_are_a_finding(directory: Path) -> None:
    (directory / "params.csv").write_text(f"k,h,m,p,q,f\n{K},{H},{M},0.25,0.75,0\n")
    n = np.full((M, 1), 4000)
    halves = np.hstack([n, np.random.default_rng(7).binomial(4000, 0.5, (M, K))])
    (found,) = findings(directory, halves, "--repeats", "1000000")  # so many that sums alone tell nothing
    assert re.search(r"strings that are not in the list would hold [4-6]\d\d% of the reports", found)


def test_spoiled_files_end_in_words(directory: Path) -> None:
    """Commands on files with some bytes replaced: an answer or a refusal, and no other exception."""
    rng = random.Random(7)
    rows = "".join(f"c,{rng.randrange(M)},{rng.getrandbits(K):0{K}b}\n" for _ in range(20))
    (directory / "reports.csv").write_text(f"client,cohort,irr\n{rows}")
    commands = {name: decoding(directory, "--json")[1:] for name in ("params.csv", "counts.csv", "map.csv")}
    commands["reports.csv"] = ["sum-bits", "--params", directory / "params.csv", directory / "reports.csv"]
    answered = 0
    for _ in range(80):
        name = rng.choice([*commands])
        whole = (directory / name).read_bytes()
        content = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(content))
            content[place : place + rng.randrange(3)] = rng.choice([b"", b",", b"\n", b'"', b"0", b"9", b"\xe9", b"-"])
        (directory / name).write_bytes(content)
        answered += not ends(*commands[name])
        (directory / name).write_bytes(whole)
    assert 8 < answered < 72
