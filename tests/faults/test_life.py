"""Years of two devices under any schedule of answers, faults, releases and choices.

Hypothesis draws short lives and shrinks what fails; a walk goes on for years. Both are the same in every run.
"""

import pytest

from tests.faults.schedules import live_long, live_shortly
from tests.support.soaking import scaled, thinned

pytestmark = pytest.mark.slow


def test_no_schedule_exceeds_a_budget_counts_twice_or_lets_an_answer_decide_a_silence() -> None:
    live_shortly(scaled(2, 3_000), scaled(40, 80))


@pytest.mark.parametrize("seed", thinned(range(60), 1))
def test_nothing_goes_wrong_in_many_years(seed: int) -> None:
    silences = {"answered", "forgotten", "not-agreed", "refused", "spent", "unscheduled", "waiting"}
    pair = live_long(seed, scaled(1, 10), silences)
    assert pair.said.keys() >= {"", *silences}
    assert pair.left.total() > 30
