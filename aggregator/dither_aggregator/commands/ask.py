"""`dither ask`: a question about what was collected, and its answer with an interval that holds."""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path

from dither_aggregator.analysis.differences import windows_beside
from dither_aggregator.analysis.inference import LEVEL_MAX, LEVEL_MIN, read_level
from dither_aggregator.arguments.settings import add_data_argument, opened
from dither_aggregator.ask import fleets
from dither_aggregator.ask.answering import HOLDS_WITH, Asking, QueryAnswer, Weight
from dither_aggregator.ask.dashboard import SavedQuestion, saved_questions
from dither_aggregator.ask.language import BadQuestion, Query, parse
from dither_shared.errors import ConfigurationError
from dither_shared.safe_output import behind

EXAMPLE = """dither ask 'share(browser in "Chrome *") / share(browser in "Firefox *")' --data /var/lib/dither"""

USUAL = Decimal(95)
"""The level that is not asked for, in percent."""
_COMMENTED = re.compile(r'((?:[^"#]|"(?:[^"\\]|\\.)*")*)#.*')
"""The part of a line before a comment, with the comment. A # within a value begins none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("question", nargs="?", metavar="QUESTION", help='such as share(dark = "yes") by week')
    parser.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        help="a question a line (# begins a comment): intervals are narrower, for all were fixed before any answer",
    )
    parser.add_argument(
        "--queries", action="store_true", help="print the noisy sums that an analysis used, step after step"
    )
    parser.add_argument(
        "--weights", action="store_true", help="print the numbers before values and cells that each answer is made of"
    )
    parser.add_argument(
        "--fleet", action="store_true", help="print the smallest fleet that would tell something, and ask nothing"
    )
    parser.add_argument(
        "--saved", action="store_true", help="the questions of the dashboard, with how far their answers moved"
    )
    parser.add_argument(
        "--moved", action="store_true", help="those of them whose answers moved; 1 where none did, for alerts"
    )
    parser.add_argument(
        "--level",
        type=_level,
        metavar="PERCENT",
        help=f"how sure intervals are, {LEVEL_MIN} to {LEVEL_MAX} or as a share (default: 95)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    add_data_argument(parser)


def _level(text: str) -> Decimal:
    try:
        return read_level(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    """Print the answers; return 1 where none can be told."""
    if sum((args.question is not None, args.file is not None, args.saved or args.moved)) != 1:
        raise ConfigurationError("ask one QUESTION, those of a --file, or those that are --saved")
    if args.saved or args.moved:
        if args.fleet or args.weights:
            raise ConfigurationError("--fleet and --weights are of a QUESTION, or of those of a --file")
        if args.level:
            raise ConfigurationError("--level is of a QUESTION, or of those of a --file: saved answers hold with 95 %")
        return _run_saved(args)
    lines, level = [args.question] if args.file is None else _lines(args.file), args.level or USUAL
    with opened(args, read_only=True) as store:
        asking = Asking(store, float(level / 100), _progress)
        try:
            questions = [parse(line, asking.groups) for line in lines if line or args.file is None]
            alone = sum(map(asking.intervals, questions)) if args.file else None
            if args.fleet:
                print("\n".join(f"{each.text}\n  {fleets.told(asking, each, alone)}" for each in questions))
                return 0
            answered = list(zip(questions, asking.answer_all(questions, fixed=bool(args.file)), strict=True))
            needed = fleets.needed(asking, answered, alone)
            weights = [[*asking.weights(*each)] if args.weights else [] for each in answered]
        except BadQuestion as error:
            known = args.file and error.text in lines
            where = f"{args.file}, line {lines.index(error.text) + 1}: " if known else ""
            raise ConfigurationError(f"{where}{error}") from None
    if args.json:
        documents = [_document(*each, level=level, queries=args.queries) for each in answered]
        if args.weights:
            documents = [
                {**document, "weights": [each._asdict() for each in own]}
                for document, own in zip(documents, weights, strict=True)
            ]
        print(json.dumps({"answers": documents}, default=str))
    else:
        shown = [
            [
                *_sentences(*each, needed.get(each[0].text, ""), level=level, queries=args.queries),
                *map(_weight, own),
            ]
            for each, own in zip(answered, weights, strict=True)
        ]
        print("\n\n".join(map("\n".join, shown)))
    return 0 if any(answer.estimate is not None for _, answers in answered for answer in answers) else 1


def _weight(weight: Weight) -> str:
    """Return a line: where the number stands, the number, and what it is before."""
    row, ratio = (f"{each}, " if each else "" for each in (weight.name, weight.ratio and f"ratio {weight.ratio}"))
    of = f"{weight.metric}: {weight.value}" if weight.metric else "a number alone"
    return f"  {row}{ratio}{weight.part}: {weight.weight:.6g} {of}"


def _progress(done: int, of: int) -> None:
    """Show how far clusters are, on a terminal alone."""
    if sys.stderr.isatty():
        print(f"fit {done} of {of} ", end="\r" if done < of else "\n", file=behind(sys.stderr), flush=True)


def _run_saved(args: argparse.Namespace) -> int:
    with opened(args, read_only=True) as store:
        windows = windows_beside(store, [stored for stored in store.plans() if stored.current])
        found = saved_questions(Asking(store), windows)
    shown = [one for one in found if one.verdict or not args.moved]
    if args.json:
        print(json.dumps({"questions": [_saved_document(one, queries=args.queries) for one in shown]}, default=str))
    else:
        for one in shown:
            print(one.title, *([one.verdict] if one.verdict else []), sep=": ")
            print(
                "\n".join(
                    _sentences(one.question, one.answers, queries=args.queries) if one.question else [f"  {one.wrong}"]
                )
            )
    return 0 if any(one.verdict or (one.answers and not args.moved) for one in shown) else 1


def _saved_document(one: SavedQuestion, *, queries: bool) -> dict[str, object]:
    document = (
        _document(one.question, one.answers, queries=queries)
        if one.question
        else {"question": one.text, "wrong": one.wrong}
    )
    moved = {"lower": one.change.lower, "upper": one.change.upper} if one.change else None
    return {"title": one.title, "fixed": one.fixed, "verdict": one.verdict, "change": moved, **document}


def _lines(path: Path) -> list[str]:
    """Return the question of each line of a file, "" where it has none."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8: write the questions as text, one a line") from None
    questions = [_COMMENTED.sub(r"\1", line).strip() for line in text.splitlines()]
    if not any(questions):
        raise ConfigurationError(f"{path} asks nothing: write a question a line")
    return questions


def _document(
    question: Query, answers: Sequence[QueryAnswer], *, level: Decimal = USUAL, queries: bool
) -> dict[str, object]:
    rows = [{**asdict(answer), "window": answer.window.ends} for answer in answers]
    left_out = {"weights"} if queries else {"weights", "queries"}
    rows = [{name: each for name, each in row.items() if name not in left_out} for row in rows]
    return {"question": question.text, "level": int(level) if level == int(level) else float(level), "rows": rows}


def _sentences(
    question: Query, answers: Sequence[QueryAnswer], fleet: str = "", *, level: Decimal = USUAL, queries: bool
) -> Iterator[str]:
    yield question.text
    for answer in answers:
        days = f"{answer.window.first} to {answer.window.last}" if answer.window.days > 1 else f"{answer.window.last}"
        what = f"{days}: {answer.name}".removesuffix(": ")
        if answer.estimate is None:
            yield f"  {what}: cannot be told: {answer.untold}"
            continue
        note = f", {answer.note}" if answer.note else ""
        if answer.lower is not None and answer.upper is None:
            yield f"  {what}: at least {answer.lower:,.0f} devices, {answer.n:,} reports{note}"
            continue
        ends = "" if answer.lower is None else f" ({answer.lower:.4g} to {answer.upper:.4g})"
        of = f", {answer.n:,} reports of at least {answer.devices:,} devices" if answer is answers[0] else ""
        yield f"  {what}: {answer.estimate:.4g}{ends}{note}{of}"
    if fleet:
        yield f"  {fleet}"
    first = answers[0]
    if any(answer.lower is not None for answer in answers):
        yield f"  Intervals hold with {level} % for {HOLDS_WITH[first.family]}: z {first.z:.2f}."
    for asked in first.queries if queries else ():
        yield f"  {asked.step}: " + ", ".join(f"{name} {each:.6g}" for name, each in asked.sums.items())
