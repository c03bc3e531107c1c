"""Subsets: a report is a subset of one size."""

from collections.abc import Collection
from functools import cached_property
from itertools import chain, pairwise
from operator import lt

from dither_shared.frozen import frozen
from dither_shared.shapes.bits import Packed
from dither_shared.shapes.shape import BadReport
from dither_shared.shapes.symbols import Symbols


@frozen
class Subsets(Packed):
    """A subset of exactly `weight` of `size` values: a bit string, or the members in order if that is shorter.

    A member is as wide as a symbol: 1, 2 or 4 bytes, so a list of members is read like `weight` reports of one symbol.
    """

    weight: int

    @property
    def raises(self) -> int:
        """Those of the members."""
        return self.weight

    @cached_property
    def member(self) -> Symbols:
        """The shape of one member."""
        return Symbols(self.size)

    @cached_property
    def listed(self) -> bool:
        """Whether a report lists its members."""
        return self.weight * self.member.width * 8 < self.size

    @cached_property
    def width(self) -> int:
        """Whole bytes."""
        return self.weight * self.member.width if self.listed else (self.size + 7) // 8

    @property
    def bits(self) -> int:
        """The bits of the shorter form."""
        return min(self.size, self.weight * self.member.width * 8)

    def of(self, members: Collection[int]) -> int:
        """Return the report that is the subset of these different members."""
        if self.listed:
            return int.from_bytes(self.member.pack(sorted(members)), "little")
        return sum(1 << member for member in members)

    def members(self, report: int) -> list[int]:
        """Return the members of a report, in ascending order where it is valid."""
        if not self.listed:
            return [value for value in range(report.bit_length()) if report >> value & 1]
        return list(self.member.unpack(report.to_bytes(self.width, "little")))

    def check(self, report: int) -> None:
        """Refuse what is not `weight` different values in ascending order."""
        members = self.members(report)
        ascending = all(one < other for one, other in pairwise(members))
        if len(members) != self.weight or not ascending or members[-1] >= self.size:
            raise BadReport(f"a report must be {self.weight} different values from 0 to {self.size - 1}")

    def check_column(self, packed: bytes) -> None:
        """Compare each listed member with the one behind it; count the ones of each bit string."""
        if len(packed) == self.width and self.listed:
            members = self.member.unpack(packed)
            subsets = members[-1] < self.size and all(map(lt, members, members[1:]))
        elif self.listed:
            members = self.member.unpack(packed)
            ascends = list(map(lt, members, members[1:]))
            del ascends[self.weight - 1 :: self.weight]  # the last of a report and the first of the next
            subsets = all(ascends) and max(members) < self.size
        elif len(packed) == self.width:
            subsets = int.from_bytes(packed, "little").bit_count() == self.weight and not self.beyond(packed)
        else:
            import struct

            reports = chain.from_iterable(struct.iter_unpack(f"{self.width}s", packed))
            weights = set(map(int.bit_count, map(int.from_bytes, reports)))
            subsets = weights == {self.weight} and not self.beyond(packed)
        if not subsets:
            raise BadReport(f"a report must be {self.weight} different values from 0 to {self.size - 1}")
