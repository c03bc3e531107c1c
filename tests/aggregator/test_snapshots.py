"""The digests of tallies and the content of snapshots are pinned: another release names the same counts the same."""

import hashlib
from datetime import date

import numpy as np

from dither_aggregator.analysis.snapshots import _document
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.documents import canonical_json
from tests.support.registries import registry

METRIC = registry(expires=date(2027, 2, 28)).metrics["dark"]
STORED = StoredPlan(1, METRIC.plan, METRIC.question, (), METRIC.reservation, METRIC.expires, current=True)
TALLY = Tally(50, np.array([50, 30, 20]))


def test_the_digest_of_a_tally_is_pinned() -> None:
    """n, then of each cell its number and its counts, 64 bits each, little-endian."""
    numbers = (50, 50, 30, 20)
    plain = hashlib.sha256(b"".join(number.to_bytes(8, "little") for number in numbers)).hexdigest()
    assert TALLY.digest == plain == "59e45d64842b28f05e0c7a31c95940d50e9d7e657b746fa337f4becbfd2b08c2"


def test_the_content_of_a_snapshot_is_pinned() -> None:
    """But for the estimates, whose last digits are those of numpy and scipy, and the versions of these."""
    document = _document("example", STORED, date(2026, 11, 22), TALLY)
    assert set(document.pop("made_with")) == {"dither", "numpy", "scipy"}  # type: ignore[call-overload]
    assert [row["value"] for row in document.pop("estimates")["rows"]] == ["no", "yes"]  # type: ignore[index]
    assert document["plan"] == METRIC.plan.to_document()
    assert (
        hashlib.sha256(canonical_json(document)).hexdigest()
        == "cb35e4a0bf8bd32a7f12eabb8b7c70e32c15bab1293d19fc9ccdb315dea0827a"
    )
