"""A process that has been away for a moment meets what others have done since."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dither_aggregator.analysis import closed_days
from dither_aggregator.store import Store
from dither_aggregator.store.document_kinds import Retention
from dither_shared.wire import encode_upload, new_upload_id
from dither_shared.wire.reading import parse_upload
from tests.faults.aggregator.editions import editions
from tests.faults.aggregator.places import FIRST_DAY, Place, Places
from tests.faults.aggregator.world import KINDS
from tests.support.soaking import MEMORY

pytestmark = pytest.mark.slow

SEGMENTS = 70
METRIC = "late"


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with TemporaryDirectory(dir=MEMORY) as directory, closing(Places(Path(directory))) as places:
        yield places.new(request.param)


@pytest.fixture
def processes(place: Place) -> Iterator[tuple[Store, Store]]:
    """Yield the stores of two processes, with a plan of which only one knows and under which it folded many uploads."""
    first, second, *_ = editions(FIRST_DAY)
    with closing(place.make(shards=1)) as one, closing(place.open()) as other:
        one.set_clock_offset(place.offset(0))
        one.load(first)
        other.refresh()
        one.load(second)
        fill(one, second.metrics[METRIC].plan.digest)
        yield one, other


def fill(store: Store, digest: str) -> None:
    rng = random.Random(1)
    for _ in range(SEGMENTS):
        body = encode_upload(new_upload_id(rng.getrandbits), [(METRIC, digest, [1])])
        store.append([(parse_upload(body, store.find_plan), body)])
        assert store.fold(0)


READERS: dict[str, Callable[[Store], object]] = {
    "ledger": lambda store: [row.folded for row in store.ledger()],
    "compact": lambda store: [store.compact(0)],
    "dump": lambda store: list(store.dump()),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_plan_that_another_process_loaded_is_read(processes: tuple[Store, Store], reader: str) -> None:
    _, stale = processes
    assert READERS[reader](stale)


def test_who_records_an_epoch_again_that_was_given_up_since_gets_what_is_recorded(
    processes: tuple[Store, Store], place: Place
) -> None:
    store, late = processes
    (stored, *_) = store.plans(METRIC)
    store.set_clock_offset(place.offset(2))
    store.seal(0)
    store.merge(0)
    late.refresh()
    final = closed_days.take(store, stored, FIRST_DAY)
    store.put(Retention(tallies_days=0))
    store.forget(0)
    assert store.tally(stored.plan, FIRST_DAY).n == 0
    assert closed_days.take(late, stored, FIRST_DAY) == final
