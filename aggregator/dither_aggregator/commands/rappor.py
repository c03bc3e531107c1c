"""`dither rappor`: what google/rappor's users have, its parameters, counts, maps and reports, read and decoded."""

import argparse
import json
import re
import sys
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dither.sending.transport import HttpTransport
from dither_aggregator.analysis.decoder import Channel, decode
from dither_aggregator.analysis.rows import FALSE_SHARE_MAX, FALSE_SHARE_MIN
from dither_aggregator.google_rappor import (
    COUNT_MAX,
    REPEATS,
    BadCounts,
    Params,
    Refused,
    Report,
    count_lines,
    implausible,
    import_reports,
    map_line,
    plan_for,
    read_candidates,
    read_counts,
    read_map,
    read_params,
    read_reports,
    sum_reports,
    unbelievable,
)
from dither_shared.kinds.precision import ALPHA
from dither_shared.registry import Registry
from dither_shared.safe_output import visible, write

EXAMPLE = "dither rappor decode --params params.csv --counts counts.csv --map map.csv"
HASH_EXAMPLE = "dither rappor hash-candidates --params params.csv candidates.txt > map.csv"
SUM_EXAMPLE = "dither rappor sum-bits --params params.csv reports.csv > counts.csv"
IMPORT_EXAMPLE = (
    "dither rappor import-reports reports.csv --params params.csv --registry metrics.toml --metric homepage "
    "--endpoint https://telemetry.example.org --key KEY"
)
VALUE_COLUMNS = 32
LINE_COLUMNS = 96
OTHER_ROWS = 10
"""How many candidates that were not found the table shows, the selected ones first."""

_LEGEND = """\
estimate  a share of all reports, raw: it may be below zero
selected  for looking at: what stands out, fitted again with nothing below zero; biased
found     "yes": at most {share:.3g} % of those named are expected to be false (--false-share);
          "surely" where, with 95 %, none of these is (Holm). Their intervals are wider than those
          of the others: of the intervals of all that are found at most 5 % miss on average"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    decode_ = _add_action(actions, "decode", "estimate each candidate's share from counts", EXAMPLE)
    _add_file(decode_, "--counts", "a row a cohort: its reports, then the count of each bit; as sum-bits prints it")
    _add_file(decode_, "--map", "a row a candidate, with its bits in every cohort; as hash-candidates prints it")
    decode_.add_argument(
        "--repeats",
        metavar="N",
        type=_repeats,
        default=REPEATS,
        help="the most reports that one client has sent, for what counts can be (default: %(default)s)",
    )
    decode_.add_argument(
        "--false-share",
        metavar="SHARE",
        type=_false_share,
        default=ALPHA,
        help="at most such a share of the candidates found is expected to be false (default: %(default)s)",
    )
    decode_.add_argument("--all", action="store_true", help="print every candidate, not only those that were found")
    decode_.add_argument("--json", action="store_true", help="print one JSON document")
    hash_ = _add_action(actions, "hash-candidates", "print the map of a list of values", HASH_EXAMPLE)
    hash_.add_argument(
        "--java", action="store_true", help="as google/rappor's Java client hashes; the others do it differently"
    )
    hash_.add_argument("file", metavar="FILE", type=Path, help="one value a line, spaces and all; an empty line is one")
    sum_ = _add_action(actions, "sum-bits", "count the bits of reports, cohort by cohort", SUM_EXAMPLE)
    sum_.add_argument("file", metavar="FILE", type=Path, help=_REPORTS)
    import_ = _add_action(actions, "import-reports", "send reports to an aggregator that asks the same", IMPORT_EXAMPLE)
    import_.add_argument("file", metavar="FILE", type=Path, help=_REPORTS)
    _add_file(import_, "--registry", "the metrics.toml that the aggregator serves")
    import_.add_argument("--metric", metavar="NAME", required=True, help="a text metric with the same parameters")
    import_.add_argument("--endpoint", metavar="URL", required=True, help="the aggregator's address")
    import_.add_argument("--key", metavar="KEY", required=True, help="the key that `dither serve` prints")
    import_.add_argument("--json", action="store_true", help="print one JSON document")


def _repeats(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:13]) <= COUNT_MAX):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {COUNT_MAX:,}, got {text!r}")
    return int(text)


def _false_share(text: str) -> float:
    if not (re.fullmatch(r"[0-9]?\.[0-9]{1,3}", text) and FALSE_SHARE_MIN <= float(text) <= FALSE_SHARE_MAX):
        raise argparse.ArgumentTypeError(
            f"must be a number from {FALSE_SHARE_MIN} to {FALSE_SHARE_MAX} with at most 3 decimals, got {text!r}"
        )
    return float(text)


_REPORTS = "reports: CSV with the columns client, cohort and irr"


def _add_action(actions: Any, name: str, summary: str, example: str) -> argparse.ArgumentParser:
    action: argparse.ArgumentParser = actions.add_parser(
        name,
        help=summary,
        description=f"{summary.capitalize()}. Files are google/rappor's, plain or gzip.",
        epilog=f"example: {example}",
    )
    _add_file(action, "--params", "a header k,h,m,p,q,f and one row")
    return action


def _add_file(parser: argparse.ArgumentParser, option: str, summary: str) -> None:
    parser.add_argument(option, metavar="FILE", type=Path, required=True, help=summary)


def run(args: argparse.Namespace) -> int:
    """Do one of the four; return 1 when some reports were refused, or counts cannot be."""
    params = read_params(args.params)
    match args.action:
        case "decode":
            return _decode(args, params)
        case "hash-candidates":
            return _hash_candidates(args, params)
        case "sum-bits":
            return _sum_bits(args, params)
        case _:
            return _import_reports(args, params)


def _decode(args: argparse.Namespace, params: Params) -> int:
    try:
        counts = read_counts(args.counts, params)
    except BadCounts as error:
        return _say_findings([str(error)], args.json)
    with _repeated(args.map) as on_repeat:
        values, bits = read_map(args.map, params, on_repeat)
    if found := list(implausible(counts, params, args.repeats)):
        return _say_findings(found, args.json)
    channel = Channel(params.k, params.h, params.m, float(params.p_star), float(params.q_star))
    decoded = decode(counts, values, bits, channel).named(args.false_share)
    if found := list(unbelievable(decoded, params, args.repeats)):
        return _say_findings(found, args.json)
    document = decoded.to_document()
    if args.json:
        print(json.dumps(document, allow_nan=False))
    else:
        print("\n".join(_table(document, args.all)))
    return 0


def _say_findings(found: Sequence[str], as_json: bool) -> int:
    """Say why counts are not those of such reports; a table of what they decode to would be believed."""
    if as_json:
        print(json.dumps({"findings": list(found)}))
        return 1
    print("Nothing is decoded: reports with these parameters do not have these counts.")
    for sentence in found:
        print(textwrap.fill(f"- {sentence}", width=LINE_COLUMNS, subsequent_indent="  "))
    print("Do counts and parameters belong together, and are the counts those of `sum-bits`?")
    return 1


@contextmanager
def _repeated(path: Path) -> Iterator[Callable[[int], None]]:
    """Yield what takes the lines of values that came before, and say afterwards how many they were."""
    lines: Counter[str] = Counter()

    def on_repeat(line: int) -> None:
        lines["first"] = lines["first"] or line
        lines["all"] += 1

    yield on_repeat
    if lines:
        again = f"{lines['all']:,} value{'s' * (lines['all'] != 1)} that came before"
        print(f"{path}: {again}, the first in line {lines['first']}: passed over", file=sys.stderr)


def _hash_candidates(args: argparse.Namespace, params: Params) -> int:
    with _repeated(args.file) as on_repeat:
        values = read_candidates(args.file, on_repeat)
    for value in values:
        write(f"{map_line(value, params, java=args.java)}\n", None)
    spaced = sum(value != value.strip() for value in values)
    if spaced:
        print(f"{spaced:,} of {len(values):,} values have space around them; it is part of the value", file=sys.stderr)
    return 0


def _sum_bits(args: argparse.Namespace, params: Params) -> int:
    refused: Counter[str] = Counter()
    counts = sum_reports(_accepted(args.file, params, refused), params)
    print("\n".join(count_lines(counts)))
    if refused:
        print(f"{refused.total():,} rows refused, {int(counts[:, 0].sum()):,} reports counted", file=sys.stderr)
    return 1 if refused else 0


def _import_reports(args: argparse.Namespace, params: Params) -> int:
    plan = plan_for(Registry.load(args.registry), args.metric, params)
    transport = HttpTransport(args.endpoint, args.key)
    refused: Counter[str] = Counter()
    shown_at = 0

    def on_upload(done: int, total: int) -> None:
        nonlocal shown_at
        if 10 * done // total > shown_at:
            shown_at = 10 * done // total
            print(f"{done:,} of {total:,} reports", file=sys.stderr)

    imported = import_reports(_accepted(args.file, params, refused), plan, transport, on_upload)
    if args.json:
        print(json.dumps({**vars(imported), "refused": refused.total()}))
    else:
        print(
            f"{imported.counted:,} reports counted, {imported.counted_before:,} had been counted before, "
            f"{refused.total():,} refused"
        )
    if refused:
        print("send corrected rows as a file of their own: this one, changed, would be counted again", file=sys.stderr)
    return 1 if refused else 0


def _accepted(path: Path, params: Params, refused: Counter[str]) -> Iterator[Report]:
    """Yield the reports of a file; say which rows are none, and count them."""
    for row in read_reports(path, params):
        if isinstance(row, Refused):
            refused["rows"] += 1
            print(f"{path}: line {row.line}: refused: {row.reason}", file=sys.stderr)
        else:
            yield row


def _table(document: dict[str, Any], everything: bool) -> Iterator[str]:
    """Yield the lines of the table, what was found first, and then what is to be said of it."""
    candidates = document["rows"]
    rows = sorted(
        (row for row in candidates if row["group"] in ("", row["value"])),
        key=lambda row: (not _found(row), row["proportion"] == 0, -row["estimate"], row["value"]),
    )
    found = sum(map(_found, rows))
    shown = rows if everything else rows[: found + OTHER_ROWS]
    width = max(5, *(_columns(_label(row["value"], VALUE_COLUMNS)) for row in shown))
    yield f"{document['summary']['n']:,} reports, {len(candidates):,} candidates, {found:,} of them found"
    yield ""
    yield f"  {'value':{width}}  {'estimate':>9}  {'95 % interval':^21}  {'selected':>9}  found"
    for row in shown:
        yield _line(row, width)
        if row["group"]:
            others = (_label(other["value"], VALUE_COLUMNS) for other in candidates if other["group"] == row["value"])
            yield "    " + _label("together with " + ", ".join(list(others)[1:]), LINE_COLUMNS - 4)
    if len(shown) < len(rows):
        yield f"  ... and {len(rows) - len(shown):,} more that were not found (--all prints them)"
    yield from ("", _LEGEND.format(share=100 * document["summary"]["false_share"]), "")
    for sentence in document["summary"]["sentences"]:
        yield textwrap.fill(sentence, width=LINE_COLUMNS)


def _line(row: dict[str, Any], width: int) -> str:
    label = _label(row["value"], VALUE_COLUMNS)
    verdict = ("surely" if row["significant_holm"] else "yes") if _found(row) else ""
    return (
        f"  {label}{' ' * (width - _columns(label))}  {row['estimate']:9.3%}  "
        f"{row['lower']:9.3%} .. {row['upper']:8.3%}  {row['proportion']:9.3%}  {verdict}"
    ).rstrip()


def _found(row: dict[str, Any]) -> bool:
    return bool(row["significant"])


def _label(value: str, width: int) -> str:
    """Return a value in one line of at most `width` columns, without control characters."""
    text = visible(value) or '""'
    if _columns(text) <= width:
        return text
    text = text[: width - 3]
    while _columns(text) > width - 3:
        text = text[:-1]
    return f"{text}..."


def _columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(
        0 if unicodedata.combining(mark) else 2 if unicodedata.east_asian_width(mark) in "WF" else 1 for mark in text
    )
