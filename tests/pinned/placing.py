"""How the pins ask the code for the values of answers, as shared/reports.md has them."""

from collections.abc import Sequence
from typing import Any

from dither_shared.mechanisms import SquareWave
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.rng import Rng

MIDDLE = Rng(lambda bits: 1 << bits - 1 if bits else 0)
"""Coins that all come from the middle of what they may be."""


def answered(text: str, answers: Sequence[Any]) -> dict[str, Any]:
    """Return a registry's one plan, and the value of each answer in some of its cells."""
    (metric,) = Registry.parse(text).metrics.values()
    plan, kind, domain = metric.plan, metric.kind, metric.asked.domain
    count = plan.cells.count
    cells = list(range(count)) if count <= 16 else [0, 1, count // 2 + 1, count - 1]
    read = [{"answer": answer, "values": kind.read(answer, domain)} for answer in answers]
    if plan.presence == "hidden":
        read.append({"nothing": True, "values": kind.nothing(domain)})
    for one in read:
        place = one["values"]
        one["values"] = [_value(plan, cell, kind.class_of(place, domain, plan.cells, cell, MIDDLE)) for cell in cells]
    return {
        "plan": plan.to_document(),
        "digest": plan.digest,
        "memo_key": plan.memo_key,
        **({"alphabet": domain.table} if domain.table else {}),
        "cells": cells,
        "answers": read,
    }


def _value(plan: Plan, cell: int, seen: int) -> int | list[int] | None:
    """Return a value as shared/reports.md has it: one, those that are held, or None of what has no place."""
    mechanism = plan.cells.mechanism_of(cell)
    bits = [bit for bit in range(seen.bit_length()) if seen >> bit & 1]
    if plan.kind.name == "choices" or mechanism.name == "rappor":
        return bits
    if mechanism.name in ("oue", "sue"):
        return bits[0]
    return None if isinstance(mechanism, SquareWave) and seen == mechanism.d else seen
