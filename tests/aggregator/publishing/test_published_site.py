"""The site is made of noisy counts alone, and each byte of it can be computed again."""

import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from dither_aggregator.analysis.functional import Functionals
from dither_aggregator.counting.folding import Counts
from dither_aggregator.publishing import noise
from dither_aggregator.publishing.reading import read
from dither_aggregator.publishing.site import about, documents_in, render, verify, write
from dither_aggregator.store.release_ledger import Release, seal
from dither_shared.errors import ConfigurationError
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.releases import ReleaseNoise
from dither_shared.rng import keyed_rng
from tests.support.aggregators import dither, sqlite_store
from tests.support.browsing import a_tab, check_looks
from tests.support.laws import pure
from tests.support.registries import registry_text
from tests.support.tallies import draw_tally

SECRET = b"a secret of sixteen bytes"
PUBLISHED = 'publish = "month"\npublish_epsilon = 1.0\nwhy = "To draw the right one first."'
NAMES = tuple(f"model {number}" for number in range(263))


def asked(color: str = "", **changes: object) -> Registry:
    text = registry_text(color=f"{PUBLISHED}\n{color}", **changes)  # type: ignore[arg-type]
    return Registry.parse(text.replace("[registry]\n", "[registry]\npublish_epsilon_year = 13.0\n"))


def release_of(
    plan: Plan, people: Counts, rng: np.random.Generator, *, reports: int = 1, month: int = 10, micro: int = 1_000_000
) -> tuple[Release, Counts]:
    """Return the release of reports that so many people of each value send, and the raw counts."""
    raw = draw_tally(pure(plan), people, rng)
    release = Release(plan.metric, "What?", plan, "month", date(2026, month, 1), micro, reports, 1)
    return replace(release, counts=tuple((raw + drawn(release.noise, len(raw), rng)).tolist())), raw


def drawn(law: ReleaseNoise, size: int, rng: np.random.Generator) -> Counts:
    """Return noise of the same law, drawn quickly: the difference of two geometric numbers."""
    ends = 1 - np.exp(-1 / float(law.scale))
    return np.asarray(rng.geometric(ends, size) - rng.geometric(ends, size), dtype=np.int64)


def people_of(plan: Plan, n: int, shares: tuple[float, ...] = ()) -> Counts:
    d = len(plan.values)
    spread = np.array(shares) if shares else 1 / np.arange(1, d + 1)
    return np.random.default_rng(3).multinomial(n, spread / spread.sum()).astype(np.int64)


@pytest.mark.parametrize(
    ("values", "color", "reports", "factor"),
    [(("red", "green"), "", 1, 1.00), (NAMES, 'mechanism = "pgr"', 1, 1.02), (NAMES, 'mechanism = "pgr"', 9, 2.06)],
)
def test_errors_are_wider_by_what_a_check_says(
    values: tuple[str, ...], color: str, reports: int, factor: float
) -> None:
    plan = asked(color, values=values).metrics["color"].plan
    of, n = ReleaseNoise.of(plan, 1_000_000, reports), 20_000
    assert of.wider(pure(plan), n) == pytest.approx(factor, rel=0.02)
    people, weights = people_of(plan, n), np.zeros(len(plan.values))
    weights[-2] = 1.0
    raw = draw_tally(pure(plan), people, np.random.default_rng(1))
    errors = [
        Functionals(pure(plan), raw, n, 1, noise).variance(weights, "reports") ** 0.5 for noise in (of.variance, 0.0)
    ]
    assert errors[0] / errors[1] == pytest.approx(factor, rel=0.02)
    rng = np.random.default_rng(9)
    scattered = [
        Functionals(pure(plan), made, int(made.sum()), 1).estimate(weights)
        for made in (raw + drawn(of, len(raw), rng) for _ in range(300))
    ]
    alone = (errors[0] ** 2 - errors[1] ** 2) ** 0.5
    assert np.std(scattered) == pytest.approx(
        alone, rel=5 / np.sqrt(2 * 300) * 1.6
    )  # the noise of GRR is no normal one


@pytest.mark.parametrize(
    ("values", "color", "reports", "runs"),
    [
        (("red", "green"), "", 1, 120),
        (tuple("abcdefghijklmnopqrstuvwxyzABC"), 'mechanism = "ss"', 3, 12),
        (NAMES[:56], 'mechanism = "pgr"', 4, 6),
    ],
)
def test_published_intervals_hold(values: tuple[str, ...], color: str, reports: int, runs: int) -> None:
    """A share of .94 to .97 of the 95 % intervals holds, give or take 5 sigma: false alarms are below 1e-6."""
    plan = asked(color, values=values).metrics["color"].plan
    d, rng, n = len(plan.values), np.random.default_rng(7), 20_000
    shares = 1 / np.arange(1, d + 1)
    shares /= shares.sum()
    held = told = 0
    for _ in range(runs):
        people = rng.multinomial(n, shares).astype(np.int64)
        found = read(release_of(plan, people, rng, reports=reports)[0])
        held += sum(row.own_lower <= share <= row.own_upper for row, share in zip(found.rows, shares, strict=True))
        told += d
    spread = 5 * np.sqrt(0.05 * 0.95 / (told / 3))  # values of one release go together: as if a third were new
    assert 0.94 - spread <= held / told <= 0.97 + spread


def test_without_the_noise_in_the_errors_intervals_would_not_hold() -> None:
    plan = asked('mechanism = "pgr"', values=NAMES[:56]).metrics["color"].plan
    rng, missed, told = np.random.default_rng(8), 0, 0
    for _ in range(5):
        release, _ = release_of(plan, people_of(plan, 20_000), rng, reports=9)
        counts = np.array(release.counts)
        blind = Functionals(pure(plan), counts, 20_000, 1)
        for place in range(len(plan.values)):
            weights = np.zeros(len(plan.values))
            weights[place] = 1.0
            ends = blind.interval(weights, 0.05)
            assert ends
            truth = people_of(plan, 20_000)[place] / 20_000
            missed, told = missed + (not ends[0] <= truth <= ends[1]), told + 1
    assert missed / told > 0.1


def test_all_that_is_told_is_told_by_noisy_counts() -> None:
    """Two raw tallies, whose noisy counts are the same, are told alike: n, "too few", what stands out, each file."""
    registry = asked(values=("red", "green"))
    plan, rng = registry.metrics["color"].plan, np.random.default_rng(2)
    release, raw = release_of(plan, np.array([40, 30, 2]), rng, micro=100_000)
    assert raw.sum() == 72
    assert read(release).n == sum(release.counts or ()) != 72
    document = {**release.published(), "seal": seal(release, SECRET)}
    assert f"about {read(release).n}" in render(about(registry), [document])["color/index.html"].decode()
    assert set(document) == {
        *("metric", "question", "plan", "window", "first", "micro", "reports", "repeats", "counts", "seal")
    }


@pytest.mark.parametrize("people", [[0, 0, 0], [3, 2, 0]])
def test_too_few_is_said_by_the_noise(people: list[int]) -> None:
    plan, rng = asked(values=("red", "green")).metrics["color"].plan, np.random.default_rng(5)
    release, _ = release_of(plan, np.array(people), rng, micro=100_000)
    assert read(release).too_few


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    registry, rng = asked(values=("red", "green", "blue", "<b>teal</b>")), np.random.default_rng(4)
    plan = registry.metrics["color"].plan
    documents = []
    for month, n in ((8, 30), (9, 20_000), (10, 25_000)):
        release, _ = release_of(plan, people_of(plan, n, (5.0, 3.0, 2.0, 1.0, 0.0)), rng, month=month)
        documents.append({**release.published(), "seal": seal(release, SECRET)})
    top = tmp_path_factory.mktemp("published") / "site"
    write(top, render(about(registry), documents))
    return top


def test_a_site_is_what_its_documents_make_of_it(made: Path) -> None:
    assert verify(made) == []
    assert len(documents_in(made)) == 3
    text = (made / "color" / "index.html").read_text()
    assert "<script" not in text
    assert "<b>teal" not in text
    assert "To draw the right one first." in text
    assert "hidden among 20,000 reports or more, with epsilon 0.0" in text


def test_any_changed_byte_is_found(made: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(made, site)
    rng = np.random.default_rng(6)
    for path in sorted(each for each in site.rglob("*") if each.is_file()):
        content = path.read_bytes()
        for place in {0, len(content) - 1, *rng.integers(0, len(content), 6).tolist()}:
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            assert verify(site), (path, place)
        path.unlink()
        assert verify(site), path
        path.write_bytes(content)
    (site / "color" / "more.txt").write_text("more")
    assert verify(site) == ["color/more.txt is no part of it"]


def test_a_site_is_not_written_over_something_else(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="must be empty or a site"):
        documents_in(tmp_path)


def test_noise_on_each_count_is_its_own() -> None:
    """The noise that is drawn of a seed has the law's variance, and no count has another one's."""
    rng = keyed_rng(SECRET, b"trial")
    scale = ReleaseNoise(1_000_000, 1, 3).scale
    made = np.array([noise.discrete_laplace(scale, rng) for _ in range(20_000)])
    law = ReleaseNoise(1_000_000, 1, 3).variance
    assert made.var() == pytest.approx(law, rel=5 * np.sqrt(5 / 20_000))  # a Laplace kurtosis of 6
    assert abs(np.corrcoef(made[:-1], made[1:])[0, 1]) < 5 / np.sqrt(20_000)


@pytest.mark.parametrize("page", ["index.html", "color/index.html"])
def test_the_site_can_be_read_from_a_disk_without_script(made: Path, browser: Browser, page: str) -> None:
    with a_tab(browser) as tab:
        tab.visit((made / page).as_uri())
        check_looks(tab, [(1280, "light"), (390, "dark")])


def test_the_commands_publish_and_verify(tmp_path: Path) -> None:
    registry, site = tmp_path / "metrics.toml", tmp_path / "site"
    registry.write_text(
        registry_text(color=PUBLISHED).replace("[registry]\n", "[registry]\npublish_epsilon_year = 13.0\n")
    )
    with sqlite_store(Registry.load(registry), tmp_path / "data"):
        pass
    command = ("publish", registry, "--data", tmp_path / "data", "--out", site)
    assert dither(*command).stdout.endswith("has 1 releases\n")
    before = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    dither(*command)
    assert {path: path.read_bytes() for path in site.rglob("*") if path.is_file()} == before
    assert "every file is what" in dither("verify", site).stdout
    (site / "index.html").unlink()
    assert dither("verify", site).returncode == 1
