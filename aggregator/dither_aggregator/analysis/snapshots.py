"""A snapshot: an immutable set of estimates with all that reproduces it. Its id is the digest of its content.

The content is canonical JSON: the plan, the epoch, the tally's n and counts, the candidates of a text, the estimates
made of them, the versions of what made them, and a salt, so that counts cannot be tried against the id. The same tally
gives the same counts for ever; other versions of the libraries may give other last digits.

A read key is told a document of its own, made without the cells of a few reports (`disclosure.py`) and the salt.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any

import numpy as np

from dither_aggregator.analysis.disclosure import CELL_MIN, Pooled, sees_all, sizes, visible_tally, without_few
from dither_aggregator.analysis.estimands import estimate, takes_seconds
from dither_aggregator.analysis.reading_cache import refuse_slow
from dither_aggregator.analysis.windows import Window
from dither_aggregator.store import Store, StoredPlan, StoreError, Tally
from dither_aggregator.store.contract import BATCH_MIN
from dither_aggregator.store.packing import HEAD_BYTES, add_plain, plain_counts
from dither_aggregator.store.records import Final
from dither_shared.canonical_json import canonical_json
from dither_shared.plan import Plan

FORMAT = 1


@dataclass(frozen=True)
class Snapshot:
    """A snapshot as it was taken."""

    id: str
    document: Mapping[str, Any]
    stored: StoredPlan
    """Its plan, with the candidates that were looked for then."""
    epoch: date
    tally: Tally
    """Read back from its counts: the digest is computed anew."""

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
    made = canonical_json({**_document(store.app, stored, epoch, tally), "salt": salt})
    final = Final(tally.digest, hashlib.sha256(made).hexdigest())
    recorded = store.finalize(stored.plan, epoch, final, zlib.compress(made))
    # A tally that others recorded and gave up meanwhile reads as nothing.
    if recorded.digest != final.digest and epoch >= store.tallies_from():
        raise StoreError(
            f"the tally of {stored.plan.metric}, plan {stored.plan.digest}, of {epoch} is not the one recorded as "
            "final: run `dither fsck`"
        )
    return recorded


def content(store: Store, id_: str) -> bytes | None:
    """Return a snapshot's canonical JSON, or what a read key is told of it; None where there is none.

    Raises StoreError where it is not its id's.
    """
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
    plain = base64.b64decode(document["tally"]["counts"])
    counts = np.zeros(plan.cells.tally_size, dtype=np.int64)
    add_plain(counts, plain[:HEAD_BYTES], plain[HEAD_BYTES:])
    epoch, whole = date.fromisoformat(document["epoch"]), Tally(document["tally"]["n"], counts)
    pooled = Pooled.of(stored, Window.ending(epoch, 1), [whole])
    tally = visible_tally(store, stored, pooled)
    if tally.left_out != 0:
        refuse_slow(store, slow=takes_seconds(stored))
        less = {"snapshot": id_, "left_out": _left_out(stored, pooled)}
        document = {**_document(store.app, stored, epoch, tally), **less}
    return Snapshot(id_, document, stored, epoch, tally)


def _left_out(stored: StoredPlan, pooled: Pooled) -> dict[str, object]:
    """Return how many reports are left out, and which cells are not, so that an admin can compute the same.

    The others are not listed: a cell of a few reports would be told from one without any.
    """
    tally = without_few(stored, pooled)
    kept = np.flatnonzero(sizes(stored.plan.cells, tally.counts)).tolist()
    return {"reports": tally.left_out, "cells_kept": kept, "cell_min": CELL_MIN, "day_min": BATCH_MIN}


def _document(app: str, stored: StoredPlan, epoch: date, tally: Tally) -> dict[str, object]:
    return {
        "v": FORMAT,
        "app": app,
        "plan": stored.plan.to_document(),
        "candidates": list(stored.candidates),
        "epoch": epoch.isoformat(),
        "tally": {
            "n": tally.n,
            "digest": tally.digest,
            "counts": base64.b64encode(b"".join(plain_counts(tally.counts))).decode("ascii"),
        },
        "estimates": estimate(stored, epoch, tally).to_document(),
        "made_with": _versions(),
    }


@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("dither", "numpy", "scipy")}
