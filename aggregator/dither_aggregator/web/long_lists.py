"""Lists of candidates that are too long to be looked for in a process that others wait for."""

from flask import current_app

from dither_aggregator.store import StoredPlan
from dither_shared.errors import DitherError


class LongList(DitherError):
    """A list of candidates that is not looked for here and now: it takes seconds to minutes, and memory."""


def refuse_long(stored: StoredPlan, candidates: tuple[str, ...] | None = None) -> None:
    """Raise LongList where so many candidates are not looked for here."""
    if too_long(stored, candidates):
        raise LongList


def too_long(stored: StoredPlan, candidates: tuple[str, ...] | None = None) -> bool:
    """Return whether so many candidates, the registry's or these, are not looked for here."""
    longest = current_app.config["CANDIDATES_MAX"]
    return longest is not None and len(stored.candidates if candidates is None else candidates) > longest
