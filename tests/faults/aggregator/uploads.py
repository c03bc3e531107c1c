"""Uploads from a seed, and what they hold: counted here in other words than the aggregator's."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dither_shared.mechanisms import Cells
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.shapes import ReportShape, Subsets, Symbols
from dither_shared.wire import GROUPS_MAX, encode_upload, new_upload_id

Vector = npt.NDArray[np.int64]
"""The number of reports, and behind it, for each cell, its number and the count of each symbol, bit or member."""
PlanKey = tuple[str, str]
"""A metric and the digest of its plan."""

UNKNOWN_METRIC, UNKNOWN_PLAN, BAD_REPORT = "unknown-metric", "unknown-plan", "bad-report"


class SentGroup(NamedTuple):
    """A group of an upload: how many reports, and packed, unless it must be refused for what it is."""

    plan: PlanKey
    n: int
    packed: bytes
    fault: str = ""
    """Why no aggregator may take it."""
    cell: int = 0


@dataclass(frozen=True)
class Sent:
    """An upload: its groups in the order of its body."""

    id: str
    body: bytes
    groups: tuple[SentGroup, ...]
    damaged: bool = False
    """Whether it is only what a damaged log might hold; its body is another one."""


class Uploads:
    """Draws uploads: the same ones for the same seed and registries."""

    def __init__(self, seed: object, registries: Iterable[Registry]) -> None:
        self._rng = random.Random(f"uploads {seed}")
        self.plans: dict[PlanKey, Plan] = {}
        for registry in registries:
            for metric in registry.metrics.values():
                self.plans[metric.name, metric.plan.digest] = metric.plan

    def draw(self, groups_max: int = GROUPS_MAX, reports_max: int = 8, id_: str = "") -> Sent:
        """Return a new upload, or another body under an id: 1 to 50 groups, as a rule few."""
        rng = self._rng
        number = rng.choice([1, 1, 2, 3, 5, groups_max])
        drawn = [self._group(reports_max) for _ in range(min(number, groups_max))]
        drawn.sort(key=lambda group: group[0].plan)  # as they are in a body
        id_ = id_ or new_upload_id(rng.getrandbits)
        body = encode_upload(id_, [(*group.plan, *on_the_wire) for group, on_the_wire in drawn])
        return Sent(id_, body, tuple(group for group, _ in drawn))

    def _group(self, reports_max: int) -> tuple[SentGroup, tuple[Any, ...]]:
        rng = self._rng
        names = sorted(self.plans)
        plan = self.plans[names[int(len(names) * rng.random() ** 2)]]  # some come often
        key = plan.metric, plan.digest
        cell = rng.randrange(plan.cells.count) if plan.cells.several else 0
        shape = plan.cells.mechanism_of(cell).shape
        reports = [draw_report(shape, rng) for _ in range(rng.randint(1, reports_max))]
        on_the_wire: tuple[Any, ...] = ([shape.to_wire(report) for report in reports],)
        packed = shape.pack(reports)
        if plan.cells.several:
            on_the_wire = (*on_the_wire, cell)
        fate = rng.randrange(24)
        if fate == 0:
            return SentGroup(("nobody", plan.digest), len(reports), b"", UNKNOWN_METRIC), on_the_wire
        if fate == 1:
            return SentGroup((plan.metric, f"{rng.getrandbits(64):016x}"), len(reports), b"", UNKNOWN_PLAN), on_the_wire
        if fate == 2:
            spoiled = [*on_the_wire[0][:-1], -1]
            return SentGroup(key, len(reports), b"", BAD_REPORT), (spoiled, *on_the_wire[1:])
        return SentGroup(key, len(reports), packed, cell=cell), on_the_wire

    def damaged(self) -> Sent:
        """Return an upload with one group whose packed reports are none, as from a damaged log."""
        rng = self._rng
        sent = self.draw(groups_max=3)
        key = rng.choice(sorted(self.plans))
        cells = self.plans[key].cells
        cell = rng.randrange(cells.count) if cells.several else 0
        width = cells.mechanism_of(cell).shape.width
        n = rng.randint(1, 3)
        # Cut short, or bits and symbols beyond every shape's last.
        packed = rng.choice([rng.randbytes(n * width - 1), b"\xff" * (n * width)])
        if count(cells, cell, packed, n) is not None:
            packed = packed[1:]
        good = [group for group in sent.groups if not group.fault]
        return Sent(sent.id, sent.body, (*good, SentGroup(key, n, packed, cell=cell)), damaged=True)


def draw_report(shape: ReportShape, rng: random.Random) -> int:
    """Return one of the reports, any as likely."""
    if isinstance(shape, Subsets):
        return shape.of(rng.sample(range(shape.size), shape.weight))
    return rng.randrange(shape.size) if isinstance(shape, Symbols) else rng.getrandbits(shape.size)


def count(cells: Cells, cell: int, packed: bytes, n: int) -> Vector | None:
    """Return what packed reports of a cell add to a tally, counted one by one; None for what are not n reports."""
    shape = cells.mechanism_of(cell).shape
    if len(packed) != n * shape.width:
        return None
    start = 1 + sum(1 + cells.mechanism_of(before).shape.size for before in range(cell))
    total = np.zeros(1 + cells.tally_size, dtype=np.int64)
    total[0] = total[start] = n
    for place in range(0, len(packed), shape.width):
        raised = _places(shape, packed[place : place + shape.width])
        if raised is None:
            return None
        for one in raised:
            total[start + 1 + one] += 1
    return total


def _places(shape: ReportShape, packed: bytes) -> Sequence[int] | None:
    """Return which counts a report raises by one, None if it is none."""
    report = int.from_bytes(packed, "little")
    if isinstance(shape, Symbols):
        return [report] if report < shape.size else None
    if isinstance(shape, Subsets) and shape.listed:
        members = shape.members(report)
        return members if max(members) < shape.size else None
    if report >> shape.size or (isinstance(shape, Subsets) and report.bit_count() != shape.weight):
        return None
    return [place for place in range(shape.size) if report >> place & 1]
