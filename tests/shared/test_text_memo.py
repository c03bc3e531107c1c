"""A text's memo: the choice between RAPPOR and a hashed bucket, and the exact laws of the latter."""

from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import cast

import pytest

from dither_shared.accounting import linked_share
from dither_shared.domains import Hashed, Verbatim
from dither_shared.errors import RegistryError
from dither_shared.exact import exp_below
from dither_shared.kinds import TextKind
from dither_shared.kinds.text_memo import LINKED_MAX, WORSE_MAX, bucket_variance, choose_memo, choose_rappor
from dither_shared.mechanisms import DEVICE, DEVICE_CELLS_MAX, RAPPOR, Cells, MemoizedTwoLevel, Part
from dither_shared.registry import Metric
from dither_shared.rng import Rng
from tests.support.laws import Law, largest_ratio, law_of, law_of_class
from tests.support.registries import registry
from tests.support.soaking import thinned

KIND = TextKind()
NEAR = 1 - Fraction(1, 10**9)
EPSILONS = (("0.5", "2"), ("1", "2"), ("1", "4"), ("2", "4"), ("2", "8"))
NO_COINS = Rng(lambda bits: pytest.fail("a bucket needs no coins"))


def text(lines: str = "", epsilon: str = "1", permanent: str = "4", **keys: object) -> Metric:
    return registry(
        kind="text", epsilon=epsilon, epsilon_permanent=permanent, color=lines, device_epsilon="100", **keys
    ).metrics["color"]


def memo_of(metric: Metric) -> MemoizedTwoLevel:
    assert isinstance(metric.mechanism, MemoizedTwoLevel)
    return metric.mechanism


@pytest.mark.parametrize(("epsilon", "permanent"), EPSILONS)
def test_the_hashed_memo_links_less_at_about_the_same_error(epsilon: str, permanent: str) -> None:
    cells, rappor = choose_memo(Decimal(epsilon), Decimal(permanent), 100)
    bloom = choose_rappor(Decimal(epsilon), Decimal(permanent), 100, DEVICE_CELLS_MAX)
    assert rappor == Cells((Part(bloom, DEVICE_CELLS_MAX),), DEVICE)
    memo = cells.mechanism
    assert isinstance(memo, MemoizedTwoLevel)
    assert linked(cells) <= LINKED_MAX * linked(rappor)
    assert bucket_variance(memo) <= WORSE_MAX * cast("RAPPOR", rappor.mechanism).noise_variance
    assert cells.count * (memo.d - 1) >= 250
    assert cells.count >= 8
    assert (cells.drawn, cells.report_bits < 7 < rappor.report_bits) == (DEVICE, True)


def linked(cells: Cells) -> float:
    share = linked_share((cells,))
    assert share is not None
    return share


@pytest.mark.parametrize(
    ("epsilon", "permanent", "expected"), [("1", "4", 1_000), ("0.5", "1", 100), ("4", "8", 100), ("8", "16", 5)]
)
def test_rappor_stays_where_a_bucket_would_be_worse_or_link_as_many(
    epsilon: str, permanent: str, expected: int
) -> None:
    assert isinstance(choose_memo(Decimal(epsilon), Decimal(permanent), expected)[0].mechanism, RAPPOR)
    assert isinstance(text(epsilon=epsilon, permanent=permanent).mechanism, RAPPOR)  # 1,000 by default


def test_one_of_them_can_be_asked_for() -> None:
    few = "candidates_expected = 100"
    assert isinstance(text(few).asked.domain, Hashed)
    assert isinstance(text(f'{few}\nmechanism = "rappor"').asked.domain, Verbatim)
    assert isinstance(text('mechanism = "pgr"').mechanism, MemoizedTwoLevel)
    for lines, message in (
        ('mechanism = "grr"', 'mechanism must be "rappor" or "pgr"'),
        ('candidates_expected = 100000\nmechanism = "pgr"', "are too much for a hashed memo"),
        ('parameter_set = "google_default"\nmechanism = "rappor"', "must be left out where the parameters are given"),
        (f'{few}\ncandidates = ["other"]', 'must leave out "other"'),
    ):
        with pytest.raises(RegistryError, match=message):
            text(lines)


def answers(domain: Hashed) -> list[str | tuple[int, ...]]:
    return [*(f"text {number}" for number in range(8)), domain.unread(), domain.nothing()]


def law_of_first(metric: Metric, read: str | tuple[int, ...], cohort: int) -> Law:
    """The law of one report, of a memo that is drawn with it."""
    return law_of_class(metric.mechanism, metric.class_of(read, cohort, NO_COINS))


def law_of_memo(metric: Metric, read: str | tuple[int, ...], cohort: int) -> Law:
    permanent, seen = memo_of(metric).permanent, metric.class_of(read, cohort, NO_COINS)
    return law_of_class(permanent, seen)


@pytest.mark.parametrize(("epsilon", "permanent"), thinned(EPSILONS, 2))
def test_one_report_and_all_reports_lose_what_is_declared(epsilon: str, permanent: str) -> None:
    """All reports together tell no more than the memo does: given that, they are fresh noise."""
    metric = text("candidates_expected = 100", epsilon, permanent, presence="hidden")
    domain = metric.asked.domain
    assert isinstance(domain, Hashed)
    for law, charge, wanted in (
        (law_of_first, metric.cells.exp_epsilon, exp_below(Decimal(epsilon))),
        (law_of_memo, memo_of(metric).permanent.exp_epsilon, exp_below(Decimal(permanent))),
    ):
        laws = [law(metric, read, cohort % metric.cells.count) for cohort, read in enumerate(answers(domain))]
        assert all(sum(each.values()) == 1 for each in laws)
        assert largest_ratio(laws) == charge
        assert wanted * NEAR < charge <= wanted


def test_a_repeated_report_knows_nothing_but_its_memo() -> None:
    metric = text("candidates_expected = 100")
    memo = memo_of(metric)
    for symbol in (0, 5):
        law = law_of(partial(memo.repeat, symbol))
        others = {probability for report, probability in law.items() if report != symbol}
        assert len(others) == 1
        assert sum(law.values()) == 1


def test_a_memo_that_sees_the_text_past_its_bucket_is_caught() -> None:
    """A planted bug: two texts of one bucket have one law, or the memo would be of the text."""
    metric = text("candidates_expected = 100")
    domain = metric.asked.domain
    assert isinstance(domain, Hashed)
    same = [f"text {number}" for number in range(200) if domain.bucket(f"text {number}", 1) == 3][:2]
    assert law_of_first(metric, same[0], 1) == law_of_first(metric, same[1], 1)
    spoiled = law_of_class(metric.mechanism, (metric.class_of(same[1], 1, NO_COINS) + 1) % domain.buckets)
    assert law_of_first(metric, same[0], 1) != spoiled
