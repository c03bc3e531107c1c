import pytest

from dither_shared.errors import InvalidParameter
from dither_shared.hashing import multiplier, number_of
from dither_shared.words.code import BUCKETS, LAYOUTS, ROWS, Groups, folded, prefix_of

GROUPS = Groups("homepage", (18, 34, 50))


def test_a_level_hashes_its_prefix_and_verification_the_whole_text() -> None:
    typed = b"example.org"
    for cell in range(4 * ROWS):
        group, row = cell // ROWS, cell % ROWS
        number = prefix_of(typed, GROUPS.levels[group]) if group < 3 else number_of(typed)
        factor = multiplier(f"dither words|homepage|{group}|{row}")
        assert factor % 2 == 1
        assert GROUPS.bucket(typed, cell) == number * factor % 2**64 >> 47 < BUCKETS


def test_every_row_of_every_metric_has_a_hash_of_its_own() -> None:
    salts = [Groups(name, (18, 34, 50)) for name in ("one", "two")]
    factors = {groups.multiplier(group, row) for groups in salts for group in range(4) for row in range(ROWS)}
    assert len(factors) == 2 * 4 * ROWS


@pytest.mark.parametrize("prefix", [0, 5, 1 << 49, 1 << 63, 3 << 64, (1 << 100) + 12345])
def test_continuations_are_numbered_in_a_row_also_where_they_are_folded(prefix: int) -> None:
    first = folded(prefix << 14)
    assert all(folded(prefix << 14 | more) == (first + more) % 2**64 for more in (0, 1, 77, (1 << 14) - 1))


def test_texts_that_differ_late_have_other_numbers_late() -> None:
    long = Groups("homepage", LAYOUTS["long"].levels)
    one, other = b"https://example.org/aa", b"https://example.org/ab"
    assert long.number(one, 0) == long.number(other, 0)
    assert long.number(one, 6) != long.number(other, 6)


def test_the_designs_give_verification_three_tenths() -> None:
    for layout in LAYOUTS.values():
        groups = Groups("homepage", layout.levels)
        assert len(layout.weights) == groups.count
        assert layout.weights[-1] / sum(layout.weights) == 0.3


@pytest.mark.parametrize("levels", [(), (18, 18), (0, 18), (18, 60), (30,), (20, 40, 60, 80, 100, 120, 140)])
def test_levels_that_cannot_be_searched_are_refused(levels: tuple[int, ...]) -> None:
    with pytest.raises(InvalidParameter, match="levels must rise"):
        Groups("homepage", levels)
