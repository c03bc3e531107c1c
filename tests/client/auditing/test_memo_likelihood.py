"""The likelihood of copies of a memo, beside a plain sum over all memos."""

from itertools import product
from math import log, prod
from typing import Any

import pytest

from dither.auditing.exact import Paths, law_of
from dither.auditing.laws import BitsLaw, Law, TableLaw
from dither.auditing.memo_likelihood import memo_likelihood
from dither.auditing.plans import law_of_permanent
from tests.support.audits import EVERY, of_metric, seeded

REPORTS = 6


def p_of(law: Law, outcome: int) -> float:
    if isinstance(law, BitsLaw):
        return prod(float(one if outcome >> place & 1 else 1 - one) for place, one in enumerate(law.ones))
    assert isinstance(law, TableLaw)
    return float(law.probabilities.get(outcome, 0))


@pytest.mark.parametrize("name", ["flag again", "grr again", "ss again", "pgr again", "oue again"])
def test_odds_of_two_answers_are_those_of_a_sum_over_all_memos(name: str) -> None:
    metric = of_metric(EVERY[name]).metrics["asked"]
    mechanism, rng = metric.mechanism, seeded(1)
    one, other = metric.kind.examples(metric.asked)[:2]
    memo = mechanism.first_stage.randomize(metric.class_of(metric.read(one), 0, rng), rng)
    reports = [mechanism.repeat(memo, rng) for _ in range(REPORTS)]

    def by_sum(answer: Any) -> float:
        law = law_of_permanent(metric, 0)(answer, Paths())
        memos: Any = (
            range(1 << len(law.ones))
            if isinstance(law, BitsLaw)
            else law.probabilities
            if isinstance(law, TableLaw)
            else ()
        )
        total = 0.0
        for memo in memos:
            sent = law_of(lambda rng: mechanism.repeat(memo, rng))  # noqa: B023
            total += p_of(law, memo) * prod(p_of(sent, report) for report in reports)
        return log(total)

    ours = {answer: memo_likelihood(metric, 0, answer) for answer in (one, other)}
    kept = {answer: each.likelihood(each.summary(reports)) for answer, each in ours.items()}
    assert kept[one] - kept[other] == pytest.approx(by_sum(one) - by_sum(other), rel=1e-9, abs=1e-9)
    for answer, cut in product((one, other), (0, 2)):
        halves = [ours[answer].summary(each) for each in (reports[:cut], reports[cut:])]
        assert ours[answer].likelihood(ours[answer].both(*halves)) == pytest.approx(kept[answer])
        assert ours[answer].together(*halves) == pytest.approx(kept[answer])
