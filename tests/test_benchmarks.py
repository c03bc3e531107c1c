"""The short version of `make bench`: what it measures, and that what must not grow does not, without a clock."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from redis import Redis

from dither_aggregator.analysis.tables.pairs import PairTable
from dither_aggregator.analysis.tables.synthesis import ColumnRun
from dither_aggregator.operations import maintenance
from dither_aggregator.store import SQLiteStore, Store, create_store
from dither_shared.kinds.number import GRID
from dither_shared.mechanisms import PureMechanism, choose
from tests.benchmarks import accuracy, growth, timing, workload
from tests.benchmarks import audit as audits
from tests.benchmarks.load import AnswerReader
from tests.benchmarks.numbers import channels, comparing, coverage, hierarchical, means, square_wave
from tests.benchmarks.numbers.ours import estimate, ours, plan_of, weighted
from tests.benchmarks.numbers.shapes import Floats, shapes
from tests.benchmarks.outcomes import Outcome
from tests.benchmarks.steady import Try, Waits, streak
from tests.benchmarks.tables import comparing as tables
from tests.benchmarks.tables import coverage as table_coverage
from tests.benchmarks.tables import references
from tests.benchmarks.tables.census import census
from tests.support.audits import EVERY, of_metric
from tests.support.redis_servers import running_redis

Cost = Callable[[Callable[[], object]], int]


@pytest.mark.parametrize(
    "mechanism",
    [choose(2, Decimal(1)), choose(16, Decimal(1)), choose(128, Decimal(2)), choose(128, Decimal(4))],
    ids=str,
)
def test_the_error_is_that_of_the_formula_and_intervals_hold(mechanism: PureMechanism) -> None:
    """A short version of the accuracy section, with seeds.

    In standard deviations of so many repetitions the error may be off by 12 at two values, by 18 at 16, by 7 at 128;
    Wald's coverage by 6, 10 and 4.
    """
    repetitions = {2: 4_500, 16: 750, 128: 15}[mechanism.d]
    epsilon = mechanism.charge / 1e6
    mse, _, wald, exact = accuracy.measure(mechanism, epsilon, accuracy.zipf(mechanism.d), repetitions)
    assert abs(mse - 1) < 0.25
    assert abs(wald - 0.95) < 0.02
    assert exact > 0.93


def test_a_formula_that_promises_too_much_would_be_caught() -> None:
    mechanism = choose(128, Decimal(1))
    mechanism.__dict__["average_variance"] = mechanism.average_variance / 2
    mse, *_ = accuracy.measure(mechanism, 1.0, accuracy.zipf(128), 15)
    assert mse > 1.25


@pytest.fixture(params=["sqlite", "redis"])
def measured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Cost]]:
    """Give a store, and what work costs it on a machine of any speed: SQLite's steps, or the bytes that Redis says."""
    if request.param == "sqlite":
        with closing(SQLiteStore.create(tmp_path, "benchmark")) as made:
            made.load(workload.registry())
            yield made, partial(steps_of, made)
    else:
        with running_redis(tmp_path) as server, closing(create_store(server.url, "benchmark")) as other:
            other.load(workload.registry())
            with server.client() as client:
                yield other, partial(bytes_of, client)


def steps_of(store: SQLiteStore, work: Callable[[], object]) -> int:
    steps = count()
    store._db.set_progress_handler(lambda: 0 * next(steps), 10)
    work()
    store._db.set_progress_handler(None, 0)
    return next(steps)


def bytes_of(client: Redis, work: Callable[[], object]) -> int:
    before = int(client.info("stats")["total_net_output_bytes"])
    work()
    return int(client.info("stats")["total_net_output_bytes"]) - before


def test_uploads_share_a_commit(tmp_path: Path) -> None:
    with closing(SQLiteStore.create(tmp_path, "benchmark")) as store:
        store.load(workload.registry())
        uploads = growth.Loader(store, reports=20).uploads(64)
        said: list[str] = []
        store._db.set_trace_callback(said.append)
        store.append(uploads)
        assert said.count("COMMIT") == 1


def test_a_compacted_tally_costs_the_same_however_many_reports_it_has(measured: tuple[Store, Cost]) -> None:
    store, cost = measured
    loader = growth.Loader(store, reports=400)
    largest = max(store.plans(), key=lambda item: item.plan.cells.tally_size).plan

    def compacted() -> int:
        for shard in range(store.shards):
            store.compact(shard)
        return cost(lambda: store.tally(largest, store.clock_day()))

    loader.load(256 * loader.upload_reports)
    once = compacted()
    for _ in range(20):
        loader.load(64 * loader.upload_reports)
    assert compacted() < 3 * once  # 20 times as many segments would cost 17 times as much


def test_a_status_does_not_read_the_log(measured: tuple[Store, Cost]) -> None:
    store, cost = measured
    loader = growth.Loader(store, reports=20)
    store.append(loader.uploads(8))
    few = cost(store.status)
    store.append(loader.uploads(512))
    assert cost(store.status) < 2 * few + 10


def test_a_look_for_final_days_asks_no_more_for_more_metrics(tmp_path: Path) -> None:
    asked = []
    for metrics in (4, 40):
        with closing(SQLiteStore.create(tmp_path / str(metrics), "benchmark")) as made:
            made.load(workload.registry(metrics))
            growth.Loader(made, reports=200).load(10_000)
            with patch.object(made, "_rows", wraps=made._rows) as rows:
                maintenance.unfinalized(made)
            asked.append(rows.call_count)
    assert asked[0] == asked[1]


# Attacks: what is measured and judged. tests/faults/aggregator/test_attacks.py has the attacks themselves.


def waits(number: int, wait_s: float, end: str = "202") -> Waits:
    return Waits.of([Try(serial, 0.0, end, wait_s) for serial in range(number)])


SURVIVED = Outcome(
    base=waits(100, 0.01),
    attacked=waits(100, 0.04),
    health=waits(10, 0.1),
    memory_mib=100,
    log_bytes=0,
    back_s=0.5,
    settled=True,
    uploads=200,
    counted=200,
)


def test_a_server_that_meets_every_aim_misses_none() -> None:
    assert SURVIVED.missed() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attacked": waits(100, 0.06)}, "good uploads' p99 is 60.0 ms, more than 50.0"),
        ({"attacked": waits(100, 0.001, "503")}, "p99 is 10000.0 ms"),
        ({"attacked": waits(100, 0.001, "503")}, "of 100 good uploads 0 were acknowledged"),
        ({"attacked": waits(100, 0.021), "apart": True}, "p99 is 21.0 ms, more than 20.0"),
        ({"memory_mib": 513}, "it took 513 MiB"),
        ({"log_bytes": 20_000}, "it logged 20000 bytes"),
        ({"health": waits(10, 0.1, "no answer")}, "of 10 questions for its health failed {'no answer': 10}"),
        ({"back_s": 6.0}, "it was back after 6.0 s"),
        ({"back_s": math.inf}, "it did not come back"),
        ({"settled": False}, "not every good upload was acknowledged afterwards"),
        ({"counted": 199}, "the ledger has 199 of 200"),
        ({"counted": 201}, "the ledger has 201 of 200"),
    ],
)
def test_an_aim_that_an_attack_misses_is_named(changes: dict[str, Any], words: str) -> None:
    assert any(words in each for each in replace(SURVIVED, **changes).missed())


def test_good_uploads_may_wait_three_times_as_long_as_before_where_that_is_more() -> None:
    slow = replace(SURVIVED, base=waits(100, 0.1), attacked=waits(100, 0.29))
    assert slow.missed() == []
    assert replace(slow, attacked=waits(100, 0.31)).missed()


def test_a_server_is_back_with_the_first_of_enough_good_uploads_in_a_row() -> None:
    tries = [Try(serial, serial, "503" if serial == 4 else "202", 9.0 if serial == 2 else 0.1) for serial in range(8)]
    assert streak(tries, 2, 1.0) == 0
    assert streak(tries, 3, 1.0) == 5
    assert streak(tries, 4, 1.0) is None


@pytest.mark.parametrize(
    "rest", [b"Content-Length: 2\r\n\r\n{}", b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"]
)
def test_an_answer_is_whole_with_its_last_byte(rest: bytes) -> None:
    reader, answer = AnswerReader(), b"HTTP/1.1 202 ACCEPTED\r\n" + rest
    for _ in range(2):
        assert [reader.feed(bytes([each])) for each in answer] == [0] * (len(answer) - 1) + [202]
        assert reader.feed(answer) == 202
    assert not reader.closes
    assert reader.feed(b"HTTP/1.1 503 BUSY\r\nConnection: close\r\nContent-Length: 0\r\n\r\n") == 503
    assert reader.closes


# Numbers beside published mechanisms.


@pytest.mark.parametrize(
    "channel",
    [
        square_wave.window(8, 1.0, 2),
        channels.points_channel(channels.points_mechanism(8, 1.0)),
        channels.points_channel(channels.points_mechanism(8, 4.0)),
    ],
    ids=["window", "pgr", "grr"],
)
def test_the_likeliest_shares_of_expected_counts_are_the_truth(channel: Floats) -> None:
    assert channel.sum(axis=0) == pytest.approx(1)
    truth = np.arange(1, 9) / np.arange(1, 9).sum()
    expected = np.rint(1e12 * channel @ truth).astype(np.int64)[np.newaxis]
    with patch.object(channels, "STEPS_MAX", 5_000):
        (found,) = channels.likeliest(channel, expected, 0.0)
    assert found == pytest.approx(truth, abs=2e-3)


def test_the_consistent_tree_is_the_nearest_one() -> None:
    """Least squares by a generic solver is the other way to the same tree."""
    rng = np.random.default_rng(1)
    tree = [rng.random((1, 4)), rng.random((1, 16))]
    rows = np.vstack([np.kron(np.eye(4), np.ones(4)), np.eye(16)])
    noisy = np.concatenate([level[0] for level in tree])
    total = np.ones((1, 16))
    system = np.block([[rows.T @ rows, total.T], [total, np.zeros((1, 1))]])
    leaves = np.linalg.solve(system, np.concatenate([rows.T @ noisy, [1]]))[:16]
    assert hierarchical.constrained(tree)[0] == pytest.approx(leaves)


def strayed(epsilon: float, sampled_at: float) -> list[str]:
    """Return which means of 400 seeds do not follow their formula.

    A standard error 20 % off is 5.7 sigma, a mean 5.5 sigma off is 5.5: in all 5e-8 for each that is sampled.
    """
    devices = np.tile(np.array([300, 100, 0, 50, 50]), (400, 1))
    x, shares = means.points_of(5), devices[0] / devices[0].sum()
    rngs = [np.random.default_rng([7, seed]) for seed in range(len(devices))]
    missed = []
    for sampled, variance in ((means.duchi, means.duchi_variance), (means.hybrid, means.hybrid_variance)):
        error = math.sqrt(shares @ variance(epsilon, x) / devices[0].sum())
        found = sampled(devices, sampled_at, rngs)
        if abs(found.mean() - shares @ x) > 5.5 * error / math.sqrt(len(found)):
            missed.append(f"{sampled.__name__} is biased")
        if abs(found.std(ddof=1) / error - 1) > 0.2:
            missed.append(f"{sampled.__name__} has another variance")
    return missed


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_sampled_means_have_the_variance_of_their_formulas(epsilon: float) -> None:
    assert strayed(epsilon, epsilon) == []


def test_sampled_means_of_another_epsilon_would_be_caught() -> None:
    assert strayed(1.0, 1.5) == ["duchi has another variance", "hybrid has another variance"]


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 6.0])
def test_a_window_has_an_unbiased_mean_with_less_variance_than_any_reference(epsilon: float) -> None:
    best, x = means.window_mean(epsilon), means.points_of(GRID)
    assert best.weights @ best.channel == pytest.approx(x)
    for variance in (means.duchi_variance, means.piecewise_variance, means.hybrid_variance):
        assert best.worst < variance(epsilon, x).max()
    assert best.worst <= comparing.MEAN_VARIANCE_MAX.get(epsilon, math.inf)


def mass_error(design: comparing.Design) -> float:
    """Return the average error of the share at 40 hours, in points, at epsilon 0.5."""
    (hours,) = (shape for shape in shapes() if shape.name == "hours")
    devices = np.stack([hours.devices(100_000, seed) for seed in range(8)])
    found = design(devices, 0.5, [np.random.default_rng([8, seed]) for seed in range(8)])
    return float(100 * np.abs(found - devices / 100_000)[:, hours.heaviest].mean())


def test_ours_finds_the_mass_that_square_wave_blurs() -> None:
    """Ours is off 2.5 points (deviation 2 a seed), square wave 20 (4), lost points 24 (6): with 8 seeds 6 sigma."""
    half = mass_error(square_wave.em) / 2
    assert mass_error(ours) < half
    # As a plan that lost its points would.
    assert mass_error(lambda d, epsilon, rngs: estimate(weighted(plan_of(d.shape[1], epsilon), 999, 1), d, rngs)) > half


def test_every_number_design_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        patch.object(channels, "STEPS_MAX", 10),
        patch.object(timing, "BUDGET_S", 0.02),
        patch.object(comparing, "EPSILONS", (1.0,)),
        patch.object(coverage, "CASES", coverage.CASES[8:]),
        patch.object(coverage, "COMPARED", coverage.CASES[11:]),
        patch.multiple(coverage, GLS_SEEDS=40, BOUND_SEEDS=20, PAIRS=40),
    ):
        comparing.run(n=1_000, seeds=2)
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("hours", *comparing.DISTRIBUTIONS, *comparing.MEANS))


def errors(w1: float, mass: float = 1.0) -> comparing.Errors:
    """Errors that differ a little from seed to seed."""
    seeds = w1 + 0.01 * np.array([-1.0, 0.0, 1.0, 0.5])
    return comparing.Errors(seeds, np.full(4, mass), seeds, seeds, seeds)


def judged(ours_w1: Sequence[float], epsilon: float, mass: float = 0.1) -> list[str]:
    names = [shape.name for shape in shapes()]
    return comparing.aims_missed(
        epsilon,
        {
            comparing.OURS: {name: errors(w1, mass) for name, w1 in zip(names, ours_w1, strict=True)},
            comparing.EM: {name: errors(1.0) for name in names},
            comparing.EMS: {name: errors(2.0) for name in names},
        },
    )


@pytest.mark.parametrize(
    ("w1", "epsilon", "mass", "words"),
    [
        ((1, 1, 1, 1.2, 1.2), 1.0, 0.1, "noticeably above the best on age, hours"),
        ((1, 1, 1, 1, 1.2), 2.0, 0.4, "the mass at eps 2 is off 0.40 times"),
        ((1, 1, 1.6, 1.7, 1), 4.0, 0.1, "on zeros is 1.60 times"),
        ((1, 1, 2.0, 1, 1), 4.0, 0.1, "on zeros is 2.00 times"),
    ],
)
def test_an_aim_for_numbers_that_is_missed_is_named(
    w1: Sequence[float], epsilon: float, mass: float, words: str
) -> None:
    (missed,) = judged(w1, epsilon, mass)
    assert words in missed


@pytest.mark.parametrize(("w1", "epsilon"), [((1, 1, 1, 1, 1.2), 1.0), ((1.4, 1.4, 1.4, 1.4, 1.8), 4.0)])
def test_aims_for_numbers_that_are_met_are_not_missed(w1: Sequence[float], epsilon: float) -> None:
    assert judged(w1, epsilon) == []


# Tables.


def test_a_step_over_many_columns_is_a_pass_for_each_pair() -> None:
    sizes = (2,) * 8
    weights, columns = np.random.default_rng(1).dirichlet(np.ones(2**8)), ColumnRun(sizes)
    margins = columns.margins(weights)
    expected = references.margins(weights.reshape(sizes))
    assert all(np.allclose(margins[pair], table) for pair, table in expected.items())
    assert np.allclose(columns.spread(margins).reshape(sizes), references.spread(margins, sizes))


def test_the_census_is_that_of_48_842_people() -> None:
    assert (census().shape, census().sum(), (census() > 0).sum()) == ((2, 2, 16, 7, 9), 48_842, 1_404)


def test_references_of_pairs_without_noise_are_right() -> None:
    """Proportional fitting has all their margins, and independence those of single columns."""
    group = np.random.default_rng(1).dirichlet(np.ones(24)).reshape(2, 3, 4)
    every = {columns: group.sum(axis=3 - sum(columns)) for columns in ((0, 1), (0, 2), (1, 2))}
    pairs = tuple(PairTable(columns, shares, np.full(shares.shape, 1e-6)) for columns, shares in every.items())
    fitted, independent = references.proportional(pairs), references.independent(pairs)
    for columns, shares in every.items():
        assert np.allclose(fitted.sum(axis=3 - sum(columns)), shares, atol=1e-6)
    assert np.allclose(independent.sum(axis=(1, 2)), group.sum(axis=(1, 2)))


def test_every_table_method_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    def in_place_of_mbi(drawn: Sequence[tuple[tuple[PairTable, ...], int]], shape: tuple[int, ...]) -> list[Floats]:
        return [references.independent(pairs).reshape(shape) for pairs, _ in drawn]

    few = patch.multiple(tables, EPSILONS=("4",), TIMED=((2, 3, 2),))
    first = patch.multiple(table_coverage, COVERAGE=table_coverage.COVERAGE[:1], NOTHING=table_coverage.NOTHING[:1])
    quick = patch.object(timing, "BUDGET_S", 0.02)
    with few, first, quick, patch.multiple(references, ask_mbi=in_place_of_mbi, ROUNDS=2):
        tables.run(ns=(5_000,), seeds=2, coverage_seeds=1)
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("dither", "mbi", "Norm-Sub + IPF", "independence", "full product"))
    assert "GRR 2 x 2" in printed


def table_errors(two_way: float, three_way: float) -> Floats:
    """Errors that differ a little from seed to seed."""
    return np.array([0.01, two_way, three_way]) + 0.001 * np.array([[-1.0], [0.0], [1.0], [0.5]])


@pytest.mark.parametrize(
    ("n", "two_way", "mbi", "words"),
    [
        (48_842, 0.05, 0.06, ["0.0501 is above 0.034"]),
        (48_842, 0.03, 0.0299, ["0.0301 is above mbi's 0.0300"]),
        (48_842, 0.03, 0.03, []),
        (1_000_000, 0.03, 0.029, ["0.0301 is above mbi's 0.0291"]),
        (1_000_000, 0.05, 0.06, []),
    ],
)
def test_an_aim_for_tables_that_is_missed_is_named(n: int, two_way: float, mbi: float, words: list[str]) -> None:
    ours_errors, theirs = table_errors(two_way, 0.05), table_errors(mbi, 0.06)
    theirs += 1e-6 * np.array([[1], [-1], [1], [-1]])  # as differences of seeds are never all the same
    missed = tables.aims_missed(n, "4", {tables.OURS: ours_errors, tables.MBI: theirs})
    assert [each.split(": ")[1] for each in missed] == words


# Audits.


def test_audits_are_measured_and_what_they_miss_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert audits.audit_registry("flag", of_metric(EVERY["flag"]), 300, 10) == []
    with patch.object(audits, "EVERY", {"flag": EVERY["flag"]}), patch.object(audits, "SAMPLES_OF_MANY", 200):
        assert audits.many(4) == []
    printed = capsys.readouterr().out
    assert "1.0000=" in printed
    assert "4 audits of sound mechanisms, 200 reports a side, family-wise error 0.001: 0 alarms" in printed
    # The coins are the system's: 300 samples a side prove .98 of a loss of 1 once in 8,000 runs, 1.5 never.
    with patch.multiple(audits, REPORTS=300, SHARE_MIN=1.5):
        (missed,) = audits.audit_registry("flag", of_metric(EVERY["flag"]), 300, 0)
    assert "is below 1.5 of 1.0000" in missed
