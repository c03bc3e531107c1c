"""The order of a product's symbols: a permutation, as written down, that other programs must follow."""

from dither_shared.domains.scatter import scatter


def test_no_two_cells_have_the_same_symbol() -> None:
    for cells in (*range(1, 200), 900, 7_921, 65_535):
        assert sorted(scatter(cell, cells) for cell in range(cells)) == list(range(cells)), f"{cells} cells"


def test_symbols_are_the_cubes_of_places_counted_from_the_end() -> None:
    """The prime for 6 cells is 11: 7 and 13 are 1 modulo 3, 11 is not. 27 is 5, and 8, 9 and 4 are cubed once more."""
    assert [pow(place, 3, 11) for place in range(6)] == [0, 1, 8, 5, 9, 4]
    assert [pow(8, 3, 11), pow(9, 3, 11), pow(6, 3, 11), pow(7, 3, 11)] == [6, 3, 7, 2]
    assert [scatter(cell, 6) for cell in (5, 4, 3, 2, 1, 0)] == [0, 1, 2, 5, 3, 4]


def test_other_in_all_columns_has_the_first_symbol() -> None:
    assert [scatter(cells - 1, cells) for cells in (4, 35, 900)] == [0, 0, 0]
