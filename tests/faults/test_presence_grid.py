"""Two real lives that differ in hidden answers alone leave the same uploads and files, however and whenever they end.

`presence_lives.py` is the program that lives them. The uploads are the same, on the same days, of the same groups and
lengths. After the next starts the files are the same byte by byte, but for what reports say and SQLite's count of
commits, and there are as many bytes of log; of memoized metrics the file shows by design which answers were charged.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from dither.device import FILE_NAME
from tests.faults.presence_lives import ENDINGS, FAULTS, STEPS, Case
from tests.support.aggregators import ENVIRONMENT
from tests.support.soaking import SOAK, thinned

ROOT = Path(__file__).parents[2]
COMMITS_COUNTED = {*range(24, 28), *range(92, 96)}

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")]

ONCE_TOLD = [
    *(Case("unlooked", "kill"), Case("settling", "_exit"), Case("unlooked", "exit", "401", "spread")),
    *(Case("unlooked", "mended"), Case("settling", "mended")),
]
"""Lives that told, as long as an answer opened its period: at each end with no look after the answer, and by one 401.

Uploads told it too, until one report of a metric left a day.
"""
ONCE = [
    *ONCE_TOLD,
    *(Case("unlooked", ENDINGS[place % len(ENDINGS)], fault) for place, fault in enumerate(FAULTS)),
    Case("looked", "child", "thread"),
    Case("midnight", "threads"),
    Case("answered", "suspend", memoized=True),
    Case("unlooked", "exit", memoized=True, processes=2),
    Case("settling", "parent", processes=3),
]
"""Each cause once: all together are a soak's."""

GRID = [
    [
        Case(step, ending, fault, schedule, memoized, processes)
        for step, fault, schedule, memoized, processes in product(
            STEPS, ("", *FAULTS), ("early", "spread"), (False, True), (1, 2, 3)
        )
        if not (memoized and schedule == "spread")  # a memo answers in every period
    ]
    for ending in ENDINGS
]
"""All of them together, by ending."""


def live(home: Path, cases: Sequence[Case], *planted: str) -> list[str]:
    """Return the cases in which the two lives can be told apart, and by what."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.presence_lives", home, *planted],
        input="".join(json.dumps(case) + "\n" for case in cases),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(str(ROOT / room) for room in ("client", "shared", "."))},
        timeout=7_000 if SOAK else 280,
        check=False,
    )
    assert not done.returncode, done.stderr[-4_000:]
    assert not done.stderr, done.stderr[-4_000:]
    told = [(case, told_apart(home, place, case)) for place, case in enumerate(cases)]
    return [f"{by}: {case}" for case, by in told if by]


def told_apart(home: Path, place: int, case: Case) -> str:
    """Return what tells the lives of a case apart; "" if nothing does."""
    silent, answers = (home / f"{place}-{says}" for says in ("silent", "answers"))
    uploads = [(life / "uploads").read_text() for life in (silent, answers)]
    if uploads[0] != uploads[1]:
        return f"uploads, {uploads[0]} without answers and {uploads[1]} with them"
    if case.memoized:
        return ""
    names = [{path.name: path.stat().st_size for path in (life / "device").iterdir()} for life in (silent, answers)]
    if names[0] != names[1]:
        return f"the files' lengths, {names[0]} without answers and {names[1]} with them"
    one, other = (REPORT.sub(masked, (life / "device" / FILE_NAME).read_bytes()) for life in (silent, answers))
    apart = {at for at, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]} - COMMITS_COUNTED
    return f"the bytes at {sorted(apart)[:8]}" if apart else ""


REPORT = re.compile(rb'(?<="reports":\[)"?[\w-]+"?(?=\])|"?[\w-]+"?(?=  )')
"""A report, in an upload and in its slot, where it is followed by white space."""


def masked(report: re.Match[bytes]) -> bytes:
    return b"#" * len(report[0])


@pytest.mark.parametrize("cases", [ONCE, *GRID] if SOAK else [ONCE], ids=lambda cases: cases[-1].ending)
def test_lives_that_end_anywhere_do_not_tell_who_has_answers(home: Path, cases: Sequence[Case]) -> None:
    assert live(home, cases) == []


def test_an_answer_that_opens_its_period_is_told_by_files(home: Path) -> None:
    told = thinned(ONCE_TOLD, 0, 2)  # by an end and by a 401
    assert len(live(home, told, "planted")) == len(told)
