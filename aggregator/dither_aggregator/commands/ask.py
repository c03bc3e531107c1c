"""`dither ask`: a question about what was collected, and its answer with an interval that holds."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from dither_aggregator.analysis.changes import windows_beside
from dither_aggregator.arguments.data import add_data_argument, opened
from dither_aggregator.ask.answering import HOLDS_WITH, Asking, QueryAnswer
from dither_aggregator.ask.language import BadQuestion, Query, parse
from dither_aggregator.ask.saved import SavedQuestion, saved_questions
from dither_shared.errors import ConfigurationError

EXAMPLE = """dither ask 'share(browser in "Chrome *") / share(browser in "Firefox *")' --data /var/lib/dither"""


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
        "--saved", action="store_true", help="the questions of the dashboard, with how far their answers moved"
    )
    parser.add_argument(
        "--moved", action="store_true", help="those of them whose answers moved; 1 where none did, for alerts"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    add_data_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print the answers; return 1 where none can be told."""
    if sum((args.question is not None, args.file is not None, args.saved or args.moved)) != 1:
        raise ConfigurationError("ask one QUESTION, those of a --file, or those that are --saved")
    if args.saved or args.moved:
        return _run_saved(args)
    lines = [args.question] if args.file is None else list(_lines(args.file))
    with opened(args, read_only=True) as store:
        asking = Asking(store)
        try:
            questions = [parse(line) for line in lines]
            answered = list(zip(questions, asking.answer_all(questions, fixed=bool(args.file)), strict=True))
        except BadQuestion as error:
            raise ConfigurationError(str(error)) from None
    if args.json:
        print(json.dumps({"answers": [_document(*each) for each in answered]}, default=str))
    else:
        print("\n\n".join("\n".join(_sentences(*each)) for each in answered))
    return 0 if any(answer.estimate is not None for _, answers in answered for answer in answers) else 1


def _run_saved(args: argparse.Namespace) -> int:
    with opened(args, read_only=True) as store:
        windows = windows_beside(store, [stored for stored in store.plans() if stored.current])
        found = saved_questions(Asking(store), windows)
    shown = [one for one in found if one.verdict or not args.moved]
    if args.json:
        print(json.dumps({"questions": [_saved_document(one) for one in shown]}, default=str))
    else:
        for one in shown:
            print(one.title, *([one.verdict] if one.verdict else []), sep=": ")
            print("\n".join(_sentences(one.question, one.answers) if one.question else [f"  {one.wrong}"]))
    return 0 if any(one.verdict or (one.answers and not args.moved) for one in shown) else 1


def _saved_document(one: SavedQuestion) -> dict[str, object]:
    document = _document(one.question, one.answers) if one.question else {"question": one.text, "wrong": one.wrong}
    moved = {"lower": one.change.lower, "upper": one.change.upper} if one.change else None
    return {"title": one.title, "fixed": one.fixed, "verdict": one.verdict, "change": moved, **document}


def _lines(path: Path) -> Iterator[str]:
    text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    found = [line.strip() for line in text.splitlines()]
    questions = [line for line in found if line and not line.startswith("#")]
    if not questions:
        raise ConfigurationError(f"{path} asks nothing: write a question a line")
    yield from questions


def _document(question: Query, answers: Sequence[QueryAnswer]) -> dict[str, object]:
    rows = [{**asdict(answer), "window": answer.window.ends} for answer in answers]
    return {"question": question.text, "level": 95, "rows": rows}


def _sentences(question: Query, answers: Sequence[QueryAnswer]) -> Iterator[str]:
    yield question.text
    for answer in answers:
        days = f"{answer.window.first} to {answer.window.last}" if answer.window.days > 1 else f"{answer.window.last}"
        if answer.estimate is None:
            yield f"  {days}: cannot be told: {answer.untold}"
        else:
            ends = f"{answer.lower:.4g} to {answer.upper:.4g}"
            of = f"{answer.n:,} reports of at least {answer.devices:,} devices"
            yield f"  {days}: {answer.estimate:.4g} ({ends}), {of}"
    first = answers[0]
    yield f"  Intervals hold with 95 % for {HOLDS_WITH[first.family]}: z {first.z:.2f}."
