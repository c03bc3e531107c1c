"""The shapes of a report: a symbol, a bit string, a subset. Each has one form in memory, on the wire and in the log.

A report is a non-negative integer everywhere inside dither: the symbol itself; the bit string, with bit v standing
for value v; the subset, as a bit string or as its members one after another, whichever is shorter. Packed, for slots
and logs, it is `width` bytes, little-endian. On the wire a symbol is a JSON number and everything else is base64url
without padding, of exactly that packed form.

`from_wire` says what a report is, of one at a time. `read_column` is how the aggregator reads: the same reports,
checked and packed a column at once.
"""

from dither_shared.shapes.bits import Bits
from dither_shared.shapes.shape import BadReport, ReportShape
from dither_shared.shapes.subsets import Subsets
from dither_shared.shapes.symbols import Symbols

__all__ = ["BadReport", "Bits", "ReportShape", "Subsets", "Symbols"]
