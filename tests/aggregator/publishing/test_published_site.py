"""The site is made of noisy counts alone, and each byte of it can be computed again."""

import os
import shutil
import time
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.base import AXE_SCRIPT

from dither_aggregator.analysis.functional import Functionals
from dither_aggregator.publishing import releases
from dither_aggregator.publishing.releases import read
from dither_aggregator.publishing.site import about, documents_in, render, verify, write
from dither_aggregator.store.release_ledger import seal
from dither_shared.errors import ConfigurationError
from dither_shared.registry import Registry
from dither_shared.releases import ReleaseNoise
from dither_shared.rng import keyed_rng
from tests.support.aggregators import dither, sqlite_store
from tests.support.browsing import AXE, CONTRAST_MIN, LOOK
from tests.support.clocks import DAY_S, Clock
from tests.support.firefox import firefox
from tests.support.laws import pure
from tests.support.registries import registry_text
from tests.support.releases import (
    ANSWERS,
    AUDIT,
    ISSUE,
    MONTHS,
    PUBLISHED,
    SECRET,
    TODAY,
    URL,
    documents,
    drawn,
    people_of,
    published,
    release_of,
)
from tests.support.soaking import SOAK
from tests.support.stores import seal_all
from tests.support.tallies import draw_tally

NAMES = tuple(f"model {number}" for number in range(263))


@pytest.mark.parametrize(
    ("values", "color", "reports", "factor"),
    [(("red", "green"), "", 1, 1.00), (NAMES, 'mechanism = "pgr"', 9, 2.06)],
)
def test_errors_are_wider_by_what_a_check_says(
    values: tuple[str, ...], color: str, reports: int, factor: float
) -> None:
    plan = published(color, values=values).metrics["color"].plan
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
        (tuple("abcdefghijklmnopqrstuvwxyzABC"), 'mechanism = "ss"', 3, 12),
        (NAMES[:56], 'mechanism = "pgr"', 4, 6),
    ],
)
def test_published_intervals_hold(values: tuple[str, ...], color: str, reports: int, runs: int) -> None:
    """A share of .94 to .97 of the 95 % intervals holds, give or take 5 sigma: false alarms are below 1e-6."""
    plan = published(color, values=values).metrics["color"].plan
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


@pytest.mark.parametrize("people", [[0, 0, 0], [3, 2, 0]])
def test_too_few_is_said_by_the_noise(people: list[int]) -> None:
    plan, rng = published(values=("red", "green")).metrics["color"].plan, np.random.default_rng(5)
    release, _ = release_of(plan, np.array(people), rng, micro=100_000)
    assert read(release).too_few


def test_a_site_is_what_its_documents_make_of_it(made: Path) -> None:
    assert verify(made) == []
    assert len(documents_in(made)) == len(MONTHS)
    text = (made / "color" / "index.html").read_text()
    assert "<script" not in text
    assert "<b>teal" not in text
    assert "To draw the right one first." in text
    assert f'<img src="{URL}color/latest.svg">' in unescape(text)
    top = (made / "index.html").read_text()
    assert '<a href="https://example.org/issues/12">' in top
    assert "new answers: &lt;b&gt;teal&lt;/b&gt;" in top
    assert "issue: https://example.org/issues/12, before: none" in top
    assert "Do people use the dark theme?" in top  # which is asked, and not published
    assert (made / "color/latest.svg").read_bytes() == (made / "color/2026-10.svg").read_bytes()
    counts = (made / "color/2026-10.counts.csv").read_text().splitlines()
    (release,) = (each for each in documents_in(made) if each["first"] == "2026-10-01")
    assert counts[1:] == [f"color,2026-10,{place},{count}" for place, count in enumerate(release["counts"])]
    assert "hidden among 20,000 reports or more, with epsilon 0.0" in text


def test_any_changed_byte_is_found(tmp_path: Path) -> None:
    """The site has a file of every kind."""
    site = tmp_path / "site"
    write(
        site, render(about(published(ISSUE, values=ANSWERS), TODAY, (), {}, URL, AUDIT), documents(MONTHS[-1:]), AUDIT)
    )
    rng = np.random.default_rng(6)
    for path in sorted(each for each in site.rglob("*") if each.is_file()):
        content = path.read_bytes()
        for place in {len(content) - 1, *rng.integers(0, len(content), 1).tolist()}:
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            assert verify(site), (path, place)
        path.write_bytes(content + b"\n")
        assert verify(site), path
        path.unlink()
        assert verify(site), path
        path.write_bytes(content)
    (site / "color" / "more.txt").write_text("more")
    assert verify(site) == ["color/more.txt is no part of it"]
    (site / "color" / "more.txt").unlink()
    (site / "more").symlink_to(tmp_path)
    assert verify(site) == ["more is no part of it"]
    (site / "more").unlink()
    (site / "empty").mkdir()
    assert verify(site) == ["empty is no part of it"]


@pytest.mark.parametrize("name", ["about.json", "audit.html", "color/2026-10.json"])
def test_what_is_no_file_of_its_own_is_found_and_not_waited_for(made: Path, tmp_path: Path, name: str) -> None:
    site = tmp_path / "site"
    shutil.copytree(made, site)
    (site / name).rename(tmp_path / "there")
    (site / name).symlink_to(tmp_path / "there")
    assert "file of its own" in " ".join(verify(site))
    (site / name).unlink()
    os.mkfifo(site / name)
    assert "must be a file" in " ".join(verify(site)) or "file of its own" in " ".join(verify(site))


def test_a_site_is_not_written_over_something_else(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="must be empty or a site"):
        documents_in(tmp_path)
    with pytest.raises(ConfigurationError, match="is a file: name a directory"):
        documents_in(tmp_path / "mine.txt")


PAGES = ("index.html", "color/index.html")


if SOAK:  # Chromium sees it with the pages of other kinds; a Firefox of its own takes as long as the rest of the file

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_it_is_the_same_in_firefox(made: Path, scheme: str) -> None:
        with firefox({"layout.css.prefers-color-scheme.content-override": int(scheme == "light")}) as started:
            page = started.new_context().new_page()
            for path in PAGES:
                for width in (390, 1280):
                    page.set_viewport_size({"width": width, "height": 900})
                    page.goto((made / path).as_uri())
                    across, overlaps, faint, (background, text) = page.evaluate(LOOK, CONTRAST_MIN)
                    assert across <= width
                    assert (overlaps, faint) == ([], [])
                    assert (background < 0.5) == (scheme == "dark")
                    assert abs(background - text) > 0.7
                page.evaluate(f"() => {{ {AXE_SCRIPT} }}")
                assert page.evaluate(AXE, {"resultTypes": ["violations"]}) == []


def test_the_commands_publish_and_verify(tmp_path: Path) -> None:
    registry, site = tmp_path / "metrics.toml", tmp_path / "site"
    registry.write_text(
        registry_text(color=PUBLISHED).replace("[registry]\n", "[registry]\npublish_epsilon_year = 13.0\n")
    )
    began = Clock(time.time() - 70 * DAY_S)  # a whole month ago at least
    with sqlite_store(Registry.load(registry), tmp_path / "data", began) as store:
        began.travel(70)
        seal_all(store)
    command = ("publish", registry, "--data", tmp_path / "data", "--out", site)
    assert dither(*command).stdout.endswith("has 1 releases\n")
    before = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    dither(*command)
    assert {path: path.read_bytes() for path in site.rglob("*") if path.is_file()} == before
    assert "every file is what" in dither("verify", site).stdout
    (site / "index.html").unlink()
    assert dither("verify", site).returncode == 1


def test_all_that_is_told_is_told_by_noisy_counts() -> None:
    """Two raw tallies, whose noisy counts are the same, are told alike: n, "too few", what stands out, each file."""
    registry = published(values=("red", "green"))
    plan, rng = registry.metrics["color"].plan, np.random.default_rng(2)
    release, raw = release_of(plan, np.array([40, 30, 2]), rng, micro=100_000)
    assert raw.sum() == 72
    assert read(release).n == sum(release.counts or ()) != 72
    document = {**release.published(), "seal": seal(release, SECRET)}
    assert f"about {read(release).n}" in render(about(registry, TODAY), [document])["color/index.html"].decode()
    assert set(document) == {
        *("metric", "question", "plan", "window", "first", "micro", "reports", "repeats", "counts", "seal")
    }


def test_noise_on_each_count_is_its_own() -> None:
    """The noise that is drawn of a seed has the law's variance, and no count has another one's."""
    rng = keyed_rng(SECRET, b"trial")
    scale = ReleaseNoise(1_000_000, 1, 3).scale
    made = np.array([releases.discrete_laplace(scale, rng) for _ in range(20_000)])
    law = ReleaseNoise(1_000_000, 1, 3).variance
    assert made.var() == pytest.approx(law, rel=5 * np.sqrt(5 / 20_000))  # a Laplace kurtosis of 6
    assert abs(np.corrcoef(made[:-1], made[1:])[0, 1]) < 5 / np.sqrt(20_000)
