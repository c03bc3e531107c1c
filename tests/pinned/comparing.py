"""Comparing what is pinned with what comes out: everything exactly, floats to the last digits."""

import json
from math import isclose
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[1] / "vectors"
RELATIVE = 1e-12
ABSOLUTE = 1e-15
"""For numbers that are zero but for rounding."""


def load(name: str) -> Any:
    """Return a file of vectors."""
    return json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))


def differences(pinned: object, got: object, place: str = "") -> list[str]:
    """Return where two documents differ, in words."""
    if isinstance(pinned, dict) and isinstance(got, dict):
        missing = [f"{place}.{name}: missing" for name in pinned.keys() - got.keys()]
        new = [f"{place}.{name}: not pinned" for name in got.keys() - pinned.keys()]
        both = [name for name in pinned if name in got]
        return missing + new + [one for name in both for one in differences(pinned[name], got[name], f"{place}.{name}")]
    if isinstance(pinned, list) and isinstance(got, list | tuple):
        if len(pinned) != len(got):
            return [f"{place}: {len(pinned)} pinned, got {len(got)}"]
        pairs = enumerate(zip(pinned, got, strict=True))
        return [one for index, pair in pairs for one in differences(*pair, f"{place}[{index}]")]
    if type(pinned) is type(got) is float and isclose(pinned, got, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
        return []
    same = type(pinned) is type(got) and pinned == got
    return [] if same else [f"{place}: {pinned!r} pinned, got {got!r}"]
