"""Fresh texts: public rows and hashes, the exact law of a report, and what no text equals."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from hashlib import sha256

import numpy as np
import numpy.typing as npt
import pytest

from dither_shared.domains import Hashed
from dither_shared.errors import RegistryError
from dither_shared.exact import exp_below
from dither_shared.frozen import replaced
from dither_shared.kinds import Answer
from dither_shared.kinds.text import BUCKETS, ROWS, TextKind
from dither_shared.mechanisms import PGR, Cells, Part, PureMechanism
from dither_shared.registry import Metric
from dither_shared.rng import Rng
from tests.support.laws import Law, largest_ratio, law_of, law_of_class
from tests.support.registries import registry

EPSILONS = ("0.5", "1", "2", "4")
FEW = 13
"""Buckets that can be enumerated."""
TEXTS = ("", "a", "other", "none", "text:", "é", "b" * 200)
KIND = TextKind()
NEAR = 1 - Fraction(1, 10**9)
NO_COINS = Rng(lambda bits: pytest.fail("a text needs no coins of its own"))
REPORTS = 1 << 32


def text(epsilon: str, lines: str = "", **keys: object) -> Metric:
    return registry(kind="text", reports=1, epsilon=epsilon, color=lines, **keys).metrics["color"]


def small(epsilon: str, *, hidden: bool = False) -> tuple[Hashed, Cells]:
    """The domain and cells of the registry, with buckets that can be enumerated."""
    mechanism = PGR.for_design(FEW, 3, 3, Decimal(epsilon))
    return Hashed("site", FEW, hidden), Cells((Part(mechanism, ROWS),))


def answers(domain: Hashed) -> list[Answer]:
    texts: list[object] = [*TEXTS, *map(str, range(30)), None]
    return [KIND.read(each, domain) for each in texts] + [KIND.nothing(domain)] * domain.hidden


def law_of_text(domain: Hashed, cells: Cells, read: Answer, draw: Callable[[Rng], int] | None = None) -> Law:
    """Return the probability of every row and report."""
    mixed: Law = {}
    for row, share in law_of(draw or cells.draw).items():
        for report, probability in law_of_class(cells.mechanism_of(row), class_of(domain, cells, read, row)).items():
            outcome = row * REPORTS + report
            mixed[outcome] = mixed.get(outcome, Fraction(0)) + share * probability
    return mixed


def class_of(domain: Hashed, cells: Cells, read: Answer, row: int) -> int:
    return KIND.class_of(read, domain, cells, row, NO_COINS)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_one_report_loses_the_epsilon_of_its_mechanism_and_rows_are_equally_likely(epsilon: str, hidden: bool) -> None:
    domain, cells = small(epsilon, hidden=hidden)
    laws = [law_of_text(domain, cells, read) for read in answers(domain)]
    assert all(sum(law.values()) == 1 for law in laws)
    assert largest_ratio(laws) == cells.exp_epsilon
    for law in laws:
        check_rows(law)


def check_rows(law: Law) -> None:
    shares = dict.fromkeys(range(ROWS), Fraction(0))
    for outcome, probability in law.items():
        shares[outcome // REPORTS] += probability
    assert set(shares.values()) == {Fraction(1, ROWS)}


def test_a_row_chosen_from_the_text_is_caught() -> None:
    domain, cells = small("1")

    def by_length(read: Answer, rng: Rng) -> int:
        return min(rng.uniform(ROWS), len(read))

    laws = [law_of_text(domain, cells, read, partial(by_length, read)) for read in answers(domain)]
    with pytest.raises((AssertionError, ZeroDivisionError)):
        assert largest_ratio(laws) == cells.exp_epsilon
    with pytest.raises(AssertionError):
        check_rows(laws[0])


@pytest.mark.parametrize("epsilon", [*EPSILONS, "8"])
def test_a_registry_makes_rows_of_that_kind_at_the_whole_epsilon(epsilon: str) -> None:
    metric = text(epsilon)
    (part,) = metric.cells.parts
    mechanism = part.mechanism
    assert isinstance(mechanism, PGR)
    assert isinstance(metric.asked.domain, Hashed)
    assert (part.cells, metric.asked.domain.buckets, mechanism.d) == (ROWS, BUCKETS, BUCKETS)
    wanted = exp_below(Decimal(epsilon))
    assert wanted * NEAR < metric.cells.exp_epsilon <= wanted
    assert (metric.memoized, metric.cells.lasting, metric.cells.drawn) == (False, 0, "report")


@pytest.mark.parametrize(("epsilon", "most"), [("0.5", 1.01), ("1", 1.03), ("1.5", 1.03), ("2", 1.02), ("4", 1.01)])
def test_the_error_is_that_of_the_bound(epsilon: str, most: float) -> None:
    """4 e^eps / (e^eps - 1)^2 (Ye and Barg 2018)."""
    metric, e = text(epsilon), float(exp_below(Decimal(epsilon)))
    assert 1 <= float(metric.noise_variance) * (e - 1) ** 2 / (4 * e) < most


def test_a_bucket_is_the_multiply_shift_of_a_hash_that_names_metric_and_row() -> None:
    metric = text("1")
    for answer, typed in (("word", b"text:word"), ("é", "text:é".encode()), ("", b"text:"), (None, b"other")):
        for row in range(ROWS):
            a = int.from_bytes(sha256(f"dither text|color|{row}".encode()).digest()[:8], "big") | 1
            x = int.from_bytes(sha256(typed).digest()[:8], "big")
            bucket = (a * x % 2**64) >> 47
            mechanism = metric.cells.mechanism_of(row)
            assert isinstance(mechanism, PureMechanism)
            assert metric.class_of(metric.read(answer), row, NO_COINS) == mechanism.class_of([bucket])


def test_no_text_is_hashed_as_what_is_no_text() -> None:
    domain = Hashed("site", BUCKETS, hidden=True)
    numbers = {domain.number(read) for read in ("other", "none", "text:other", *(domain.unread(), domain.nothing()))}
    assert len(numbers) == 5
    assert (
        domain.number(KIND.read("x" * 201, domain))
        == domain.number(KIND.read(7, domain))
        == domain.number(domain.unread())
    )
    assert [KIND.names(read, domain) for read in ("other", domain.unread(), domain.nothing())] == [
        ("other",),
        ("other",),
        ("none",),
    ]
    assert domain.untexts == ("other", "none")
    assert Hashed("site", BUCKETS).untexts == ("other",)


def test_the_hash_stays_with_the_metrics_name_whatever_its_rev_or_epsilon() -> None:
    def buckets(metric: Metric) -> list[int]:
        domain = metric.asked.domain
        assert isinstance(domain, Hashed)
        return [domain.bucket(each, row) for each in TEXTS for row in range(ROWS)]

    usual = buckets(text("1"))
    assert buckets(text("1", rev=7)) == buckets(text("4")) == buckets(text("1", presence="hidden"))
    assert buckets(text("1")) == usual
    assert usual != [Hashed("colour", BUCKETS).bucket(each, row) for each in TEXTS for row in range(ROWS)]
    rows = [usual[row::ROWS] for row in range(ROWS)]
    assert len({tuple(row) for row in rows}) == ROWS


def test_texts_that_share_a_bucket_hardly_ever_share_another() -> None:
    """1,526 pairs of 20,000 texts are expected in a row, sd 39; in two rows at once .012. A false alarm: below 1e-6."""
    domain = Hashed("site", BUCKETS)
    texts = [f"word {number}" for number in range(20_000)]
    rows = [[domain.bucket(each, row) for each in texts] for row in range(ROWS)]
    for row in rows:
        assert abs(pairs(row) - 20_000 * 19_999 / 2 / BUCKETS) < 6 * 39
    for one in range(ROWS):
        for other in range(one):
            assert pairs(list(zip(rows[one], rows[other], strict=True))) <= 3


def pairs(found: Sequence[object]) -> int:
    counts: dict[object, int] = {}
    for each in found:
        counts[each] = counts.get(each, 0) + 1
    return sum(count * (count - 1) // 2 for count in counts.values())


HashOf = Callable[[Metric], Hashed]
NEWER = (text("1", rev=2), text("4", rev=3), text("1", presence="hidden", rev=4))
"""Revs that may follow the first one, `text("1")`."""


def test_what_others_add_to_a_text_is_the_same_in_every_rev() -> None:
    check_additions_stay(hash_of)


def test_a_salt_that_changes_with_the_rev_or_the_plan_is_caught() -> None:
    """Planted bugs. Between two revs nobody changed a text, and yet shares would seem to have risen and fallen."""

    def of_rev(metric: Metric) -> Hashed:
        return replaced(hash_of(metric), salt=f"{metric.name}|{metric.rev}")

    def of_plan(metric: Metric) -> Hashed:
        return replaced(hash_of(metric), salt=f"{metric.name}|{metric.plan.digest}")

    for planted in (of_rev, of_plan):
        with pytest.raises(AssertionError):
            check_additions_stay(planted)
        moved = np.abs(additions(planted(text("1"))) - additions(planted(NEWER[0])))
        assert moved.max() > 0.01


def hash_of(metric: Metric) -> Hashed:
    domain = metric.asked.domain
    assert isinstance(domain, Hashed)
    return domain


def check_additions_stay(domain_of: HashOf) -> None:
    usual = additions(domain_of(text("1")))
    assert usual.max() > 0.01
    for newer in NEWER:
        assert np.array_equal(additions(domain_of(newer)), usual)


def additions(domain: Hashed, texts: int = 2_000) -> npt.NDArray[np.float64]:
    """Return what all others add to the share that is estimated of each of many texts, by Zipf's law: float64[texts].

    Others that share a text's bucket in a row count there, and each row is of a quarter of the reports. There are few
    buckets, so that some texts share one with those that many have.
    """
    domain = replaced(domain, buckets=1_024)
    shares = 1 / np.arange(1, texts + 1)
    shares /= shares.sum()
    added = np.zeros(texts)
    for row in range(ROWS):
        _, places = np.unique([domain.bucket(f"word {number}", row) for number in range(texts)], return_inverse=True)
        added += (np.bincount(places, shares)[places] - shares) / ROWS
    return added


@pytest.mark.parametrize(
    ("lines", "presence", "message"),
    [
        ("epsilon_permanent = 4", "public", "epsilon_permanent is for memoized answers"),
        ('parameter_set = "google_default"', "public", "parameter_set is for memoized answers"),
        ('candidates = ["a", "other"]', "public", 'candidates must leave out "other"'),
        ('candidates = ["none"]', "hidden", 'candidates must leave out "none"'),
        ('mechanism = "grr"', "public", "mechanism is not a key"),
    ],
)
def test_keys_of_other_texts_are_refused(lines: str, presence: str, message: str) -> None:
    with pytest.raises(RegistryError, match=message):
        text("1", lines, presence=presence)


def test_where_presence_is_public_none_is_a_text_like_any_other() -> None:
    metric = text("1", 'candidates = ["a", "none"]')
    domain = metric.asked.domain
    assert isinstance(domain, Hashed)
    assert domain.number(domain.named("none")) == domain.number(metric.read("none"))
    assert domain.number(domain.named("other")) == domain.number(metric.read(None)) != domain.number("other")
    assert KIND.offer(metric.asked).listed == ("a", "none")
