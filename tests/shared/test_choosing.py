"""The page that helps to choose has the planner's figures."""

import re

from dither.commands.metrics.new import EPSILON, REPORTS
from dither_shared.accounting import percent_exactly, sure
from dither_shared.exact import MICRO, exp_of_micro
from tests.choosing import PAGE, SIZES, TABLES, written

TEXT = PAGE.read_text(encoding="utf-8")


def test_its_tables_are_what_the_planner_computes() -> None:
    assert written(TEXT) == TEXT, "run python -m tests.choosing"
    assert all(len(list(table())) >= 4 for table in TABLES.values())


def test_a_figure_that_was_changed_by_hand_is_found() -> None:
    row = next(line for line in TEXT.splitlines() if line.startswith("| a flag |"))
    assert written(TEXT.replace(row, row.replace(" %", "1 %", 1))) == TEXT


def test_its_examples_are_of_the_three_sizes_and_the_starters_keys() -> None:
    assert re.findall(r"\*\*.* with ([\d,]+) installs\*\*", TEXT) == [f"{size:,}" for size in SIZES]
    assert f"`epsilon = {EPSILON}`, `reports = {REPORTS}`" in TEXT


def test_its_guesses_are_what_the_odds_say() -> None:
    (epsilons,), (guesses,) = (
        re.findall(rf"^    {name} +(.*)$", TEXT, re.MULTILINE) for name in ("epsilon in all", "a guess becomes")
    )
    for epsilon, guess in zip(epsilons.split(), re.findall(r"[\d.]+", guesses), strict=True):
        assert guess == percent_exactly(sure(exp_of_micro(int(epsilon) * MICRO)))
