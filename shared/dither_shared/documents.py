"""Documents: the one byte string, and the one digest, that stand for what JSON can say."""

import json


def canonical_json(document: object) -> bytes:
    """Return the one byte string that stands for a document: sorted keys, no spaces, ASCII."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def sha256(document: object) -> str:
    """Return SHA-256, in hex, of a document's canonical JSON."""
    import hashlib  # loads OpenSSL, which takes longer than the rest of a plan: only where something is said

    return hashlib.sha256(canonical_json(document)).hexdigest()
