"""google/rappor's files: parameters, counts, candidate maps and reports. CSV in UTF-8, plain or gzip.

    params     k,h,m,p,q,f            a header and one row; columns are found by name
               16,2,64,0.5,0.75,0.5
    counts     210,131,118, ...       no header; a row a cohort: its N reports, then how many set bit 0, 1, .. k - 1
    map        abc,7,14,20,29, ...    no header; a row a candidate: the value, then c k + bit + 1 for cohort c = 0, ..
                                      m - 1 and in each for hash 0, 1, .. h - 1. One that hashes into the same bit twice
                                      may leave cells empty, NA or out, and the order does not matter
    reports    client,cohort,irr      a header; these three are found by name and other columns ignored
               c1,0,0010000001000000  the leftmost character is bit k - 1, the rightmost bit 0

The map's row above is hashing.py's example: bits 6 and 13 of cohort 0 are 7 and 14. R writes 100000 as 1e+05, so a
whole number may be written in any way. Parameters are kept as exact fractions. If a candidate comes again, its first
row counts, and lines without content are passed over, both as google/rappor's own reader does it.

A file that breaks these rules is refused with its line. A report that does is refused alone: its neighbours count.
"""

import csv
import gzip
import hashlib
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import sqrt
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from dither.sending.transport import Answer, Outcome, Transport
from dither_aggregator.analysis.closed_days import mixed
from dither_aggregator.analysis.decoder import Decoded
from dither_aggregator.analysis.inference import Z
from dither_aggregator.counting import Counts, fold
from dither_shared.errors import DitherError, InvalidParameter
from dither_shared.hashing import HASHES_MAX, JAVA_BITS_MAX, bloom_bits
from dither_shared.mechanisms import RAPPOR
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.shapes import Bits
from dither_shared.wire import GROUPS_MAX, ID_BITS, REPORTS_MAX, WireGroup, encode_upload, new_upload_id

COHORTS_MAX = 1 << 14
CELLS_MAX = 1 << 22
"""Bits of all cohorts together."""
COUNT_MAX = 10**12
CANDIDATES_MAX = 1_000_000
INDICES_MAX = 1 << 25
"""Indices of a whole map: 256 MiB in memory."""
VALUE_CHARACTERS_MAX = 65_536
VALUES_CHARACTERS_MAX = 1 << 26
"""All candidates together: 64 characters each, if there are as many as may be."""
LINE_BYTES_MAX = 1 << 22
"""It bounds a row, too, which goes on from line to line within quotes."""
PARAMS_BYTES_MAX = 1 << 16
FILE_BYTES_MAX = 1 << 30
REPORTS_BYTES_MAX = 1 << 34
"""Reports are read one by one: this bounds time, not memory."""

_REPORTS_AT_ONCE = 1 << 16
_NUMBER = re.compile(r"\+?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?")
_LONE_RETURN = re.compile(r"\r(?!\n)")
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class BadFile(DitherError, ValueError):
    """A file that cannot be used. The message names it and the line, what was needed and what came."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}: line {line}: {problem}")


class BadCounts(BadFile):
    """Counts that no reports have, whatever the parameters."""


@dataclass(frozen=True)
class Params:
    """The parameters of the reports: k bits, h hashes, m cohorts, p, q and f as the paper has them."""

    k: int
    h: int
    m: int
    p: Fraction
    q: Fraction
    f: Fraction

    def __post_init__(self) -> None:
        limits = {"k": JAVA_BITS_MAX, "h": min(HASHES_MAX, self.k), "m": COHORTS_MAX}
        for name, most in limits.items():
            if not 1 <= (size := getattr(self, name)) <= most:
                raise InvalidParameter(f"{name} must be from 1 to {most}, got {size}")
        if self.m * self.k > CELLS_MAX:
            raise InvalidParameter(f"m times k must be at most {CELLS_MAX}, got {self.m} times {self.k}")
        for name, probability in (("p", self.p), ("q", self.q), ("f", self.f)):
            if not 0 <= probability <= 1:
                raise InvalidParameter(f"{name} must be from 0 to 1, got {probability}")
        if self.p == self.q:
            raise InvalidParameter(f"p and q must differ, or a report says nothing, got {self.p} for both")
        if self.f < 1 and abs(self.q_star - self.p_star) < Fraction(1, 10**6):
            raise InvalidParameter("p, q and f must leave a bit's rates at least 1e-6 apart, or a report says nothing")
        if self.f == 1:
            raise InvalidParameter("f must be below 1, or a report says nothing, got 1")

    @property
    def p_star(self) -> Fraction:
        """P[a bit is reported as 1 | its Bloom bit is 0]."""
        return self.f / 2 * (self.p + self.q) + (1 - self.f) * self.p

    @property
    def q_star(self) -> Fraction:
        """P[a bit is reported as 1 | its Bloom bit is 1]."""
        return self.f / 2 * (self.p + self.q) + (1 - self.f) * self.q


@dataclass(frozen=True)
class Report:
    """One report; bit b of `bits` is worth 2^b."""

    line: int
    client: str
    cohort: int
    bits: int


@dataclass(frozen=True)
class Refused:
    """A row that is not a report, and why."""

    line: int
    reason: str


def read_params(path: Path) -> Params:
    """Read a parameter file."""
    rows = list(_rows(path, PARAMS_BYTES_MAX))
    header_line, header = rows[0]
    columns = _find_columns(path, header_line, header, ("k", "h", "m", "p", "q", "f"))
    if len(rows) != 2:
        raise BadFile(path, rows[min(2, len(rows) - 1)][0], f"must have one row below the header, got {len(rows) - 1}")
    line, row = rows[1]
    if len(row) != len(header):
        raise BadFile(path, line, f"must have {len(header)} cells, as the header has, got {len(row)}")
    cells = {name: row[column] for name, column in columns.items()}
    k, h, m = (_whole_cell(path, line, name, cells[name], 1) for name in ("k", "h", "m"))
    p, q, f = (_probability_cell(path, line, name, cells[name]) for name in ("p", "q", "f"))
    try:
        return Params(k, h, m, p, q, f)
    except InvalidParameter as error:
        raise BadFile(path, line, str(error)) from None


def read_counts(path: Path, params: Params) -> Counts:
    """Read a counts file into int64[m, k + 1]: for each cohort N, then the count of each bit."""
    counts = np.zeros((params.m, params.k + 1), dtype=np.int64)
    line, cohorts = 1, 0
    for line, row in _rows(path, FILE_BYTES_MAX):
        if cohorts == params.m:
            raise BadFile(path, line, f"must not be there: a row for each of m = {params.m} cohorts came before it")
        if len(row) != params.k + 1:
            raise BadFile(path, line, f"must have {params.k + 1} cells, N and k = {params.k} counts, got {len(row)}")
        n = _whole_cell(path, line, "N", row[0], 0)
        counts[cohorts, 0] = n
        for bit, cell in enumerate(row[1:]):
            count = _whole_cell(path, line, f"the count of bit {bit}", cell, 0)
            if count > n:
                raise BadCounts(path, line, f"the count of bit {bit} must be at most N = {n}, got {count}")
            counts[cohorts, bit + 1] = count
        cohorts += 1
    if cohorts < params.m:
        raise BadFile(path, line, f"must not be the last: a row for each of m = {params.m} cohorts is needed")
    return counts


def count_lines(counts: Counts) -> Iterator[str]:
    """Yield the lines of a counts file."""
    for row in counts.tolist():
        yield ",".join(map(str, row))


def read_map(
    path: Path, params: Params, repeated: Callable[[int], None] = lambda line: None
) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """Read a candidate map: the S values, and their bits as int64[S, m, h], with repeats where hashes collide.

    Calls `repeated` with each line of a candidate that came before, which is passed over.
    """
    seen: dict[str, int] = {}
    bits: list[npt.NDArray[np.int64]] = []
    characters = again = 0
    for line, row in _rows(path, FILE_BYTES_MAX):
        if row[0] in seen:
            again = _add_repeat(path, line, again)
            repeated(line)
            continue
        characters = _add_candidate(path, line, row[0], seen, characters)
        if len(seen) * params.m * params.h > INDICES_MAX:
            raise BadFile(path, line, f"must not be there: a map may hold {INDICES_MAX:,} indices")
        bits.append(_map_bits(path, line, row[1:], params))
    return tuple(seen), np.stack(bits)


def map_line(value: str, params: Params, *, java: bool = False) -> str:
    """Return a candidate's line of a map."""
    quoted = '"' + value.replace('"', '""') + '"' if any(mark in value for mark in ',"\r\n') else value
    indices = (
        cohort * params.k + bit + 1
        for cohort in range(params.m)
        for bit in bloom_bits(value, cohort, params.k, params.h, java=java)
    )
    return f"{quoted},{','.join(map(str, indices))}"


def read_candidates(path: Path, repeated: Callable[[int], None] = lambda line: None) -> list[str]:
    """Read a list of values, one a line. Spaces belong to a value; an empty line is the empty value.

    Calls `repeated` with each line of a value that came before, which is passed over.
    """
    seen: dict[str, int] = {}
    characters = again = 0
    for line, text in enumerate(_lines(path, FILE_BYTES_MAX), start=1):
        value = text.removesuffix("\n").removesuffix("\r")
        if "\r" in value:
            raise BadFile(path, line, "must end with a line feed, got a carriage return within the line")
        if value in seen:
            again = _add_repeat(path, line, again)
            repeated(line)
        else:
            characters = _add_candidate(path, line, value, seen, characters)
    if not seen:
        raise BadFile(path, 1, "must hold a value, got an empty file")
    return list(seen)


def read_reports(path: Path, params: Params) -> Iterator[Report | Refused]:
    """Yield what each row of a reports file holds, in order."""
    rows = _rows(path, REPORTS_BYTES_MAX)
    header_line, header = next(rows)
    columns = _find_columns(path, header_line, header, ("client", "cohort", "irr"))
    for line, row in rows:
        if len(row) != len(header):
            yield Refused(line, f"must have {len(header)} cells, as the header has, got {len(row)}")
            continue
        client, cohort, irr = (row[column].strip() for column in columns.values())
        yield _read_report(line, client, cohort, irr, params)


def sum_reports(reports: Iterable[Report], params: Params) -> Counts:
    """Count reports into int64[m, k + 1], as `read_counts` has it."""
    counts = np.zeros((params.m, params.k + 1), dtype=np.int64)
    waiting: dict[int, list[int]] = {}
    for number, report in enumerate(reports, start=1):
        waiting.setdefault(report.cohort, []).append(report.bits)
        if number % _REPORTS_AT_ONCE == 0:
            _add_waiting(counts, waiting, params)
    _add_waiting(counts, waiting, params)
    return counts


def _add_waiting(counts: Counts, waiting: dict[int, list[int]], params: Params) -> None:
    shape = Bits(params.k)
    for cohort, reports in waiting.items():
        counts[cohort, 0] += len(reports)
        counts[cohort, 1:] += fold(shape, shape.pack(reports))
    waiting.clear()


def _read_report(line: int, client: str, cohort: str, irr: str, params: Params) -> Report | Refused:
    number = _whole(cohort)
    if number is None or number >= params.m:
        return Refused(line, f"cohort must be a whole number from 0 to {params.m - 1}, got {_shown(cohort)}")
    if len(irr) != params.k:
        return Refused(line, f"irr must have k = {params.k} characters, got {len(irr)}")
    if irr.strip("01"):
        place = next(place for place, character in enumerate(irr, start=1) if character not in "01")
        return Refused(line, f"irr must be of 0 and 1, got {_shown(irr[place - 1])} as character {place}")
    return Report(line, client, number, int(irr, 2))


def _add_repeat(path: Path, line: int, again: int) -> int:
    """Return how many candidates that came before there are with this one."""
    if again == CANDIDATES_MAX:
        raise BadFile(path, line, f"must not be there: {CANDIDATES_MAX:,} candidates before it came twice or more")
    return again + 1


def _add_candidate(path: Path, line: int, value: str, seen: dict[str, int], characters: int) -> int:
    """Take up a new candidate behind others of so many characters; return how many these are with it."""
    if len(value) > VALUE_CHARACTERS_MAX:
        raise BadFile(path, line, f"a value must have at most {VALUE_CHARACTERS_MAX} characters, got {len(value)}")
    if len(seen) == CANDIDATES_MAX:
        raise BadFile(path, line, f"must not be there: at most {CANDIDATES_MAX:,} candidates can be read")
    characters += len(value)
    if characters > VALUES_CHARACTERS_MAX:
        raise BadFile(path, line, f"must not be there: all candidates may have {VALUES_CHARACTERS_MAX:,} characters")
    seen[value] = line
    return characters


def _map_bits(path: Path, line: int, cells: Sequence[str], params: Params) -> npt.NDArray[np.int64]:
    """Return the bits of one candidate, int64[m, h]."""
    m, k, h = params.m, params.k, params.h
    found: list[list[int]] = [[] for _ in range(m)]
    given = [cell for cell in cells if cell.strip() not in ("", "NA")]
    if len(given) > m * h:
        raise BadFile(
            path, line, f"must have at most {m * h} indices, for {m} cohorts and {h} hashes each, got {len(given)}"
        )
    for cell in given:
        index = _whole(cell)
        if index is None or not 1 <= index <= m * k:
            raise BadFile(path, line, f"an index must be a whole number from 1 to m k = {m * k}, got {_shown(cell)}")
        found[(index - 1) // k].append((index - 1) % k)
    for cohort, bits in enumerate(found):
        if not bits or len(set(bits)) > h:
            raise BadFile(
                path,
                line,
                f"must have 1 to h = {h} different indices from {cohort * k + 1} to {cohort * k + k}, those of cohort "
                f"{cohort}, got {len(set(bits))}",
            )
        if len(bits) > h:
            bits[:] = sorted(set(bits))
        bits += [bits[-1]] * (h - len(bits))
    return np.array(found, dtype=np.int64)


def _find_columns(path: Path, line: int, header: Sequence[str], names: Sequence[str]) -> dict[str, int]:
    found = [cell.strip() for cell in header]
    for name in names:
        if found.count(name) != 1:
            raise BadFile(
                path,
                line,
                f"must be a header with the columns {','.join(names)}; {name} is there {found.count(name)} times",
            )
    return {name: found.index(name) for name in names}


def _whole_cell(path: Path, line: int, name: str, cell: str, least: int) -> int:
    number = _whole(cell)
    if number is None or number < least:
        raise BadFile(path, line, f"{name} must be a whole number from {least} to {COUNT_MAX:,}, got {_shown(cell)}")
    return number


def _probability_cell(path: Path, line: int, name: str, cell: str) -> Fraction:
    number = _number(cell)
    if number is None or number > 1:
        raise BadFile(path, line, f"{name} must be a number from 0 to 1, got {_shown(cell)}")
    return number


def _number(cell: str) -> Fraction | None:
    text = cell.strip()
    return Fraction(Decimal(text)) if _NUMBER.fullmatch(text) else None


def _whole(cell: str) -> int | None:
    """Return a whole number up to COUNT_MAX; None for anything else."""
    if cell.isascii() and cell.isdigit() and len(cell) <= 12:
        return int(cell)
    number = _number(cell)
    return int(number) if number is not None and number.denominator == 1 and number <= COUNT_MAX else None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _rows(path: Path, bytes_max: int) -> Iterator[tuple[int, list[str]]]:
    """Yield each row that is not blank, nor spaces alone, with the line it begins on. A file without any is refused."""
    line, empty, size = 1, True, 0

    def lines() -> Iterator[str]:
        nonlocal size
        quotes = 0
        for text in _lines(path, bytes_max):
            size += len(text)
            if size > LINE_BYTES_MAX:
                raise BadFile(path, line, f"must have at most {LINE_BYTES_MAX:,} bytes in a row, over all its lines")
            begun = at = 0
            for found in _LONE_RETURN.finditer(text):  # ends a line, as in R, but within quotes
                quotes += text.count('"', at, found.end())
                at = found.end()
                if quotes % 2 == 0:
                    yield text[begun:at]
                    begun = at
            quotes += text.count('"', at)
            if begun < len(text):
                yield text[begun:]

    reader = csv.reader(lines(), strict=True)
    while True:
        size = 0
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise BadFile(path, line, f"must be CSV: {error}") from None
        if row is None:
            break
        if len(row) > 1 or "".join(row).strip():
            empty = False
            yield line, row
        line = reader.line_num + 1
    if empty:
        raise BadFile(path, 1, "must hold rows of CSV, got an empty file")


def _lines(path: Path, bytes_max: int) -> Iterator[str]:
    """Yield the lines of a file with their ends, inflated where the content is gzip."""
    with path.open("rb") as file:
        stream: IO[bytes] = file
        if file.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC):
            stream = gzip.GzipFile(fileobj=file)  # type: ignore[assignment]
        line, size = 0, 0
        while True:
            line += 1
            raw = _read_line(path, line, stream)
            if not raw:
                break
            size += len(raw)
            if size > bytes_max:
                raise BadFile(path, line, f"must not be there: a file may hold {bytes_max:,} bytes, inflated")
            if line > 1 or (raw := raw.removeprefix(_BYTE_ORDER_MARK)):
                yield _text(path, line, raw)


def _read_line(path: Path, line: int, stream: IO[bytes]) -> bytes:
    try:
        raw = stream.readline(LINE_BYTES_MAX + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadFile(path, line, f"must be whole gzip, as the file's beginning is: {error}") from None
    if len(raw) > LINE_BYTES_MAX:
        raise BadFile(path, line, f"must have at most {LINE_BYTES_MAX:,} bytes")
    return raw


def _text(path: Path, line: int, raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadFile(
            path, line, f"must be UTF-8, got byte 0x{raw[error.start]:02x} as byte {error.start + 1}"
        ) from None


# Counts that reports with these parameters do not have: of another collection, or of another file of parameters.
#
# A bit of a report is set with probability p* or q*, and of the Bloom bits of a value one is set at least and h at
# most. So it is bounded how often each bit is set, and how many bits all reports have, whatever clients answered; the
# laws are those of `analysis/closed_days.py`. A client that sent several reports has the same permanent noise in them:
# it is allowed to have sent `repeats`. However many it sent, each bit is set with probability p or q.


LEVEL = 1e-9
"""How rarely sound counts are called impossible, at most: proved of sums, by a t law of what is decoded."""
ROUNDING = 1e-9
"""Other texts hold all or nothing, but for the last digits, where bits tell nothing of them."""
REPEATS = 30
"""So many reports a client may have sent: google/rappor's clients repeat the noise of a value in each."""


def implausible(counts: Counts, params: Params, repeats: int = REPEATS) -> Iterator[str]:
    """Yield why the counts of all cohorts, int64[m, k + 1], are not those of reports with these parameters."""
    there = np.flatnonzero(counts[:, 0])
    if not len(there):
        return
    n, bits = counts[there, :1], counts[there, 1:]
    level = LEVEL / (bits.size + 1) / 2
    ends = sorted((float(params.p), float(params.q)))
    low, high = sorted((float(params.p_star), float(params.q_star)))
    rates = [params.p_star + (params.q_star - params.p_star) * held / params.k for held in (1, params.h)]
    least, most = sorted(map(float, rates))
    total, trials = np.array([bits.sum()]), int(n.sum()) * params.k
    chance = np.minimum(mixed(total, trials, ends[0], ends[1]), mixed(total, trials, least, most, repeats))
    if chance[0] < level:
        has = f"{int(total[0]) / int(n.sum()):,.2f} of {params.k} bits are set in a report on average"
        yield f"{has}, and {least * params.k:,.2f} to {most * params.k:,.2f} are by these parameters"
    chances = np.minimum(mixed(bits, n, ends[0], ends[1]), mixed(bits, n, low, high, repeats))
    if off := int((chances < level).sum()):
        row, bit = np.unravel_index(int(chances.argmin()), chances.shape)
        yield (
            f"{off:,} of {bits.size:,} bits are set too rarely or too often: bit {bit} of cohort {there[row]} in "
            f"{bits[row, bit]:,} of {n[row, 0]:,} reports, where {low:.1%} to {high:.1%} of them have it"
        )


def unbelievable(decoded: Decoded, params: Params, repeats: int = REPEATS) -> Iterator[str]:
    """Yield why what was decoded cannot be of reports: the texts that the list misses hold from none to all.

    The part `kept` of a bit's variance is a client's permanent noise, which its reports have in common.
    """
    permanent = params.f / 2 * (1 - params.f / 2) * (params.q - params.p) ** 2
    kept = permanent and permanent / min(rate * (1 - rate) for rate in (params.p_star, params.q_star))
    error = (decoded.unexplained_upper - decoded.unexplained_lower) / (2 * Z) * sqrt(1 + (repeats - 1) * kept)
    far = error * float(stdtrit(max(decoded.error_freedom, 1.0), 1 - LEVEL / 2)) + ROUNDING
    if not -far <= decoded.unexplained <= 1 + far:
        yield (
            f"strings that are not in the list would hold {decoded.unexplained:.0%} of the reports (95 % interval: "
            f"{decoded.unexplained_lower:.0%} to {decoded.unexplained_upper:.0%}), and must hold 0 % to 100 %"
        )


# Taking over reports that google/rappor's clients made: through the ordinary wire, as if devices sent them.
#
# An upload's id is a digest of what the file holds and of the plan. So a second run, within the seven days that the
# aggregator remembers ids, counts nothing twice, and a run that was cut off goes on where it was.


REPORTS_AT_ONCE_MAX = 10_000_000
"""Reports of one file: they are held in memory, at about 200 bytes each."""
UPLOAD_BYTES = 96 * 1024
"""About the bytes of reports in one upload: padded to a power of two it stays below the wire's limit."""
ATTEMPTS = 5
WAIT_S = 2.0


@dataclass(frozen=True)
class Imported:
    """How many reports of a file were counted."""

    counted: int
    counted_before: int
    """By an earlier run with the same file."""


def plan_for(registry: Registry, metric: str, params: Params) -> Plan:
    """Return the plan of a text metric whose parameters are those of the file; raise DitherError where they differ."""
    asked = registry.metrics.get(metric)
    if asked is None:
        raise DitherError(f"the registry has no metric {metric!r}; it has {', '.join(registry.metrics)}")
    if asked.cells.name != RAPPOR.name:
        raise DitherError(f"metric {metric} must be of kind text, got {asked.kind.name}")
    try:
        of_file = RAPPOR.of_probabilities(params.k, params.h, params.f, params.p, params.q)
    except InvalidParameter as error:
        raise DitherError(f"reports with these parameters cannot be counted together with new ones: {error}") from None
    ours = {**asked.mechanism.parameters(), "m": asked.cells.count}
    theirs = {**of_file.parameters(), "m": params.m}
    if theirs != ours:
        differ = ", ".join(f"{name} {theirs[name]}, not {ours[name]}" for name in ours if ours[name] != theirs[name])
        raise DitherError(f"the file's parameters must be those of metric {metric}, got {differ}")
    return asked.plan


def import_reports(
    reports: Iterable[Report],
    plan: Plan,
    transport: Transport,
    on_upload: Callable[[int, int], None] = lambda done, total: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Imported:
    """Send reports and wait for each receipt. Raises DitherError when the aggregator does not take them.

    Calls `on_upload` with the reports that are done and all that there are, after each upload.
    """
    digest, by_cohort = _gather(reports, plan)
    total, done, before = sum(map(len, by_cohort.values())), 0, 0
    for number, groups in enumerate(_uploads(by_cohort, plan)):
        # One digest a place: uploads of a file differ, and those of the next run are the same.
        upload_id = new_upload_id(lambda bits, number=number: _drawn_number(digest, number, bits))  # type: ignore[misc]
        answer = _send(transport, upload_id, encode_upload(upload_id, groups), sleep)
        count = sum(len(group[2]) for group in groups)
        done += count
        before += count if answer.duplicate else 0
        on_upload(done, total)
    return Imported(total - before, before)


def _gather(reports: Iterable[Report], plan: Plan) -> tuple[bytes, dict[int, list[str]]]:
    """Return the digest of all reports, and each cohort's as they are on the wire."""
    shape = Bits(plan.mechanism.shape.size)
    digest = hashlib.sha256(f"{plan.metric} {plan.digest}".encode("ascii"))
    by_cohort: dict[int, list[str]] = {}
    for number, report in enumerate(reports):
        if number == REPORTS_AT_ONCE_MAX:
            raise DitherError(f"a file of at most {REPORTS_AT_ONCE_MAX:,} reports can be imported; split it")
        digest.update(f"\n{report.client!r} {report.cohort} {report.bits}".encode())
        by_cohort.setdefault(report.cohort, []).append(shape.to_wire(report.bits))
    return digest.digest(), by_cohort


def _drawn_number(digest: bytes, place: int, bits: int) -> int:
    assert bits == ID_BITS
    return int.from_bytes(hashlib.sha256(digest + place.to_bytes(8, "big")).digest()[: bits // 8], "big")


def _uploads(by_cohort: dict[int, list[str]], plan: Plan) -> Iterator[list[WireGroup]]:
    """Yield the groups of each upload, within the wire's limits, in the order of the cohorts."""
    width = max((len(report) + 3 for listed in by_cohort.values() for report in listed[:1]), default=1)
    room_max = min(REPORTS_MAX, UPLOAD_BYTES // width)
    groups: list[WireGroup] = []
    room = room_max
    for cohort, listed in sorted(by_cohort.items()):
        place = 0
        while place < len(listed):
            part = listed[place : place + room]
            groups.append((plan.metric, plan.digest, part, cohort if plan.cells.several else None))
            place += len(part)
            room -= len(part)
            if not room or len(groups) == GROUPS_MAX:
                yield groups
                groups, room = [], room_max
    if groups:
        yield groups


def _send(transport: Transport, upload_id: str, body: bytes, sleep: Callable[[float], None]) -> Answer:
    again = "run it again: what was taken is not counted twice"
    answer = transport.post(upload_id, body, lambda: None)
    for attempt in range(1, ATTEMPTS):
        if answer.outcome is not Outcome.KEPT:
            break
        sleep(WAIT_S * attempt)
        answer = transport.post(upload_id, body, lambda: None)
    if answer.outcome is Outcome.STOPPED:
        made_by = "`dither keys create write` makes one"
        raise DitherError(f"the aggregator did not take the key ({answer.detail}); {made_by}")
    if answer.outcome is not Outcome.ACCEPTED:
        raise DitherError(f"the aggregator did not take an upload ({answer.detail}); {again}")
    if answer.rejected:
        raise DitherError(f"the aggregator refused {answer.rejected} reports; is its registry this one? then {again}")
    return answer
