"""Replaying a recorded stream: its steps are calls of the adapter's aggregator, each with what came of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.pinned.adapter import Aggregator


def replay(steps: Sequence[dict[str, Any]], directory: Path) -> list[Any]:
    """Do the steps, and return what comes of each."""
    with Aggregator(directory) as aggregator:
        return [getattr(aggregator, step["do"])(**step["with"]) for step in steps]
