"""The README's examples run."""

import re
import subprocess
import sys
import tomllib
import venv
from datetime import timedelta
from pathlib import Path

import pytest

from dither.cli import COMMANDS, main
from dither_shared.estimating import Share
from dither_shared.registry import Registry, utc_today
from tests import conftest, picture
from tests.support.aggregators import ENVIRONMENT, aggregator
from tests.support.keys import write_key
from tests.support.soaking import SOAK

ROOT = Path(__file__).parents[1]
ROOMS = ("client", "shared", "aggregator", "deploy", "tests")
OTHERS = (ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))
READMES = (ROOT / "README.md", *OTHERS, *(page for room in ROOMS for page in sorted((ROOT / room).glob("*.md"))))
README = (ROOT / "README.md").read_text(encoding="utf-8")
ROW = r"(.+): true (-?\d+\.\d)%, came back (-?\d+\.\d)% \((-?\d+\.\d)% to (-?\d+\.\d)%\)"
"""A line of the first output."""


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_eight_lines_send_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (toml,), (_, code) = blocks("toml"), blocks("python")
    assert len(code.splitlines()) <= 8
    soon = utc_today() + timedelta(days=200)
    (tmp_path / "metrics.toml").write_text(re.sub(r"expires = \S+", f"expires = {soon}", toml), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (check,) = re.findall(r"^dither (metrics .*?) *#", "\n".join(blocks("sh")), re.MULTILINE)
    (new,) = re.findall(r"`dither (metrics new .*?)`", README)
    assert [main(command.split()) for command in (check, new, "metrics check mine.toml")] == [0, 0, 0]
    capsys.readouterr()
    registry = Registry.load("metrics.toml")
    assert list(registry.metrics["theme"].names("dark")) == ["dark"]  # a value of the list, not another
    with aggregator(registry, tmp_path / "data") as (url, service):
        code = code.replace("http://127.0.0.1:8080", url).replace(
            "the key that serve printed", write_key(service.store)
        )
        exec(compile(code, "README.md", "exec"), {})
        printed = capsys.readouterr().out.strip()
        assert f"`{printed}`" in README
        (row,) = service.store.ledger()
    assert (row.metric, row.accepted) == ("theme", 1)


def test_the_first_number_is_at_most_120_words_away() -> None:
    """All words count, those of the code and of the picture's description, too."""
    before = README[: README.index("```text")]
    assert "\n## " not in before
    assert len(before.split()) <= 120
    assert len(re.findall(r"[^\W\d]\w*", before)) <= 120
    assert len(blocks("python")[0].splitlines()) <= 14


def test_the_picture_shows_the_first_output() -> None:
    """To half a pixel, for the output is rounded. A soak makes both again, of one run."""
    rows = [row.groups() for row in re.finditer(ROW, blocks("text")[0], re.MULTILINE)]
    said = [name for name, true, *_ in rows for _ in range(round(100 * float(true)))]
    shares = [Share(name, float(one) / 100, 0, float(low) / 100, float(high) / 100) for name, _, one, low, high in rows]
    pictures = (picture.PICTURE.read_text(encoding="utf-8"), picture.drawn(said, shares))
    there, drawn = ([float(place) for place in re.findall(r"\d+\.\d", each)] for each in pictures)
    assert there == pytest.approx(drawn, abs=0.5)
    assert len({re.sub(r"\d+\.\d", "", each) for each in pictures}) == 1


if SOAK:

    def test_the_first_output_and_the_picture_are_of_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
        said, shares = picture.crowd()
        assert capsys.readouterr().out == blocks("text")[0]
        assert picture.PICTURE.read_text(encoding="utf-8") == picture.drawn(said, shares), "run python -m tests.picture"


@pytest.mark.slow
def test_the_first_block_runs_after_the_one_install_line(tmp_path: Path) -> None:
    """In an environment of its own, away from the clone; in `make test` of fewer devices than above."""
    venv.create(tmp_path / "venv")
    (install,) = blocks("sh")[0].splitlines()
    python = tmp_path / "venv" / "bin" / "python"
    offline = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_PYTHON": f"{python}", "PYTHONPATH": ""}
    subprocess.run(
        [sys.executable, "-m", *install.split()],
        cwd=ROOT,
        env={**ENVIRONMENT, **offline},
        check=True,
        capture_output=True,
    )
    block = blocks("python")[0] if SOAK else blocks("python")[0].replace("k=10_000", "k=1_000")
    done = subprocess.run([python, "-c", block], cwd=tmp_path, env=offline, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [re.fullmatch(ROW, line) for line in done.stdout.splitlines()]
    assert [row and row[1] for row in rows] == ["light", "dark", "high contrast", "other"]
    for row in rows:
        assert row
        true, estimate, lower, upper = map(float, row.groups()[1:])
        error = (upper - lower) / (2 * 1.96)
        assert abs(estimate - true) < 6 * error + 0.1  # of four rows one misses in 1e-7 of all runs


def test_the_commands_that_it_names_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shells = [text for path in READMES for text in blocks("sh", path.read_text(encoding="utf-8"))]
    assert len(shells) >= 3
    for text in shells:
        for command in re.findall(r"^dither (\w+)", text, re.MULTILINE):
            assert command in COMMANDS
        for target in re.findall(r"^make (\w+)", text, re.MULTILINE):
            assert f"\n{target}:" in makefile


def test_its_links_lead_somewhere() -> None:
    for path in READMES:
        for target in re.findall(r"(?:\]\(|src=\")([^)#\"]+)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path}: {target}"


def anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings have: in lower case, hyphens for spaces, other punctuation left out."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_its_links_lead_to_headings_that_are_there() -> None:
    seen = 0
    for path in READMES:
        for target, anchor in re.findall(r"\]\((?!http)([^)#]*)#([^)]+)\)", path.read_text(encoding="utf-8")):
            seen += 1
            assert anchor in anchors(path.parent / target if target else path), f"{path}: {target}#{anchor}"
    assert seen >= 20


def test_the_files_that_they_name_exist() -> None:
    """A table may name a file by its end: `wire/` or `sqlite/schema.py`."""
    there = [f"/{path.relative_to(ROOT).as_posix()}" + "/" * path.is_dir() for path in ROOT.glob("[!.]*/**/*")]
    for page in READMES[1:]:
        for name in re.findall(r"`([\w./]+(?:\.py|/))`", page.read_text(encoding="utf-8")):
            ends = "/" + name.removeprefix("../")
            assert any(path.endswith(ends) for path in there), f"{page}: {name}"


def test_no_page_counts_the_tests() -> None:
    """Their number changes with nearly every commit."""
    for path in READMES:
        counted = re.search(r"\d,?\d+ (fast )?(tests|ones)\b", path.read_text(encoding="utf-8"))
        assert not counted, f"{path}: {counted}"


def test_settings_of_redis_and_upgrades_are_looked_up_on_their_own_pages() -> None:
    """The first page of `deploy` is about one machine."""
    for path in READMES:
        for line in path.read_text(encoding="utf-8").splitlines():
            assert "deploy/README.md" not in line or not re.search("Redis|upgrade", line), f"{path}: {line}"


def test_the_wheels_that_it_names_are_of_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(re.findall(r"[\w.-]+\.whl", README)) == {
        f"{package}-{project['version']}-py3-none-any.whl" for package in ("dither", "dither_aggregator")
    }


def test_the_registry_example_proves_its_budget() -> None:
    registry = Registry.parse(blocks("toml")[0])
    assert registry.metrics["theme"].reservation == 4_000_000


@pytest.mark.parametrize(("ci", "outcome"), [("true", "failed"), ("", "skipped")])
def test_a_part_that_is_missing_is_an_error_in_ci_and_a_skip_elsewhere(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: str
) -> None:
    monkeypatch.setenv("CI", ci)
    made = pytest.TestReport("a test", ("", 1, ""), {}, "skipped", ("a file", 1, "Skipped: no mounts"), "call")
    hook = conftest.pytest_runtest_makereport()
    next(hook)
    with pytest.raises(StopIteration) as ended:
        hook.send(made)
    assert (ended.value.value.outcome, "no mounts" in str(made.longrepr)) == (outcome, True)
