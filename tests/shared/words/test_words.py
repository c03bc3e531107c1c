"""The kind: public cells and hashes, the exact law of a report, and what no text equals."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial

import pytest

from dither_shared.domains import Coded
from dither_shared.errors import RegistryError
from dither_shared.exact import exp_below
from dither_shared.kinds import Answer, WordsKind
from dither_shared.mechanisms import PGR, Cells, Part
from dither_shared.plan import Plan
from dither_shared.registry import Metric
from dither_shared.rng import Rng
from dither_shared.text_normalization import unseen
from dither_shared.words import code as groups
from dither_shared.words.code import BUCKETS, LAYOUTS, PROPOSED, ROWS
from tests.shared.test_safe_output import texts
from tests.support.laws import Law, largest_ratio, law_of, law_of_class
from tests.support.registries import registry
from tests.support.soaking import scaled

FEW = 13
"""Buckets that can be enumerated."""
KIND = WordsKind()
LAYOUT = LAYOUTS["short"]
REPORTS = 1 << 32
NO_COINS = Rng(lambda bits: pytest.fail("a text needs no coins of its own"))
TEXTS = ("", "a", "other", "none", "Windows 11", "é" * 200, "a text that goes on behind the last level")


def words(epsilon: str = "2", lines: str = "", **keys: object) -> Metric:
    return registry(kind="words", reports=1, epsilon=epsilon, color=lines, **keys).metrics["color"]


def domain_of(metric: Metric) -> Coded:
    assert isinstance(metric.asked.domain, Coded)
    return metric.asked.domain


def answers(domain: Coded) -> list[Answer]:
    return [KIND.read(each, domain) for each in (*TEXTS, None)] + [KIND.nothing(domain)] * domain.hidden


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> tuple[Coded, Cells]:
    """The domain and cells of the registry, with buckets that can be enumerated."""
    monkeypatch.setattr(groups, "BUCKETS", FEW)
    mechanism = PGR.for_design(FEW, 3, 3, Decimal(1))
    parts = tuple(Part(mechanism, ROWS, weight) for weight in LAYOUT.weights)
    return Coded("site", LAYOUT.levels, hidden=True), Cells(parts)


def law_of_text(domain: Coded, cells: Cells, read: Answer, draw: Callable[[Rng], int] | None = None) -> Law:
    """Return the probability of every cell and report."""
    mixed: Law = {}
    for cell, share in law_of(draw or cells.draw).items():
        seen = KIND.class_of(read, domain, cells, cell, NO_COINS)
        for report, probability in law_of_class(cells.mechanism_of(cell), seen).items():
            outcome = cell * REPORTS + report
            mixed[outcome] = mixed.get(outcome, Fraction(0)) + share * probability
    return mixed


def shares_of_groups(law: Law) -> list[Fraction]:
    shares = [Fraction(0)] * len(LAYOUT.weights)
    for outcome, probability in law.items():
        shares[outcome // REPORTS // ROWS] += probability
    return shares


def test_one_report_loses_the_epsilon_of_its_mechanism_and_groups_have_their_shares(small: tuple[Coded, Cells]) -> None:
    domain, cells = small
    laws = [law_of_text(domain, cells, read) for read in answers(domain)]
    assert largest_ratio(laws) == cells.exp_epsilon
    for law in laws:
        assert shares_of_groups(law) == [Fraction(weight, sum(LAYOUT.weights)) for weight in LAYOUT.weights]


def test_a_level_chosen_by_the_length_of_the_text_is_caught(small: tuple[Coded, Cells]) -> None:
    domain, cells = small

    def by_length(read: Answer, rng: Rng) -> int:
        """The planted bug: short texts need no late level."""
        cell = cells.draw(rng)
        return cell if len(read) * 5 > LAYOUT.levels[0] else cell % ROWS

    laws = [law_of_text(domain, cells, read, partial(by_length, read)) for read in answers(domain)]
    with pytest.raises(AssertionError):
        largest_ratio(laws)
    assert len({tuple(shares_of_groups(law)) for law in laws}) > 1


def test_a_registry_makes_cells_of_the_whole_epsilon() -> None:
    metric = words("2")
    wanted = exp_below(Decimal(2))
    assert wanted * (1 - Fraction(1, 10**9)) < metric.cells.exp_epsilon <= wanted
    assert [(part.cells, part.weight) for part in metric.cells.parts] == [(ROWS, weight) for weight in LAYOUT.weights]
    assert (metric.memoized, metric.cells.lasting, metric.cells.drawn) == (False, 0, "report")
    assert {part.mechanism.parameters()["d"] for part in metric.cells.parts} == {BUCKETS}
    assert domain_of(metric) == Coded("color", LAYOUT.levels)


def test_the_error_is_that_of_the_bound_with_the_reports_of_the_verification_group() -> None:
    """4 e^eps / (e^eps - 1)^2 (Ye and Barg 2018), of three tenths of the reports."""
    e = float(exp_below(Decimal(2)))
    assert 1 <= 0.3 * float(words("2").noise_variance) * (e - 1) ** 2 / (4 * e) < 1.02


def test_the_registry_says_how_long_words_are_and_whether_capitals_matter() -> None:
    domain = domain_of(words(lines='length = "long"\ncasefold = true', presence="hidden"))
    assert (domain.levels, domain.casefold, domain.hidden) == (LAYOUTS["long"].levels, True, True)


@pytest.mark.parametrize(
    "line", ["memoize = true", "candidates = ['a']", "candidates_expected = 5", "length = 'middling'", "casefold = 1"]
)
def test_keys_that_words_do_not_have_are_refused(line: str) -> None:
    with pytest.raises(RegistryError, match=line.split()[0]):
        words(lines=line)


def test_plans_are_told_apart_by_what_a_report_means_and_made_again_from_documents() -> None:
    metrics = [words(), words(lines="casefold = true"), words(lines='length = "long"'), words(presence="hidden")]
    assert len({metric.plan.digest for metric in metrics}) == 4
    for metric in metrics:
        assert Plan.from_document(metric.plan.to_document()) == metric.plan


def test_a_text_is_read_in_one_form() -> None:
    plain, folded = Coded("site", LAYOUT.levels), Coded("site", LAYOUT.levels, casefold=True)
    assert KIND.read(" e\u0301\n", plain) == "é"
    assert KIND.read("STRASSE Straße", folded) == "strasse strasse"
    assert KIND.read("\udc80", plain) == "?"
    assert [KIND.names(KIND.read(each, plain), plain) for each in (None, 3, b"a", "x" * 201)] == [("other",)] * 4


def test_no_text_is_coded_as_what_is_none() -> None:
    domain = Coded("site", LAYOUT.levels, hidden=True)
    typed = {domain.typed(read) for read in (*answers(domain), "\xfe", "\xff")}
    assert len(typed) == len(TEXTS) + 4
    assert len({domain.shown(each) for each in typed}) == len(typed)
    assert {domain.shown(domain.typed(read)) for read in ("other", "none")} == {"“other”", "“none”"}


def test_buckets_stay_with_the_metrics_name_whatever_its_rev_or_epsilon() -> None:
    def buckets(metric: Metric) -> list[int]:
        return [domain_of(metric).bucket(text, cell) for text in TEXTS for cell in range(metric.cells.count)]

    assert buckets(words()) == buckets(words(rev=7)) == buckets(words("4")) == buckets(words(presence="hidden"))


@pytest.mark.parametrize("name", ["Caf\u0301e ", " caf\u0301e", "CAF\u0301E"])
def test_a_name_stands_for_the_text_that_devices_make_of_it(name: str) -> None:
    metric = words(lines="casefold = true")
    domain = domain_of(metric)
    assert domain.typed_of(name) == domain.typed(metric.read(name)) == "caf\u0301e".encode()
    assert domain_of(words()).typed_of(" a ") == b"a"


def test_precision_is_planned_for_as_many_texts_as_a_search_proposes() -> None:
    assert words().d == PROPOSED


def test_an_epsilon_whose_tallies_would_be_hundreds_of_megabytes_is_refused() -> None:
    assert words("6").cells.tally_size < 4 * ROWS * (1 << 18)
    with pytest.raises(RegistryError, match=r"must be a number from 0\.01 to 6 "):
        words("6.1")


@pytest.mark.parametrize(("casefold", "said"), [(False, True), (True, False)])
def test_what_no_device_says_is_told_apart(casefold: bool, said: bool) -> None:
    domain = domain_of(words(lines=f"casefold = {str(casefold).lower()}"))
    assert domain.is_reportable(b"Firefox") is said
    assert domain.is_reportable("straße".encode()) is not casefold  # folded it is strasse
    assert domain.is_reportable(b"firefox")
    assert domain.is_reportable(b"x" * 200)
    assert not domain.is_reportable(b"x" * 201)
    assert not domain.is_reportable(b" firefox")
    assert not any(
        map(domain.is_reportable, (b"\x1b[7m", "a\u202eb".encode(), "fire\u200dfox".encode(), "\ue000".encode()))
    )
    assert domain.is_reportable("\u0646\u200c\u0645".encode())
    assert not domain.may_begin("a\u202e".encode() + b"\xe2")
    assert domain.may_begin("\u0646\u200c".encode() + b"\xd9")
    assert not domain.is_reportable("e\N{COMBINING ACUTE ACCENT}".encode())
    assert domain.is_reportable(domain.typed(domain.unread()))
    assert not domain.is_reportable(domain.typed(domain.nothing()))
    assert domain_of(words(presence="hidden")).is_reportable(domain.typed(domain.nothing()))


@pytest.mark.parametrize("casefold", [False, True])
def test_a_text_is_said_if_and_only_if_a_device_reads_it_as_that_text(casefold: bool) -> None:
    domain = Coded("site", LAYOUT.levels, casefold=casefold)
    said = 0
    for text in texts(6, scaled(2_500, 500_000)):
        typed = text.encode("utf-8", "replace")
        read = KIND.read(typed.decode(), domain)
        assert domain.is_reportable(typed) == (read == typed.decode()), ascii(text)
        assert not unseen(*KIND.names(read, domain))
        if domain.is_reportable(typed):
            said += 1
            assert all(domain.may_begin(typed[:place]) for place in range(len(typed) + 1))
    assert said > 50
