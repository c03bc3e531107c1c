"""Cells: numbered part after part, drawn by exact integers, with a tally that has each one's n."""

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import pytest

from dither_shared import domains
from dither_shared.domains import Values, Verbatim
from dither_shared.errors import InvalidParameter
from dither_shared.mechanisms import GRR, OUE, RAPPOR, choose
from dither_shared.mechanisms.mechanism import CELLS_MAX, DEVICE, REPORT, WEIGHT_MAX, Cells, Part, one_cell
from dither_shared.rng import Rng

FEW = GRR.for_epsilon(3, Decimal(1))
MANY = OUE.for_epsilon(5, Decimal(2))
MEMO = choose(3, Decimal(1), permanent=Decimal(2))
TEXT = RAPPOR.of_probabilities(8, 1, Fraction(1, 2), Fraction(1, 2), Fraction(3, 4))
MIXED = Cells((Part(FEW, 2, 3), Part(MANY, 3, 1)))


class Ticket(Rng):
    """Draws one uniform number, which is said beforehand, and remembers below what."""

    def __init__(self, ticket: int) -> None:
        super().__init__(lambda bits: pytest.fail("only uniform numbers are drawn"))
        object.__setattr__(self, "ticket", ticket)
        object.__setattr__(self, "sizes", [])

    ticket: int
    sizes: list[int]

    def uniform(self, size: int) -> int:
        self.sizes.append(size)
        return self.ticket


def test_every_integer_of_every_part_has_a_name_of_its_own() -> None:
    subsets = choose(30, Decimal(1), name="ss")
    assert Cells((Part(FEW, 2, 3), Part(subsets))).parameters() == {
        "1.cells": 2,
        "1.weight": 3,
        "1.d": 3,
        "1.threshold": FEW.threshold,
        "2.cells": 1,
        "2.weight": 1,
        "2.d": 30,
        "2.ss.weight": subsets.parameters()["weight"],
        "2.threshold": subsets.parameters()["threshold"],
    }
    assert one_cell(subsets).parameters() == subsets.parameters()


def test_cells_are_numbered_part_after_part() -> None:
    assert [MIXED.mechanism_of(cell) for cell in range(5)] == [FEW, FEW, MANY, MANY, MANY]
    assert (MIXED.count, MIXED.several, MIXED.lasting) == (5, True, 0)
    for cells, cell in ((MIXED, 5), (MIXED, -1), (one_cell(FEW), 1), (one_cell(FEW), -1)):
        with pytest.raises(IndexError):
            cells.mechanism_of(cell)


def test_a_report_draws_each_cell_exactly_with_its_share() -> None:
    drawn = Counter(MIXED.draw(Ticket(ticket)) for ticket in range(9))
    assert drawn == {0: 3, 1: 3, 2: 1, 3: 1, 4: 1}
    rng = Ticket(0)
    MIXED.draw(rng)
    assert rng.sizes == [9]


def test_one_cell_needs_no_draw() -> None:
    rng = Ticket(0)
    assert one_cell(FEW).draw(rng) == 0
    assert rng.sizes == []


def test_a_device_takes_the_low_bits_of_its_number() -> None:
    cells = Cells((Part(TEXT, 32),), DEVICE)
    assert (cells.lasting, cells.count) == (32, 32)
    assert Counter(cells.of_device(number) for number in range(128)) == dict.fromkeys(range(32), 4)
    assert (Cells((Part(TEXT),), DEVICE).lasting, Cells((Part(TEXT),), DEVICE).of_device(127)) == (0, 0)


def test_a_plan_costs_what_its_dearest_cell_costs() -> None:
    assert MIXED.charge == MANY.charge == 2_000_000
    assert MIXED.exp_epsilon == MANY.exp_epsilon
    assert (MIXED.report_bits, MIXED.name, MIXED.memoized) == (5, "grr and oue", False)
    memo = one_cell(MEMO)
    assert (memo.charge, memo.first_charge) == (MEMO.charge, MEMO.first_stage.charge)
    with pytest.raises(TypeError, match="several mechanisms"):
        _ = MIXED.mechanism


def test_a_tally_has_each_cells_number_and_counts() -> None:
    assert MIXED.tally_size == 2 * (1 + 3) + 3 * (1 + 5)


@pytest.mark.parametrize("cells", [MIXED, one_cell(MEMO), Cells((Part(TEXT, 128),), DEVICE), one_cell(FEW)])
def test_documents_make_the_same_cells_again(cells: Cells) -> None:
    assert Cells.from_document(cells.to_document()) == cells


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Cells(()), "1 to"),
        (lambda: Part(FEW, 0), "1 to"),
        (lambda: Part(FEW, CELLS_MAX + 1), "1 to"),
        (lambda: Part(FEW, 1, 0), "weight"),
        (lambda: Part(FEW, 1, WEIGHT_MAX + 1), "weight"),
        (lambda: Cells((Part(FEW, CELLS_MAX), Part(FEW))), "1 to"),
        (lambda: Part(FEW, 1.0), "1 to"),  # type: ignore[arg-type]
        (lambda: Part(FEW, 1, 2.5), "weight"),  # type: ignore[arg-type]
        (lambda: Cells((Part(choose(65_535, Decimal(1), name="grr"), 600),)), "a tally"),
        (lambda: Cells((Part(FEW),), "app"), "drawn by"),
        (lambda: Cells((Part(TEXT, 3),), DEVICE), "alike"),
        (lambda: Cells((Part(TEXT, 256),), DEVICE), "alike"),
        (lambda: Cells((Part(FEW), Part(MANY)), DEVICE), "alike"),
        (lambda: Cells((Part(FEW), Part(MEMO))), "either all"),
        (lambda: Cells((Part(MEMO, 2),), REPORT), "of the device's own"),
    ],
)
def test_cells_that_no_proof_covers_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        make()


@pytest.mark.parametrize("domain", [Values(("a", "b", "other")), Verbatim(), Verbatim(7)])
def test_documents_make_the_same_domain_again(domain: domains.Domain) -> None:
    again = domains.from_document(domain.to_document())
    assert (again, again.digest) == (domain, domain.digest)


@pytest.mark.parametrize("document", [{"domain": "steps"}, {"domain": "values"}, {"domain": "words", "last": 3}])
def test_a_domain_that_is_not_one_of_ours_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter):
        domains.from_document(document)
