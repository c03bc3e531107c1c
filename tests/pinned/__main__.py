"""Write the pinned vectors again: `python -m tests.pinned [metrics] [answers] [streams] [google_rappor] [names] ..`.

For whoever changes a number on purpose: what it should not have changed shows in the difference. Run it from the
repository's root. Streams are drawn anew only with `draw`; without it the recorded uploads are replayed as they are.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.pinned import answers, google_rappor, metrics, names, planted, recipes, scenes
from tests.pinned.comparing import VECTORS, load
from tests.pinned.streams import replay

DRAW = "draw"


def replayed() -> list[dict[str, Any]]:
    """Return the recorded streams with what comes of their steps now."""
    streams: list[dict[str, Any]] = load("streams")
    for stream in streams:
        with tempfile.TemporaryDirectory() as directory:
            for step, then in zip(stream["steps"], replay(stream["steps"], Path(directory)), strict=True):
                step["then"] = then
    return streams


def listed() -> dict[str, list[str]]:
    """Return the bugs that are listed, and new ones."""
    return planted.pinned(load("planted_bugs") if (VECTORS / "planted_bugs.json").exists() else {})


def lines(value: Any, depth: int = 0, deep: int = 3) -> str:
    """Return JSON with a line for each item down to a depth: differences stay readable, and files small."""
    if depth == deep or not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner = [lines(one, depth + 1, deep) for one in (value.values() if isinstance(value, dict) else value)]
    if isinstance(value, dict):
        inner = [f"{json.dumps(name, ensure_ascii=False)}: {one}" for name, one in zip(value, inner, strict=True)]
    indent = "\n" + " " * (depth + 1)
    ends = "{}" if isinstance(value, dict) else "[]"
    return f"{ends[0]}{indent}{(',' + indent).join(inner)}\n{' ' * depth}{ends[1]}"


FILES: dict[str, tuple[Callable[[], Any], int]] = {
    "metrics": (metrics.pinned, 4),
    "compiled": (metrics.compiled, 3),
    "answers": (answers.pinned, 3),
    "devices": (scenes.pinned, 4),
    "texts": (answers.texts, 2),
    "streams": (replayed, 3),
    "google_rappor": (google_rappor.pinned, 4),
    "planted_bugs": (listed, 2),
    "planted_names": (planted.named, 2),
    "names": (names.pinned, 2),
}


def main(wanted: list[str]) -> None:
    """Write the named files, or all of them."""
    for name in [name for name in wanted if name != DRAW] or FILES:
        make, deep = FILES[name]
        content = recipes.pinned() if name == "streams" and DRAW in wanted else make()
        (VECTORS / f"{name}.json").write_text(lines(content, deep=deep) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
