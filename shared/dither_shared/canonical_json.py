"""Documents: the one byte string, and the one digest, that stand for what JSON can say."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

from dither_shared.installed import load
from dither_shared.light_typing import Any


def canonical_json(document: object) -> bytes:
    """Return the one byte string that stands for a document: sorted keys, no spaces, ASCII."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def sha256(document: object) -> str:
    """Return SHA-256, in hex, of a document's canonical JSON."""
    digest: str = _sha256()(canonical_json(document)).hexdigest()
    return digest


@cache
def _sha256() -> Callable[[bytes], Any]:
    """Return SHA-256 by Python's own C, as `random` has it: `hashlib` loads OpenSSL, which takes as long as SQLite.

    The first name is Python 3.12's and 3.13's, the second one 3.11's; neither is documented.
    """
    for module in ("_sha2", "_sha256", "hashlib"):
        try:
            found: Callable[[bytes], Any] = load(f"{module}:sha256")
        except ImportError:
            continue
        return found
    raise AssertionError("hashlib has SHA-256")
