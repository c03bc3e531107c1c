"""A read key is told of no report that comes, and of no cell of a few, on both stores."""

import random
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from flask.testing import FlaskClient

from dither_aggregator.analysis.reading import sizes
from dither_aggregator.operations import maintenance
from dither_aggregator.store import Store
from dither_aggregator.store.contract import BATCH_MIN
from dither_aggregator.store.invariants import check
from dither_aggregator.store.records import HEAD_BYTES, Batch, add_plain, pack_counts
from dither_aggregator.web.reader_process import reading_app
from dither_shared.registry import Registry
from dither_shared.wire import encode_upload, new_upload_id
from tests.support.aggregators import operators_app
from tests.support.registries import registry
from tests.support.stores import Place, append, body_of, fold_all, parsed

POLLED = (
    *("/", "/changes", "/metrics/color", "/metrics/color?window=today", "/metrics/color/time", "/compare?metric=color"),
    *("/v1/metrics", "/v1/metrics/color/values", "/v1/metrics/color/estimates", "/v1/changes", "/v1/marks"),
    *("/v1/metrics/color/estimates?window=today", "/v1/metrics/color/estimates?window=today&format=csv"),
    *("/v1/metrics/color/estimates?from={yesterday}&to={today}", "/v1/metrics/color/series"),
    *("/v1/metrics/color/snapshots", "/v1/metrics/color/quality", "/v1/compare?metric=color", "/pipeline"),
    *("/v1/compare?metric=color&base_from={yesterday}&base_to={yesterday}&from={today}&to={today}",),
    *("/s/{snapshot}", "/s/{snapshot}.csv", "/s/{snapshot}.svg", "/v1/snapshots/{snapshot}"),
)
"""Every address that shows anything that was counted."""


def reader(store: Store) -> FlaskClient:
    """Return pages and API as they are with a read key."""
    return reading_app(store).test_client()


def maintain_all(store: Store) -> None:
    """Do what workers do in a round, and name the days' snapshots."""
    fold_all(store)
    for shard in range(store.shards):
        maintenance.maintain(store, shard)
    maintenance.maintain_whole(store)
    for metric in maintenance.unfinalized(store):
        maintenance.finalize(store, metric)


def send(store: Store, asked: Registry, n: int, metric: str = "color") -> None:
    """Let so many devices send a report each."""
    bodies = [body_of(asked, {metric: [number % 2]}) for number in range(n)]
    assert all(receipt.accepted for receipt in store.append([parsed(store, body) for body in bodies]) if receipt)  # type: ignore[union-attr]
    fold_all(store)


def answers(place: Place, store: Store, client: FlaskClient) -> dict[str, tuple[int, bytes]]:
    """Return what every address answers."""
    (snapshot,) = rows_of(client, "/v1/metrics/color/snapshots")
    names = {"yesterday": str(place.day()), "today": str(place.day(1)), "snapshot": snapshot["snapshot"]}
    asked = {address: client.get(address.format(**names)) for address in POLLED}
    return {address: (answer.status_code, answer.get_data()) for address, answer in asked.items()}


def rows_of(client: FlaskClient, address: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = client.get(address).get_json()["rows"]
    return rows


def n_of(client: FlaskClient, metric: str = "color") -> int:
    """Return of how many of today's reports a read key is told."""
    n: int = client.get(f"/v1/metrics/{metric}/estimates?window=today").get_json()["meta"]["n"]
    return n


def test_who_polls_sees_no_report_come(place: Place, store: Store, asked: Registry) -> None:
    """A report comes; then enough for a batch, within the hour. An operator sees each at once."""
    send(store, asked, 2 * BATCH_MIN)
    maintain_all(store)
    place.travel(1)
    maintain_all(store)
    told, live = reader(store), operators_app(store).test_client()
    before, seen = answers(place, store, told), answers(place, store, live)
    assert [status for status, _ in before.values() if status != 200] == [403]  # the pipeline's page
    append(store, body_of(asked, {"color": [1]}))
    assert answers(place, store, told) == before  # nor that it waits to be counted
    maintain_all(store)
    assert answers(place, store, told) == before
    now = answers(place, store, live)
    changed = {address for address in POLLED if now[address] != seen[address]}
    assert {"/pipeline", "/metrics/color?window=today", "/v1/metrics", "/v1/metrics/color/series"} <= changed
    send(store, asked, 3 * BATCH_MIN)
    maintain_all(store)
    assert answers(place, store, told) == before


def test_figures_of_today_change_at_full_hours_and_by_a_hundred_reports(
    place: Place, store: Store, asked: Registry
) -> None:
    """Also from the last that is shown to the sealed day, and for all metrics at the same instant."""
    client, drawn = reader(store), random.Random(1)
    shown: dict[str, list[int]] = {"color": [0], "dark": [0]}
    maintain_all(store)
    for _ in range(9):
        place.travel(1 / 24)
        maintain_all(store)
        for metric, figures in shown.items():
            n = n_of(client, metric)
            figures += [n] * (n != figures[-1])
            send(store, asked, drawn.choice((3, 60, 99, 100, 170)), metric)
        maintain_all(store)
        assert n_of(client) == shown["color"][-1]
    assert list(check(store)) == []
    place.travel(1)
    maintain_all(store)
    for metric, figures in shown.items():
        figures.append(store.tally(asked.metrics[metric].plan, place.day()).n)
        assert len(figures) > 3
        assert all(later - earlier >= BATCH_MIN for earlier, later in pairwise(figures))
    assert store.batches()[1] == []


def test_a_day_of_fewer_than_a_hundred_reports_is_told_with_others_alone(
    place: Place, store: Store, asked: Registry
) -> None:
    client, live = reader(store), operators_app(store).test_client()
    for n in (BATCH_MIN, BATCH_MIN - 1):
        send(store, asked, n)
        maintain_all(store)
        place.travel(1)
        maintain_all(store)
    address = "/v1/metrics/color/estimates?window={}"
    for window, told, all_ in ((1, 0, BATCH_MIN - 1), (7, 2 * BATCH_MIN - 1, 2 * BATCH_MIN - 1)):
        meta = client.get(address.format(window)).get_json()["meta"]
        assert (meta["n"], meta["left_out"]) == (told, None if window == 1 else 0)
        assert live.get(address.format(window)).get_json()["meta"]["n"] == all_
    page = client.get("/metrics/color?window=1").get_data(as_text=True)
    assert "With a read key, a day of fewer than 100 reports is told together with others only." in page
    days = {row["from"] for row in rows_of(client, "/v1/metrics/color/series?values=red")}
    assert days == {str(place.day())}
    few, whole = rows_of(client, "/v1/metrics/color/snapshots")
    for one, n in ((few, 0), (whole, BATCH_MIN)):
        assert client.get(f"/v1/snapshots/{one['snapshot']}").get_json()["tally"]["n"] == n
        lines = client.get(f"/s/{one['snapshot']}.csv").get_data(as_text=True).splitlines()
        assert len(lines) - 1 == (len(asked.metrics["color"].plan.values) if n else 0)


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ([(True, 100), (False, 199)], "one of 199 reports follows too few others"),
        ([(False, 99)], "one of 99 reports follows too few others"),
        ([(True, 100)], "what is shown is the last cut"),
        ([(False, 100)], "one is of 100 reports, and the tally of 0"),
    ],
)
def test_batches_that_cannot_be_are_found(
    store: Store, asked: Registry, batches: Sequence[tuple[bool, int]], said: str
) -> None:
    stored = store.stored(asked.metrics["dark"].plan)
    kept = [
        Batch(stored.id, store.today(), shown, n, pack_counts(np.array([n, n, 0], dtype=np.int64)))
        for shown, n in batches
    ]
    store.fill_batches(1, kept)
    assert store.batches() == (1, sorted(kept, key=lambda one: one.shown))
    assert any(said in found for found in check(store))


# Cells.


@pytest.fixture
def memoized() -> Registry:
    return registry(
        kind="text", epsilon="1.0", epsilon_permanent="4.0", candidates=("alpha", "beta"), color='mechanism = "rappor"'
    )


def in_cohorts(asked: Registry, cohorts: Sequence[int], drawn: random.Random) -> Iterator[bytes]:
    """Yield the uploads of devices of these cohorts."""
    plan = asked.metrics["color"].plan
    shape = plan.mechanism.shape
    for cohort in cohorts:
        report = drawn.getrandbits(shape.size)
        yield encode_upload(new_upload_id(drawn.getrandbits), [("color", plan.digest, [shape.to_wire(report)], cohort)])


def test_no_cohort_of_a_few_devices_can_be_read(place: Place, memoized: Registry) -> None:
    """Devices of a memoized text: a hundred of them are nearly alone in a cohort, with bits that are a lasting mark."""
    store, drawn = place.make(memoized), random.Random(2)
    plan = memoized.metrics["color"].plan
    crowded = [*range(4)] * 58  # with fewer they could be of 19 devices that were away
    cohorts = [*crowded, *(drawn.randrange(4, plan.cells.count) for _ in range(100))]
    for body in in_cohorts(memoized, cohorts, drawn):
        append(store, body)
    maintain_all(store)
    place.travel(1)
    maintain_all(store)
    client, live = reader(store), operators_app(store).test_client()
    (kept,) = rows_of(client, "/v1/metrics/color/snapshots")
    assert kept["tally"] is None
    whole = live.get(f"/v1/snapshots/{kept['snapshot']}").get_json()
    told = client.get(f"/v1/snapshots/{kept['snapshot']}").get_json()
    assert (whole["tally"]["n"], told["tally"]["n"]) == (332, 232)
    assert told["left_out"]["reports"] == 100
    assert told["left_out"]["cells_kept"] == [*range(4)]  # so an empty cohort is not told from one of a single device
    assert "salt" in whole
    assert "salt" not in told
    window = client.get("/v1/metrics/color/estimates").get_json()
    assert (window["meta"]["n"], window["meta"]["left_out"]) == (232, 100)
    assert {row["left_out"] for row in window["rows"]} == {100}
    assert "100 reports are left out" in client.get("/metrics/color").get_data(as_text=True)
    assert "100 reports are left out" in client.get(f"/s/{kept['snapshot']}").get_data(as_text=True)
    assert sizes_in(store, told) == [58] * 4 + [0] * (plan.cells.count - 4)


def sizes_in(store: Store, document: Mapping[str, Any]) -> list[int]:
    """Return how many reports of each cell the counts of a snapshot's document tell."""
    cells = store.plans("color")[0].plan.cells
    plain, counts = b64decode(document["tally"]["counts"]), np.zeros(cells.tally_size, dtype=np.int64)
    add_plain(counts, plain[:HEAD_BYTES], plain[HEAD_BYTES:])
    found: list[int] = sizes(cells, counts).tolist()
    return found
