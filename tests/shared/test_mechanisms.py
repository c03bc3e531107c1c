"""What must hold for every mechanism: its own code's exact law against what it declares."""

import random
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import pytest

from dither_shared.errors import InvalidParameter
from dither_shared.exact import exp_below, from_micro, to_micro
from dither_shared.mechanisms import GRR, MECHANISMS, OUE, PureMechanism, choose, from_parameters
from dither_shared.rng import SCALE, Rng
from tests.support.laws import law

EPSILONS = [Decimal(text) for text in ("0.01", "0.5", "1", "2", "4", "7.123456", "20")]
SMALL = [
    kind.for_epsilon(d, epsilon)
    for kind in MECHANISMS.values()
    for d in (2, 3, 5)
    for epsilon in (Decimal("0.5"), Decimal(2), Decimal(8))
]


def supports(mechanism: PureMechanism, report: int, value: int) -> bool:
    """The definition of support: the value that is named, or the bit that is set."""
    return report == value if isinstance(mechanism, GRR) else bool(report >> value & 1)


@pytest.mark.parametrize("mechanism", SMALL, ids=str)
class TestEveryMechanism:
    def test_probabilities_sum_to_one(self, mechanism: PureMechanism) -> None:
        for value in range(mechanism.d):
            assert sum(law(mechanism, value).values()) == 1

    def test_the_largest_ratio_is_the_declared_one(self, mechanism: PureMechanism) -> None:
        laws = [law(mechanism, value) for value in range(mechanism.d)]
        ratio = max(one[report] / other[report] for one in laws for other in laws for report in one)
        assert ratio == mechanism.exp_epsilon

    def test_every_answer_can_send_every_report(self, mechanism: PureMechanism) -> None:
        supports_of_law = [set(law(mechanism, value)) for value in range(mechanism.d)]
        assert all(one == supports_of_law[0] for one in supports_of_law)

    def test_support_probabilities_are_p_and_q(self, mechanism: PureMechanism) -> None:
        for answer in range(mechanism.d):
            probabilities = law(mechanism, answer)
            for value in range(mechanism.d):
                supported = sum(pr for report, pr in probabilities.items() if supports(mechanism, report, value))
                assert supported == (mechanism.p if value == answer else mechanism.q)

    def test_the_estimate_is_unbiased_in_exact_arithmetic(self, mechanism: PureMechanism) -> None:
        truth = [Fraction(weight + 1, sum(range(1, mechanism.d + 1))) for weight in range(mechanism.d)]
        for value in range(mechanism.d):
            expected = sum(
                truth[answer] * probability
                for answer in range(mechanism.d)
                for report, probability in law(mechanism, answer).items()
                if supports(mechanism, report, value)
            )
            assert (expected - mechanism.q) / (mechanism.p - mechanism.q) == truth[value]

    def test_average_variance_is_that_of_the_exact_law(self, mechanism: PureMechanism) -> None:
        """One report for the answer 0: the variance of each value's estimate, averaged."""
        p, q, d = mechanism.p, mechanism.q, mechanism.d
        total = Fraction(0)
        for value in range(d):
            hit = sum(pr for report, pr in law(mechanism, 0).items() if supports(mechanism, report, value))
            total += hit * (1 - hit) / (p - q) ** 2
        assert mechanism.average_variance == total / d

    def test_reports_are_in_the_declared_shape(self, mechanism: PureMechanism) -> None:
        for report in law(mechanism, 0):
            assert mechanism.shape.from_wire(mechanism.shape.to_wire(report)) == report

    def test_parameters_make_the_same_mechanism_again(self, mechanism: PureMechanism) -> None:
        assert from_parameters(mechanism.name, mechanism.parameters()) == mechanism


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("d", [2, 3, 16, 128, 1024, 65_536])
@pytest.mark.parametrize("kind", MECHANISMS.values(), ids=lambda kind: kind.name)
def test_declared_epsilon_is_just_below_the_wanted_one(kind: type[PureMechanism], d: int, epsilon: Decimal) -> None:
    mechanism = kind.for_epsilon(d, epsilon)
    wanted = exp_below(epsilon)
    assert wanted * (1 - Fraction(1, 10**8)) < mechanism.exp_epsilon <= wanted
    assert mechanism.charge == to_micro(epsilon)
    assert from_micro(mechanism.charge) == float(epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("d", [2, 3, 128, 65_536])
def test_thresholds_are_the_tightest(d: int, epsilon: Decimal) -> None:
    """One step further would exceed the wanted epsilon."""
    grr, oue, wanted = GRR.for_epsilon(d, epsilon), OUE.for_epsilon(d, epsilon), exp_below(epsilon)
    assert GRR(d, grr.threshold + 1).exp_epsilon > wanted
    assert OUE(d, oue.threshold_p, oue.threshold_q - 1).exp_epsilon > wanted


def test_the_threshold_of_keep_or_uniform_would_be_caught() -> None:
    """The classic wrong threshold: it belongs to a mechanism whose other branch may send the answer too."""
    e, d = exp_below(Decimal(2)), 5
    wrong = GRR(d, int(SCALE * (e - 1) / (e + d - 1)))
    assert wrong.exp_epsilon < e * Fraction(9, 10)


class KeepOrUniform(GRR):
    """A planted bug: the other branch is uniform over all values, the answer included."""

    def randomize(self, value: int, rng: Rng) -> int:
        keep, other = rng.coin(self.threshold), rng.uniform(self.d)
        return value if keep else other


class Swapped(OUE):
    """A planted bug: p and q have changed places."""

    def randomize(self, value: int, rng: Rng) -> int:
        noise = rng.coins(self.threshold_p, self.d)
        return noise & ~(1 << value) | rng.coin(self.threshold_q) << value


@pytest.mark.parametrize("bug", [KeepOrUniform, Swapped], ids=lambda bug: bug.__name__)
def test_planted_bugs_are_caught(bug: type[PureMechanism]) -> None:
    mechanism = bug.for_epsilon(3, Decimal(2))
    supported = sum(pr for report, pr in law(mechanism, 1).items() if supports(mechanism, report, 1))
    assert supported != mechanism.p


@pytest.mark.parametrize("kind", MECHANISMS.values(), ids=lambda kind: kind.name)
def test_the_sampler_follows_its_law_with_real_coins(kind: type[PureMechanism]) -> None:
    """Seeded, 20,000 draws for each of 4 answers: no count 5 sigma from its law (over seeds, a false alarm of 4e-5)."""
    mechanism = kind.for_epsilon(4, Decimal(1))
    rng, runs = Rng(random.Random(7).getrandbits), 20_000
    assert _farthest(mechanism, rng, runs) < 5


def test_a_spoiled_sampler_is_caught_with_real_coins() -> None:
    rng = Rng(random.Random(7).getrandbits)
    assert _farthest(KeepOrUniform.for_epsilon(4, Decimal(1)), rng, 20_000, GRR.for_epsilon(4, Decimal(1))) > 5


def _farthest(mechanism: PureMechanism, rng: Rng, runs: int, declared: PureMechanism | None = None) -> float:
    """Return the largest distance of a report's count from its law, in sigmas."""
    worst = 0.0
    for value in range(mechanism.d):
        counts = Counter(mechanism.randomize(value, rng) for _ in range(runs))
        for report, exact in law(declared or mechanism, value).items():
            probability = float(exact)
            sigma = (runs * probability * (1 - probability)) ** 0.5
            worst = max(worst, abs(counts[report] - runs * probability) / sigma)
    return worst


def test_edges_that_the_proofs_do_not_cover_are_refused() -> None:
    for d, threshold in [(1, SCALE // 2), (2, SCALE), (2, SCALE // 2), (4, SCALE // 4), (3, -1)]:
        with pytest.raises(InvalidParameter):
            GRR(d, threshold)
    for d, p, q in [(1, SCALE // 2, 1), (3, SCALE // 2, 0), (3, SCALE, 1), (3, 5, 5), (3, 4, 5)]:
        with pytest.raises(InvalidParameter):
            OUE(d, p, q)
    with pytest.raises(InvalidParameter, match="one of"):
        from_parameters("laplace", {})
    with pytest.raises(InvalidParameter, match="does not take"):
        from_parameters("grr", {"d": 2})


def test_the_choice_is_grr_for_few_values_and_oue_for_many() -> None:
    assert [choose(d, Decimal(2)).name for d in (2, 3, 24, 264)] == ["grr", "grr", "oue", "oue"]
    assert choose(16, Decimal(4)).name == "grr"
    assert choose(513, Decimal("0.5")).name == "grr"  # an OUE report would be too long


def test_the_choice_is_within_three_percent_of_the_best() -> None:
    for d in range(2, 200, 7):
        for epsilon in EPSILONS:
            best = min(kind.for_epsilon(d, epsilon).average_variance for kind in MECHANISMS.values())
            assert choose(d, epsilon).average_variance <= best * Fraction(103, 100)
