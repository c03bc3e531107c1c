"""Plans: canonical JSON, the digest, the memo's key, and the cells (shared/wire.md, "The plan")."""

import hashlib
import json
from typing import Any

from tests.second.coins import Coins

Document = dict[str, Any]
DEVICE = "device"


def canonical_json(document: object) -> bytes:
    """Return the one byte string of a document: sorted keys, no spaces, ASCII."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def sha256(document: object) -> str:
    """Return SHA-256, in hex, of a document's canonical JSON."""
    return hashlib.sha256(canonical_json(document)).hexdigest()


def digest(plan: Document) -> str:
    """Return the 16 hex digits that travel with every report."""
    means = {name: plan[name] for name in ("cells", "kind", "once_a_day", "presence", "rev")}
    return sha256({**means, "domain": sha256(plan["domain"])})[:16]


def memo_key(plan: Document) -> str:
    """Return what a memo depends on besides device, cell and value; "" where nothing is memoized."""
    parts = plan["cells"]["parts"]
    if "memo" not in parts[0]:
        return ""
    cells = [[part["mechanism"], part["memo"], part["cells"]] for part in parts]
    return sha256({"cells": cells, "domain": sha256(plan["domain"]), "metric": plan["metric"]})


def cells_of(plan: Document) -> int:
    """Return how many cells a plan has."""
    cells = plan["cells"]
    return int(cells.get("public", 1) * sum(part["cells"] for part in cells["parts"]))


def part_of(plan: Document, cell: int) -> Document:
    """Return the part of a cell: its mechanism and its integers."""
    parts: list[Document] = plan["cells"]["parts"]
    cell %= sum(part["cells"] for part in parts)
    for part in parts:
        if cell < part["cells"]:
            break
        cell -= part["cells"]
    return part


def integers_of(part: Document) -> dict[str, int]:
    """Return the integers that say what a report or a memo looks like: those of the memo where there is one."""
    integers: dict[str, int] = part["memo"] if "memo" in part else part["parameters"]
    return integers


def draw_cell(plan: Document, coins: Coins, device: int = 0, public: int = 0) -> int:
    """Return the cell of a report of the device that drew the number `device`, with this public value."""
    cells = plan["cells"]
    if cells["drawn"] == DEVICE:
        return device % cells_of(plan)
    drawn = coins.uniform(sum(part["cells"] * part["weight"] for part in cells["parts"]))
    cell = public * sum(part["cells"] for part in cells["parts"])
    for part in cells["parts"]:
        if drawn < part["cells"] * part["weight"]:
            break
        drawn -= part["cells"] * part["weight"]
        cell += part["cells"]
    return int(cell + drawn // part["weight"])
