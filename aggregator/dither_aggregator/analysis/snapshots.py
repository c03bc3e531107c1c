"""A snapshot: an immutable set of estimates with all that reproduces it. Its id is the digest of its content.

The content is canonical JSON: the plan, the epoch, the tally's n and counts, the candidates of a text, the estimates
made of them, the versions of what made them, and a salt, so that counts cannot be tried against the id. The same tally
gives the same counts for ever; other versions of the libraries may give other last digits.

A read key is told a document of its own, made without the cells of a few reports (`reading.py`) and the salt.

A window's snapshot is those of its days, and nothing more is stored of it. Its id says metric and days, and ends in a
digest of the ids of all its days' snapshots. So its counts can be no others; its estimates are made of them when
somebody asks. Days that were chosen, also a single one, pay (`reading.py`): the id also says for how many windows the
intervals held on the page, its digest covers that, and the estimates hold for as many. An id without it, and the
snapshot that every day has, are of days that pay nothing.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any

import msgspec
import numpy as np

from dither_aggregator.analysis.estimands import estimate, takes_seconds
from dither_aggregator.analysis.reading import (
    CELL_MIN,
    Pooled,
    View,
    Window,
    sees_all,
    sizes,
    visible_tally,
    windows_of,
    without_few,
)
from dither_aggregator.analysis.reading_cache import refuse_slow
from dither_aggregator.store import Store, StoredPlan, StoreError, Tally
from dither_aggregator.store.contract import BATCH_MIN
from dither_aggregator.store.records import HEAD_BYTES, Final, add_plain, plain_counts
from dither_shared.frozen import canonical_json
from dither_shared.plan import Plan

FORMAT = 1
WINDOW_DAYS_MAX = 366
DAYS_TO_CHOOSE = tuple(1 << doublings for doublings in range(1, 23))
"""As many days as windows were ever chosen of; a calendar has fewer than 2^22."""
HEX_DIGITS = 64
"""The id of a day's snapshot has so many."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot as it was taken."""

    id: str
    document: Mapping[str, Any]
    stored: StoredPlan
    """Its plan, with the candidates that were looked for then."""
    window: Window
    """The day that it is of, or the days."""
    tally: Tally
    """Read back from its counts: the digest is computed anew."""
    together: int = 1
    """For how many windows of days its intervals hold at once."""

    @property
    def digest(self) -> str:
        """The part of its id that is a digest."""
        return digest_of(self.id)

    @property
    def estimates(self) -> Mapping[str, Any]:
        """The estimates of then, as `Reading.to_document` gave them."""
        estimates: Mapping[str, Any] = self.document["estimates"]
        return estimates

    @cached_property
    def rows(self) -> Mapping[str, Mapping[str, Any]]:
        """The rows of what was estimated then, by value, without those that were untold."""
        return {row["value"]: row for row in self.estimates["rows"] if "estimate" in row}

    @property
    def is_of_its_tally(self) -> bool:
        """Whether the counts have the digest that stands beside them."""
        return bool(self.tally.digest == self.document["tally"]["digest"])


def take(store: Store, stored: StoredPlan, epoch: date) -> Final:
    """Record a final epoch with its snapshot, unless it is recorded; return what is.

    Raises StoreError when the epoch is not merged in every shard, and when the tally is not the one that was recorded.
    """
    if epoch > store.merged():
        raise StoreError(f"{epoch} is not merged in every shard, so it is not final")
    tally = store.tally(stored.plan, epoch)
    # Without it, counts that are not told could be tried against the id, which everybody may see.
    salt = store.signing_secret(f"snapshot {stored.id} {epoch}".encode()).hex()
    made = canonical_json({**_document(store.app, stored, Window.ending(epoch, 1), tally), "salt": salt})
    final = Final(tally.digest, hashlib.sha256(made).hexdigest())
    recorded = store.finalize(stored.plan, epoch, final, zlib.compress(made))
    # A tally that others recorded and gave up meanwhile reads as nothing.
    if recorded.digest != final.digest and epoch >= store.tallies_from():
        raise StoreError(
            f"the tally of {stored.plan.metric}, plan {stored.plan.digest}, of {epoch} is not the one recorded as "
            "final: run `dither fsck`"
        )
    return recorded


def digest_of(id_: str) -> str:
    """Return the part of a snapshot's id that is a digest: of a day's all of it."""
    return id_.rpartition(".")[2]


def window_snapshot(store: Store, stored: StoredPlan, window: Window, together: int = 1) -> str | None:
    """Return the id of a window's snapshot, whose intervals hold for so many windows at once.

    None until every day of it that has reports is final.
    """
    finals = store.finals(stored.plan, window.first, window.last)
    days = store.epochs(stored.plan, window.first, window.last)
    if window.last > store.sealed() or window.days > WINDOW_DAYS_MAX or not (finals.keys() >= set(days) and days):
        return None
    if window.days == together == 1:
        return finals[window.last].snapshot
    made_of = _made_of(store, stored, window, finals, together)
    paid = f"{together}." if together > 1 else ""
    digest = hashlib.sha256(canonical_json(made_of)).hexdigest()
    return f"{stored.plan.metric}.{window.first}.{window.last}.{paid}{digest}"


def _made_of(
    store: Store, stored: StoredPlan, window: Window, finals: Mapping[date, Final], together: int
) -> dict[str, object]:
    """Return the names of all that a window's snapshot is made of."""
    days = {day.isoformat(): finals[day].snapshot for day in sorted(finals)}
    paid = {"together": together} if together > 1 else {}
    return {"app": store.app, "plan": stored.plan.digest, **window.to_document(), "days": days, **paid}


def kept_snapshot(store: Store, stored: StoredPlan, window: Window, together: int) -> str | None:
    """Return the same id; None also where a day's snapshot was given up, of which the earliest is the first."""
    finals = store.finals(stored.plan, window.first, window.last)
    if not finals or store.snapshot(finals[min(finals)].snapshot) is None:
        return None
    return window_snapshot(store, stored, window, together)


def is_given_up(store: Store, id_: str) -> bool:
    """Whether an id that is read as nothing is that of a snapshot which was kept once."""
    if "." in id_:
        return _named(store, id_) is not None
    finals = (store.finals(stored.plan).values() for stored in store.plans() if len(id_) == HEX_DIGITS)
    return any(final.snapshot == id_ for each in finals for final in each)


def content(store: Store, id_: str) -> bytes | None:
    """Return a snapshot's canonical JSON, or what a read key is told of it; None where there is none.

    Raises StoreError where it is not its id's.
    """
    if "." in id_:
        of_window = read_snapshot(store, id_)
        return canonical_json(of_window.document) if of_window else None
    made = _content(store, id_)
    visible = read_snapshot(store, id_) if made and not sees_all(store) else None
    return canonical_json(visible.document) if visible and visible.tally.left_out != 0 else made


def _content(store: Store, id_: str) -> bytes | None:
    packed = store.snapshot(id_)
    if packed is None:
        return None
    try:
        unpacked = zlib.decompress(packed)
    except zlib.error:
        unpacked = b""
    if hashlib.sha256(unpacked).hexdigest() != id_:
        raise StoreError(f"the snapshot {id_} is damaged: run `dither fsck`")
    return unpacked


def read_snapshot(store: Store, id_: str) -> Snapshot | None:
    """Return a snapshot, or None where there is none; raise StoreError and BadTally where it cannot be read."""
    return _of_window(store, id_) if "." in id_ else _of_day(store, id_)


class _Counts(msgspec.Struct):
    n: int
    counts: str


class _DayPart(msgspec.Struct):
    """The parts of a day's snapshot of which a window's is made."""

    v: int
    candidates: tuple[str, ...]
    tally: _Counts


def _named(store: Store, id_: str) -> tuple[StoredPlan, Window, int] | None:
    """Return the plan and the days whose snapshot has an id, and for how many windows its intervals hold."""
    try:
        metric, first, last, *paid, _ = id_.split(".")
        window = Window(date.fromisoformat(first), date.fromisoformat(last))
        together = next(windows_of(days) for days in DAYS_TO_CHOOSE if paid == [str(windows_of(days))]) if paid else 1
        named = (each for each in store.plans(metric) if window_snapshot(store, each, window, together) == id_)
        return next(named), window, together
    except (ValueError, StopIteration):
        return None


def _of_window(store: Store, id_: str) -> Snapshot | None:
    named = _named(store, id_)
    if named is None:
        return None
    stored, window, together = named
    finals = store.finals(stored.plan, window.first, window.last)
    made = [_content(store, finals[day].snapshot) for day in sorted(finals)]
    parts = [msgspec.json.decode(each, type=_DayPart) for each in made if each]
    if len(parts) < len(made):
        return None
    refuse_slow(store, slow=takes_seconds(stored))
    if any(part.v != FORMAT for part in parts):
        raise StoreError(f"a day of the snapshot {id_} has another format; this dither reads {FORMAT}")
    stored = replace(stored, candidates=parts[-1].candidates)
    tally, left_out = _visible(store, stored, window, [_tally(stored.plan, part.tally) for part in parts])
    document = {**_document(store.app, stored, window, tally, together), **left_out, "snapshot": id_}
    document["of"] = _made_of(store, stored, window, finals, together)
    return Snapshot(id_, document, stored, window, tally, together)


def _tally(plan: Plan, told: _Counts) -> Tally:
    """Return the counts of a day as its snapshot has them."""
    plain = base64.b64decode(told.counts)
    counts = np.zeros(plan.cells.tally_size, dtype=np.int64)
    add_plain(counts, plain[:HEAD_BYTES], plain[HEAD_BYTES:])
    return Tally(told.n, counts)


def _visible(
    store: Store, stored: StoredPlan, window: Window, tallies: Iterable[Tally]
) -> tuple[Tally, dict[str, object]]:
    """Return the counts of some days as far as who asks is told of them, and what a document says of the others."""
    pooled = Pooled.of(stored, window, tallies)
    tally = visible_tally(store, stored, pooled)
    if tally.left_out == 0:
        return tally, {}
    refuse_slow(store, slow=takes_seconds(stored))
    return tally, {"left_out": _left_out(stored, pooled)}


def _of_day(store: Store, id_: str) -> Snapshot | None:
    made = _content(store, id_)
    if made is None:
        return None
    document = json.loads(made)
    if document["v"] != FORMAT:
        raise StoreError(f"the snapshot {id_} has format {document['v']}; this dither reads {FORMAT}")
    plan = Plan.from_document(document["plan"])
    try:
        stored = replace(store.stored(plan), candidates=tuple(document["candidates"]))
    except KeyError:
        raise StoreError(f"the snapshot {id_} is of a plan that the store does not have: run `dither fsck`") from None
    window = Window.ending(date.fromisoformat(document["epoch"]), 1)
    whole = _tally(plan, msgspec.convert(document["tally"], _Counts))
    tally, left_out = _visible(store, stored, window, [whole])
    if left_out:
        document = {**_document(store.app, stored, window, tally), "snapshot": id_, **left_out}
    return Snapshot(id_, document, stored, window, tally)


def _left_out(stored: StoredPlan, pooled: Pooled) -> dict[str, object]:
    """Return how many reports are left out, and which cells are not, so that an admin can compute the same.

    The others are not listed: a cell of a few reports would be told from one without any.
    """
    tally = without_few(stored, pooled)
    kept = np.flatnonzero(sizes(stored.plan.cells, tally.counts)).tolist()
    return {"reports": tally.left_out, "cells_kept": kept, "cell_min": CELL_MIN, "day_min": BATCH_MIN}


def _document(app: str, stored: StoredPlan, window: Window, tally: Tally, together: int = 1) -> dict[str, object]:
    view = View(days=window.days, together=together)
    return {
        "v": FORMAT,
        "app": app,
        "plan": stored.plan.to_document(),
        "candidates": list(stored.candidates),
        **window.to_document(),
        "tally": {
            "n": tally.n,
            "digest": tally.digest,
            "counts": base64.b64encode(b"".join(plain_counts(tally.counts))).decode("ascii"),
        },
        "estimates": estimate(stored, window.last, tally, view).to_document(),
        "made_with": _versions(),
    }


@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("dither", "numpy", "scipy")}
