from fractions import Fraction
from itertools import pairwise

from dither_shared.words.alphabets import CONTEXTS, END, ESC, LENGTH_MAX, row, symbols_of
from tests.code_table.__main__ import TABLE, table


def test_codes_fill_each_row_exactly() -> None:
    for context in range(CONTEXTS):
        lengths = [length for _, length in row(context).codes]
        assert min(lengths) >= 1
        assert max(lengths) <= LENGTH_MAX
        assert sum(Fraction(1, 1 << length) for length in lengths) == 1


def test_no_code_is_the_start_of_another() -> None:
    for context in range(CONTEXTS):
        codes = sorted(f"{code:0{length}b}" for code, length in row(context).codes)
        assert not any(later.startswith(one) for one, later in pairwise(codes))


def test_shorter_codes_come_first_and_equal_ones_in_the_order_of_symbols() -> None:
    for context in range(CONTEXTS):
        codes = row(context).codes
        ordered = sorted(range(CONTEXTS), key=lambda symbol: (codes[symbol][1], symbol))
        padded = [codes[symbol][0] << LENGTH_MAX - codes[symbol][1] for symbol in ordered]
        assert padded == sorted(padded)


def test_the_table_is_that_of_the_counts() -> None:
    assert TABLE.read_bytes() == table()


def test_what_no_character_stands_for_is_escaped() -> None:
    assert list(symbols_of(b"a\xff")) == [(END, ord("a") - 32), (ord("a") - 32, ESC), (ESC, END)]
