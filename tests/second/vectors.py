"""The vectors, as a stranger would read them."""

import json
from pathlib import Path
from typing import Any

from tests.second.plans import Document

VECTORS = Path(__file__).parents[1] / "vectors"


def load(name: str) -> Any:
    """Return a file of vectors."""
    return json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))


PLANS: dict[tuple[str, str], Document] = {
    (vector["plan"]["metric"], vector["digest"]): vector["plan"] for vector in (*load("plans"), *load("answers"))
}
"""Every pinned plan, by metric and digest."""
