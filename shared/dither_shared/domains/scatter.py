"""The symbols of a product's cells: a fixed order that keeps the cells of one value apart.

Cells are counted with the last column fastest. The cell i of D cells has the symbol

    (D - 1 - i)^3 modulo P, cubed again while it is not below D

where P is the least prime that is at least D and is not 1 modulo 3. Cubing permutes the numbers modulo such a prime: 3
and P - 1 have no common divisor. A walk along a permutation that starts below D comes back below D, so no two cells
have the same symbol.

Why not the symbol i? PGR's symbols are points in order (pgr.py), and those that stand side by side are on few lines. A
report that supports the answer and another point supports their whole line. If the cells of one value are on few lines,
and many devices give one answer, the value's share has up to 20 times the variance that it has for cells at random
places. In this order it has about that of random places, whichever column it is of. The point of the symbol 0 shares
its lines with whole runs of others: so it stands for "other" in all columns, and not for the first values, which are
often the most common. The order changes nothing for all other mechanisms.
"""

from functools import cache
from math import isqrt


def scatter(cell: int, cells: int) -> int:
    """Return the symbol of a cell out of so many."""
    prime = _prime_for(cells)
    symbol = pow(cells - 1 - cell, 3, prime)
    while symbol >= cells:
        symbol = pow(symbol, 3, prime)
    return symbol


@cache
def _prime_for(cells: int) -> int:
    prime = max(cells, 2)
    while prime % 3 == 1 or any(prime % divisor == 0 for divisor in range(2, isqrt(prime) + 1)):
        prime += 1
    return prime
