"""How precisely a table's pairs of columns can be read: planning figures, of the pair with the most noise.

    cell    the share of a cell that nobody is in
    rate    P(b | a) = r = 1/2, where a tenth of all have the value a in one column, and b is a value of the other

A report supports a symbol with probability p or q, and two of them with `one` where the answer is one of the
two, else with `neither` (PairLaw). With weights g of the symbols and shares f, the supported weights have the variance

    sum g_v^2 s_v + sum over v != w of g_v g_w [ neither + (one - neither)(f_v + f_w) ] - (sum g_v s_v)^2

where s_v = q + (p - q) f_v. A cell has g = 1. The rate is estimated by m_ab / m_a, whose error is about that of
m_ab - r m_a over P(a) (Cochran 1977, section 2.11): g is 1 - r for the cell of a and b, and -r for the other cells of
a. If all columns are asked at once, a cell is several symbols of the product, with the same g; else a pair has one of m
reports. The variance of an estimate is m / (n (p - q)^2) times that of the weights.
"""

from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations
from math import prod, sqrt

from dither_shared.domains.columns import Columns, symbols_of
from dither_shared.kinds.kind import Asked
from dither_shared.kinds.precision import QUESTION_MIN, SIDES, CountNoise, KindPrecision, Told, Worth, with_tails
from dither_shared.mechanisms import Cells, PureMechanism
from dither_shared.mechanisms.two_level import OneShot

GROUP, RATE = 0.1, 0.5


def std_errors(domain: Columns, cells: Cells, n: int) -> Mapping[str, float]:
    """Return the standard errors of a cell and of a rate, which n >= 1 reports tell, as parts of 1."""
    pairs = [_variances(domain, cells, pair) for pair in combinations(range(len(domain.names)), 2)]
    cell, rate = map(max, zip(*pairs, strict=True))
    return {"cell": sqrt(cell / n), "rate": sqrt(rate / n)}


def cell_worth(domain: Columns, cells: Cells) -> Worth:
    """Return what a made-up report is worth in the share of a cell of two columns, at most over all pairs.

    A cell is S of a question's d symbols. Its share is the sum of theirs, w = (c - S q) / (p - q) for a report that
    supports c of them: at most S and what it supports of all, at least that less all others. The part of the reports
    is the question's. Rates, means by group and associations are ratios, and so is every share where presence is
    hidden, of those who had something to say: there it is as for honest answers to one question.
    """
    share = Fraction(1, cells.each)
    worths = [_worth(domain, cells, pair) for pair in combinations(range(len(domain.names)), 2)]
    up, down = map(max, zip(*worths, strict=True))
    what = "a cell of two columns"
    return Worth(what, Fraction(1), Fraction(0), share, known=False) if domain.hidden else Worth(what, up, down, share)


def _worth(domain: Columns, cells: Cells, pair: tuple[int, int]) -> tuple[Fraction, Fraction]:
    mechanism, symbols = _asked(domain, cells, pair)
    least, most = mechanism.supported
    spread, noise = mechanism.p - mechanism.q, symbols * mechanism.q
    return (min(symbols, most) - noise) / spread, (noise - max(0, symbols - mechanism.d + least)) / spread


def _asked(domain: Columns, cells: Cells, pair: tuple[int, int]) -> tuple[PureMechanism, int]:
    """Return what randomizes the question that asks two columns, and how many of its symbols a cell of these is."""
    question = domain.questions.index(pair) if len(domain.questions) > 1 else 0
    sizes = [symbols_of(domain.domains[column]) for column in pair]
    return PureMechanism.of(cells.mechanism_of(question)), prod(domain.shape(question)) // prod(sizes)


def _variances(domain: Columns, cells: Cells, pair: tuple[int, int]) -> tuple[float, float]:
    """Return those of a cell and a rate, times n. The rate is among the values of the column with more of them."""
    m = len(domain.questions)
    mechanism, symbols = _asked(domain, cells, pair)
    values = max(symbols_of(domain.domains[column]) for column in pair)
    cell = sum_variance(mechanism, symbols, symbols, 0)
    total, squares = 1 - RATE * values, (1 - RATE) ** 2 + RATE**2 * (values - 1)
    rate = sum_variance(mechanism, symbols * total, symbols * squares, RATE * (1 - RATE) * GROUP)
    return m * cell, m * rate / GROUP**2


def sum_variance(mechanism: PureMechanism, total: float, squares: float, squares_held: float, held: float = 0) -> float:
    """Return n times the variance of a sum of estimates by the sums of g, g^2, g^2 f and g f."""
    p, q = float(mechanism.p), float(mechanism.q)
    one, neither = _pair_law(mechanism)
    pairs = neither * (total**2 - squares) + 2 * (one - neither) * (total * held - squares_held)
    second = q * squares + (p - q) * squares_held + pairs
    return (second - (q * total + (p - q) * held) ** 2) / (p - q) ** 2


def _pair_law(mechanism: PureMechanism) -> tuple[float, float]:
    """Return P[a report supports both of two values] where the answer is one of them, and where it is neither.

    PGR's second term depends on the three values: this is its average, each report supporting s of K points.
    """
    if mechanism.pairs is not None:
        return float(mechanism.pairs.one), float(mechanism.pairs.neither)
    design = OneShot.of(mechanism)
    law, outputs = design.law, design.outputs
    both = law.overlap * (law.share * outputs - 2) / (outputs - 2)
    neither = law.inside * both + (1 - law.inside) * law.share * (law.overlap - both) / (1 - law.share)
    return float(law.inside * law.overlap), float(neither)


class TablePrecision(KindPrecision[Columns]):
    """Columns that are answered together."""

    def widened(self, cells: Cells, noise: CountNoise, n: int) -> tuple[float, float]:
        """Return that of a share of one half, and of a rare cell, the tails of the noise in it."""
        most = super().widened(cells, noise, n)[1]
        each = [(PureMechanism.of(part.mechanism), max(1, n * part.weight // cells.weights)) for part in cells.parts]
        return min(noise.wider(mechanism, reports, 0.5) for mechanism, reports in each), with_tails(most)

    def noise_variance(self, cells: Cells) -> Fraction:
        """Return that of a cell of the pair with the most noise, whose reports are one of all questions'."""
        variances = (PureMechanism.of(part.mechanism).noise_variance for part in cells.parts)
        return cells.each * max(variances)

    def poisoning(self, domain: Columns, cells: Cells) -> tuple[Worth, ...]:
        """Return that of a cell of two columns, of those that made-up reports move most."""
        return (cell_worth(domain, cells),)

    def std_errors(self, asked: Asked, n: int) -> Mapping[str, float]:
        """Return those of a share and of a rate that n reports tell of the pair of columns with the most noise."""
        return std_errors(Columns.of(asked.domain), asked.cells, n)

    def tells(self, asked: Asked, n: int) -> Told:
        """Return the width of a rate's interval."""
        return Told("width of a rate's interval", SIDES * self.std_errors(asked, n)["rate"])

    def reports_min(self, asked: Asked) -> int:
        """Return that of all questions."""
        return QUESTION_MIN * len(Columns.of(asked.domain).questions)
