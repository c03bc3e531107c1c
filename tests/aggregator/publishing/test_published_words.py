"""Releases of words: a search of noisy counts alone says which texts are looked up, and those are counted with noise.

The plans of most tests have few buckets and one level, so that every report can be tried and thousands of releases
be drawn.
"""

import json
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from math import inf
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from dither.auditing.samples import loss_bound, never_bound
from dither_aggregator.analysis.estimands import estimand_of
from dither_aggregator.analysis.released import SURE_OF_N, ReleasedTally, read_supports, released_counts
from dither_aggregator.analysis.words import Sketch
from dither_aggregator.counting import Counts, fold_cells, hyperplane
from dither_aggregator.publishing import releases
from dither_aggregator.publishing.releases import read
from dither_aggregator.publishing.site import about, publish_to, render, verify
from dither_aggregator.store import SQLiteStore, StoreError
from dither_aggregator.store.release_ledger import Release
from dither_shared import releases as shared
from dither_shared.domains import OTHER, Coded
from dither_shared.kinds import words
from dither_shared.kinds.precision import precision_of, searched_from
from dither_shared.mechanisms import PGR
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.releases import NAMES_MAX, ReleaseNoise, counts_of, release_lines, width_of
from dither_shared.words import code as groups
from dither_shared.words.code import LAYOUTS, ROWS, Layout
from tests.support.points import draw_points
from tests.support.registries import metrics_text
from tests.support.releases import TODAY, drawn, week_of
from tests.support.soaking import scaled, thinned

ALPHA = 1e-6
TYPED, WORD = b"a", "a"
"""Its code has 9 bits."""
BITS, BUCKETS = 12, 64
EACH = 20
"""Reports of each point of each row: of nobody's text more than of another's."""


def registry(reports: int = 1, epsilon: float = 2.0) -> Registry:
    keys = {"publish": "week", "publish_epsilon": 1.0, "why": "To name them.", "schedule": "early"}
    asked = {"kind": "words", "reports": reports, "epsilon": epsilon, **keys}
    return Registry.parse(metrics_text({"color": asked}, publish_epsilon_year=53.0))


def plan_of(reports: int = 1) -> Plan:
    return registry(reports).metrics["color"].plan


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give words few buckets, one level of a few bits, and half of the reports to each group."""
    for module in (words, groups):
        monkeypatch.setattr(module, "BUCKETS", BUCKETS)
    monkeypatch.setitem(LAYOUTS, "short", Layout((BITS,), (1, 1)))


def entry_of(plan: Plan, reports: int = 1, names: tuple[str, ...] = ()) -> Release:
    return Release("color", "What?", plan, "week", date(2026, 11, 16), 1_000_000, reports, 1, names=names)


# How far one device moves the counts.


@pytest.mark.usefixtures("few")
def test_all_reports_of_one_device_move_each_step_by_what_its_noise_is_scaled_to() -> None:
    """Every report of every cell: one in a level moves one count there and none of the other step, and so back."""
    plan, names = plan_of(), (*(f"{place}" for place in range(30)), OTHER)
    shape = plan.cells.mechanism_of(0).shape
    size = ROWS * shape.size
    searched, looked_up = set(), set()
    for cell in thinned(range(plan.cells.count), 0, ROWS - 1, *range(ROWS, 2 * ROWS)):
        for report in range(shape.size):
            tally = fold_cells(plan.cells, {cell: report.to_bytes(shape.width, "little")})
            levels, counts = released_counts(plan, (), tally)[:size], released_counts(plan, names, tally)
            searched.add(int(levels.sum()))
            looked_up.add(int(counts.sum()))
            assert max(levels.max(), counts.max()) <= 1
            assert levels.any() == (cell < ROWS)
            assert counts.any() == (cell >= ROWS)
    assert searched == {0, 1}
    assert entry_of(plan).noise.width == 1
    assert max(looked_up) == width_of(plan, names) == entry_of(plan, names=names).noise.width
    assert len(counts) == counts_of(plan.cells, names) == ROWS * (1 + len(names))


# The two steps as a black box.


@dataclass(frozen=True)
class World:
    """A raw tally in which one report decides what a search of raw counts would look up, and one of a device more."""

    entry: Release
    without: Counts
    with_it: Counts

    @classmethod
    def of(cls) -> "World":
        """Find the fewest reports of a word that are looked up; the device has the last, and one that tells it all."""
        plan = plan_of(reports=2)
        domain, mechanism = Coded.of(plan.domain), PGR.of(plan.cells.mechanism_of(0))
        on = [np.flatnonzero(hyperplane(*mechanism.geometry, domain.bucket(WORD, cell))) for cell in range(2 * ROWS)]

        def tally(more: int, told: int) -> Counts:
            table = np.full((2 * ROWS, 1 + mechanism.outputs), EACH, dtype=np.int64)
            for report in range(more):
                row, place = report % ROWS, report // ROWS
                table[row, 1 + on[row][place % len(on[row])]] += 1
            table[ROWS, 1 + on[ROWS][0]] += told
            table[:, 0] = table[:, 1:].sum(axis=1)
            return table.ravel()

        def looked_up(more: int) -> bool:
            raw = released_counts(plan, (), tally(more, 0))
            return WORD in found(entry, raw, raw)

        entry = entry_of(plan, reports=2)
        least = bisect_left(range(10_000), True, key=looked_up)
        assert 0 < least < 10_000
        return cls(entry, tally(least - 1, 0), tally(least, 1))

    def publish(self, raw: Counts, rng: np.random.Generator, searched: Callable[[Counts], Counts]) -> tuple[bool, int]:
        """Return whether the word is looked up, and the noisy number of reports that support it in the first row."""
        every = released_counts(self.entry.plan, (), raw)
        names = found(self.entry, every, searched(every))
        entry = replace(self.entry, names=names)
        counts = released_counts(entry.plan, names, raw)
        counts = counts + drawn(entry.noise, len(counts), rng)
        return WORD in names, int(counts[1 + names.index(WORD)]) if WORD in names else 0


def found(entry: Release, raw: Counts, noisy: Counts) -> tuple[str, ...]:
    """Return the names that are found in counts which already have their noise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(releases, "noisy", lambda counts, *_: tuple(noisy[: len(counts)].tolist()))
        return releases.found_names(raw, entry, b"")


def bound_of(world: World, draws: int, noise: bool) -> float:
    """Return a lower bound of the loss that publishing shows, at level 1 - ALPHA, of all events together."""
    told = []
    for raw in (world.without, world.with_it):
        rng, law = np.random.default_rng(7), world.entry.noise

        def searched(counts: Counts, rng: np.random.Generator = rng, law: ReleaseNoise = law) -> Counts:
            return counts + drawn(law, len(counts), rng) if noise else counts

        told.append([world.publish(raw, rng, searched) for _ in range(draws)])
    width = int(world.entry.noise.scale)
    middle = int(np.median([count for is_named, count in (*told[0], *told[1]) if is_named] or [0]))
    lines = [-inf, *(middle + at * width for at in range(-4, 5))]
    most, share = 0.0, ALPHA / (4 * len(lines))
    for line in lines:
        hits = [sum(is_named and count >= line for is_named, count in each) for each in told]
        for one, other in (hits, hits[::-1]):
            for a, b in ((one, other), (draws - one, draws - other)):
                bound = loss_bound(a, b, draws, share) if b else never_bound(a, draws, share)
                most = max(most, inf if not b and a == draws else bound)
    return most


@pytest.mark.usefixtures("few")
def test_a_device_is_told_by_no_more_than_epsilon_also_where_its_report_decides_a_raw_search() -> None:
    """Draws with the word and without come from both stores. A search of raw counts would tell them apart for certain.

    The bound is above epsilon with a probability of ALPHA at most.
    """
    world = World.of()
    assert np.abs(world.with_it - world.without).sum() == 4  # two reports, each beside its cell's number
    assert bound_of(world, scaled(150, 400), noise=True) <= world.entry.epsilon
    assert bound_of(world, 20, noise=False) == inf


# The noise that the search expects.


@pytest.mark.usefixtures("few")
def test_the_search_knows_the_noise_of_the_counts_that_it_reads() -> None:
    """Shares of texts that nobody has vary as much as is said, most of it by the noise."""
    plan, rng = plan_of(), np.random.default_rng(3)
    mechanism = PGR.of(plan.cells.mechanism_of(0))
    noise, n, rounds = ReleaseNoise(50_000, 1, 1), 40_000, 60
    scores, factors = [], rng.integers(1 << 63, size=(rounds, ROWS)).astype(np.uint64) | np.uint64(1)
    for each in factors:
        held = rng.multinomial(n // ROWS, [1 / mechanism.d] * mechanism.d, size=ROWS)  # texts that nobody else has
        points = np.array([draw_points(mechanism, row, rng) for row in held])
        table = np.zeros((ROWS, 1 + mechanism.outputs), dtype=np.int64)
        table[:, 1:] = points + drawn(noise, points.size, rng).reshape(points.shape)
        table[:, 0] = table[:, 1:].sum(axis=1)
        sketch = Sketch.of_tally(mechanism, table, each.tolist(), noise.of_share(mechanism, 1))
        numbers = rng.integers(1 << 63, size=40).astype(np.uint64)
        scores.append(sketch.shares_of(numbers) / sketch.std_error)
        assert sketch.share_at(3.0) == pytest.approx(3.0 * sketch.std_error)
    squares = np.square(np.array(scores))
    # 40 texts of one tally share its 4 x 64 buckets: a variance of each round's mean is measured.
    means = squares.mean(axis=1)
    assert abs(means.mean() - 1) < 5 * means.std(ddof=1) / rounds**0.5
    with_it = noise.of_share(mechanism, 1) * ROWS / n**2
    assert with_it > 3 * float(mechanism.noise_variance) / n  # without it scores would have more than twice the error


@pytest.mark.usefixtures("few")
def test_a_level_with_too_few_reports_is_not_read() -> None:
    plan = plan_of()
    counts = np.zeros(plan.cells.tally_size - plan.cells.count, dtype=np.int64)
    counts += drawn(entry_of(plan).noise, len(counts), np.random.default_rng(1))
    tally = ReleasedTally.of(plan, counts, entry_of(plan).noise, 1)
    assert estimand_of(plan).found_names(tally) == (OTHER,)


# Names and intervals.


def counts_with(plan: Plan, names: tuple[str, ...], shares: dict[str, float], n: int) -> list[int]:
    """Return the counts that are expected where texts have these shares of n reports of the verification group."""
    mechanism, domain = PGR.of(plan.cells.mechanism_of(0)), Coded.of(plan.domain)
    p, q = float(mechanism.p), float(mechanism.q)
    counts = []
    for row in range(ROWS):
        held = np.zeros(mechanism.d)
        for name, share in shares.items():
            held[domain.named_bucket(name, row)] += share
        held += (1 - sum(shares.values())) / mechanism.d
        part = [round(n / ROWS * (q + (p - q) * held[domain.named_bucket(name, row)])) for name in names]
        counts += [n // ROWS, *part]
    return counts


NAMES = ("firefox", "lynx", "nobody's", OTHER)


def test_words_that_stand_out_are_named_and_intervals_hold_over_all_that_were_looked_up() -> None:
    plan = plan_of()
    shares = {"firefox": 0.3, "lynx": 0.05, OTHER: 0.1}
    release = replace(entry_of(plan, names=NAMES), counts=tuple(counts_with(plan, NAMES, shares, 300_000)))
    reading = read(release)
    assert [row.value for row in reading.rows] == ["firefox", "lynx", OTHER]
    for row in reading.rows:
        assert row.estimate == pytest.approx(shares[row.value], abs=1e-3)
        assert (row.own_lower, row.own_upper) == (row.lower, row.upper)
    assert reading.n == 1_000_000  # three reports in ten tell whole texts
    part, noise = 0.3, release.noise.variance * ROWS
    assert reading.n_error == pytest.approx(np.sqrt(noise + 300_000 * (1 - part)) / part)
    assert (reading.searched, reading.named) == (3, 2)
    few_of_it = replace(release, counts=tuple(counts_with(plan, NAMES, shares, 200)))
    assert read(few_of_it).too_few


def test_a_word_that_nobody_has_is_named_as_seldom_as_is_said() -> None:
    """A release in 40 names any of the texts that nobody has: the bound of a binomial of this many at 1e-6."""
    plan, rounds = plan_of(), scaled(150, 400)
    names = tuple(f"nobody {place}" for place in range(40))
    mechanism, rng = PGR.of(plan.cells.mechanism_of(0)), np.random.default_rng(9)
    law, n = entry_of(plan, names=names).noise, 300_000 // ROWS
    named = 0
    for _ in range(rounds):
        counts = rng.binomial(n, float(mechanism.q), size=(ROWS, 1 + len(names)))
        counts[:, 0] = n
        noisy = counts.ravel() + drawn(law, counts.size, rng)
        named += bool(read(replace(entry_of(plan, names=names), counts=tuple(noisy.tolist()))).rows)
    expected = 0.025 * rounds
    assert named <= expected + NormalDist().inv_cdf(1 - ALPHA) * np.sqrt(expected) + 3


# From a store to a site.


def noisy_of(plan: Plan) -> Callable[..., tuple[int, ...]]:
    """Return noisy counts in which a word stands out, whatever the raw ones are."""
    domain, mechanism = Coded.of(plan.domain), PGR.of(plan.cells.mechanism_of(0))
    levels = np.full((ROWS, mechanism.outputs), EACH)
    for row in range(ROWS):
        levels[row, hyperplane(*mechanism.geometry, domain.bucket(WORD, row))] += EACH

    def noisy(raw: Counts, entry: Release, seed: bytes) -> tuple[int, ...]:
        if entry.names:
            return tuple(counts_with(plan, entry.names, {WORD: 0.3}, 40_000))
        return tuple(levels.ravel().tolist())

    return noisy


@pytest.mark.usefixtures("few")
def test_two_stores_with_the_same_noisy_counts_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = registry()
    monkeypatch.setattr(SQLiteStore, "signing_secret", lambda self, purpose: b"both stores have it " + purpose)
    monkeypatch.setattr(releases, "noisy", noisy_of(asked.metrics["color"].plan))
    sites = []
    for name, devices in (("without", [[(0, 0)], [(1, 3)]]), ("with", [[(0, 0)], [(1, 3)], [(2, 5)]])):
        with week_of(tmp_path / name / "data", asked, devices) as store:
            found, refused = publish_to(tmp_path / name / "site", store, asked)
            assert not refused
            assert found[0].names[-1] == OTHER
            assert WORD in found[0].names
        top = tmp_path / name / "site"
        assert verify(top) == []
        sites.append({path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()})
    assert sites[0] == sites[1]


@pytest.mark.usefixtures("few")
def test_words_are_published_with_noise_of_both_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The release keeps none of the levels' counts, and each step has noise of its own seed."""
    asked, seen, noisy = registry(), [], releases.noisy

    def told(raw: Counts, entry: Release, seed: bytes) -> tuple[int, ...]:
        seen.append((len(raw), entry.names, entry.noise.width, seed))
        return noisy(raw, entry, seed)

    monkeypatch.setattr(releases, "noisy", told)
    with week_of(tmp_path, asked, [[(0, 0)], [(1, 3)]]) as store:
        ((release,), refused) = releases.publish(store, asked)
        assert not refused
        assert releases.publish(store, asked) == ([release], [])
    levels, looked_up = seen
    assert (levels[0], levels[1:3]) == (ROWS * PGR.of(release.plan.cells.mechanism_of(0)).outputs, ((), 1))
    assert looked_up[:3] == (counts_of(release.plan.cells, release.names), release.names, release.noise.width)
    assert levels[3] != looked_up[3]
    assert len(release.counts or ()) == looked_up[0]
    assert Release.from_document(release.published()) == replace(release, charged=None, commitment="")


@pytest.mark.usefixtures("few")
def test_what_was_charged_is_looked_up_for_one_list_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut between the steps another search would propose other texts: it is not asked."""
    asked, noisy = registry(), releases.noisy

    def fail(raw: Counts, entry: Release, seed: bytes) -> tuple[int, ...]:
        if entry.names:
            raise RuntimeError("a power cut")
        return noisy(raw, entry, seed)

    with week_of(tmp_path, asked, [[(0, 0)], [(1, 3)]]) as store:
        with monkeypatch.context() as patch:
            patch.setattr(releases, "noisy", fail)
            patch.setattr(releases, "found_names", lambda *_: (WORD, OTHER))
            with pytest.raises(RuntimeError):
                releases.publish(store, asked)
        (charged,) = store.documents(Release)
        assert (charged.names, charged.counts) == ((WORD, OTHER), None)
        assert store.draw_release(replace(charged, names=("b", OTHER))) == charged
        monkeypatch.setattr(releases, "found_names", lambda *_: ("b", OTHER))
        ((release,), refused) = releases.publish(store, asked)
        assert not refused
        assert replace(release, counts=None) == charged


def test_a_release_of_words_without_names_has_no_counts() -> None:
    plan = plan_of()
    charged = entry_of(plan)
    assert Release.from_document(charged.to_document()) == charged
    with pytest.raises(StoreError, match="names those that were looked up"):
        Release.from_document({**charged.to_document(), "counts": [1]})
    release = replace(entry_of(plan, names=NAMES), counts=tuple(counts_with(plan, NAMES, {}, 1_000)))
    with pytest.raises(StoreError, match="must have 20 counts"):
        Release.from_document({**release.to_document(), "counts": [1]})


@pytest.fixture
def site(tmp_path: Path) -> Path:
    asked = registry()
    plan = asked.metrics["color"].plan
    counts = counts_with(plan, NAMES, {"firefox": 0.3, "lynx": 0.05, OTHER: 0.1}, 300_000)
    release = replace(entry_of(plan, names=NAMES), counts=tuple(counts))
    files = render(about(asked, TODAY), [{**release.published(), "seal": ""}])
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path


def test_a_site_of_words_is_what_its_documents_make_of_it(site: Path) -> None:
    assert verify(site) == []
    (path,) = site.glob("color/*W*.json")
    counts = path.with_suffix("").with_suffix(".counts.csv").read_text().splitlines()
    assert counts[0] == "metric,window,row,text,noisy_count"
    assert len(counts) == 1 + ROWS * (1 + len(NAMES))
    page = (site / "color" / "index.html").read_text()
    assert "A search of noisy counts proposed 3, and 2 of them stand out" in page
    assert "nobody&#39;s" not in page
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps({**document, "names": ["lynx", "firefox", *document["names"][2:]]}))
    assert verify(site) != []


def test_a_page_says_what_a_search_did_not_find_and_what_another_one_did() -> None:
    asked, plan = registry(), registry().metrics["color"].plan

    def page(*found: tuple[tuple[str, ...], int]) -> str:
        weeks = [date(2026, 11, 2 + 7 * week) for week in range(len(found))]
        documents = [
            {
                **replace(
                    entry_of(plan, names=names),
                    first=first,
                    counts=tuple(counts_with(plan, names, dict.fromkeys(names[:-1], 0.2), n)),
                ).published(),
                "seal": "",
            }
            for first, (names, n) in zip(weeks, found, strict=True)
        ]
        return render(about(asked, TODAY), documents)["color/index.html"].decode()

    none = page(((OTHER,), 300_000))
    assert "the search found no text in the noise: few reports, or no text that many write" in none
    assert "A search of noisy counts proposed none." in none
    assert "that the registry lists" not in none
    few = page((("lynx", OTHER), 40))
    assert "too few reports to tell anything" in few
    assert "stand out: only" not in few
    assert "not named" in page((("firefox", OTHER), 300_000), (("lynx", OTHER), 300_000))


def test_a_check_says_how_much_wider_errors_of_words_are() -> None:
    """Those of a text that is looked up among as many as usual, and of the level with the fewest reports."""
    plan, n = plan_of(), 1_000_000
    names = tuple(f"name {place}" for place in range(groups.PROPOSED))
    least, most = precision_of(plan.kind).widened(plan.cells, ReleaseNoise.of(plan, 1_000_000, 1), n)
    mechanism = PGR.of(plan.cells.mechanism_of(0))
    counts = counts_with(plan, names, {}, 300_000)
    wide, usual = (
        read_error(replace(entry_of(plan, names=names), micro=micro, counts=tuple(counts)))
        for micro in (1_000_000, 20_000_000)
    )
    assert least == pytest.approx(wide / usual, rel=0.02)
    row = n * 6 // 50 // ROWS
    assert most == pytest.approx(ReleaseNoise(1_000_000, 1, 1).wider(mechanism, row), rel=1e-3)
    line = next(iter(release_lines(registry())))
    assert "is published each week with epsilon 1.0" in line
    assert f"looked up are {least:.2f} times as wide, and of the level with the fewest reports {most:.2f};" in line


def test_a_check_says_from_how_many_reports_on_a_search_reads_all_levels() -> None:
    """A row of the smallest level has so many reports then that its number is as sure as reading asks."""
    plan, noise = plan_of(), entry_of(plan_of()).noise
    *levels, _ = plan.cells.parts
    n = searched_from(plan.cells, noise)
    weights = sum(part.cells * part.weight for part in plan.cells.parts)
    tally = ReleasedTally(plan, np.zeros(0, dtype=np.int64), noise, 1)
    sure = [n * part.weight / weights / tally.error_of(part.mechanism.shape) for part in levels]
    assert min(sure) == pytest.approx(SURE_OF_N, rel=1e-4)
    assert f"from about {n:,} reports on" in next(iter(release_lines(registry())))


def read_error(release: Release) -> float:
    """Return the error of a text that nobody has."""
    tally = ReleasedTally.of(release.plan, release.counts or (), release.noise, 1, release.names)
    return read_supports(tally).rows[0].std_error


def test_no_more_texts_are_looked_up_than_is_said() -> None:
    assert counts_of(plan_of().cells, tuple(map(str, range(NAMES_MAX + 2)))) <= shared.COUNTS_MAX
