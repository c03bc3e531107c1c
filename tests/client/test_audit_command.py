"""`dither audit`: the table, the document, the page, and what it says to mistakes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import pytest

from dither.cli import main
from dither_shared.registry import Registry, utc_today
from tests.pinned.registries import registry_of
from tests.support.aggregators import ENVIRONMENT
from tests.support.waiting import wait_until

ADAPTERS = """
import os

HERE = os.getpid()

class Fair:
    inputs, epsilon, exact = ("yes", "no"), "1.1", True
    def randomize(self, value, rng):
        return value if rng.coin(3 << 62) else ("no" if value == "yes" else "yes")

class Cheap(Fair):
    epsilon = 1.0

class Lacking:
    inputs = (1, 2)
    epsilon = 1

class Single(Fair):
    inputs = (1,)

class Wordy(Fair):
    epsilon = "much"

class Negative(Fair):
    epsilon = -1

class Huge(Fair):
    epsilon = 1e9

class Number(Fair):
    inputs = 2

class Listing(Fair):
    exact = False
    def randomize(self, value, rng):
        return [value]

class Unmade(Fair):
    def __init__(self):
        raise ValueError("no dice")

class Failing(Fair):
    exact = False
    def randomize(self, value, rng):
        raise KeyError(value)

class Same(Fair):
    inputs = ("yes", "yes")

class Elsewhere(Fair):
    def randomize(self, value, rng):
        import random
        return random.random() < 0.5

class Remembering(Fair):
    def randomize(self, value, rng):
        self.calls = getattr(self, "calls", 0) + 1
        return value if self.calls % 50 else rng.coin(1 << 63)

class Bits(Fair):
    def randomize(self, value, rng):
        return (value == "yes") ^ (rng.randbits(2) == 0)

class Ending(Fair):
    exact = False
    def randomize(self, value, rng):
        # Never this one: it runs the tests. That none ends in 8,000 draws has the probability 2.5e-12.
        if os.getpid() != HERE and rng.uniform(300) == 0:
            os._exit(0)
        return value

class Leaving(Fair):
    exact = False
    def randomize(self, value, rng):
        raise SystemExit(0)

class Listed(Fair):
    def randomize(self, value, rng):
        return [rng.uniform(2)]

class Inside(Fair):
    exact = False
    def randomize(self, value, rng):
        return ([value],)

class Typed(Fair):
    def randomize(self, value, rng):
        drawn = rng.uniform(4)
        return value if isinstance(drawn, int) else 4

class TypedLast(Fair):
    inputs = ("a", "b", "c")
    def randomize(self, value, rng):
        drawn = rng.uniform(4)
        return "c!" if value == "c" and isinstance(drawn, int) else 4

class SeldomAList(Fair):
    def randomize(self, value, rng):
        return [1] if rng.uniform(1000) == 7 else 1

class NoNumber(Fair):
    def randomize(self, value, rng):
        return float("nan") if rng.coin(1 << 63) else 1.0

ready = Fair()
"""
"""ln 3 = 1.0986: below 1.1, and above 1."""


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.toml"
    path.write_text(
        registry_of(
            'name = "dark"\nkind = "flag"\nepsilon = 1\nreports = 1',
            'name = "theme"\nkind = "choice"\nvalues = ["light", "dark"]\nmemoize = true\nanswers = 2\n'
            "epsilon = 1\nepsilon_permanent = 2",
        ),
        "utf-8",
    )
    return path


@pytest.fixture(autouse=True)
def _adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "mine.py").write_text(ADAPTERS, "utf-8")
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield
    sys.path[:] = path
    sys.modules.pop("mine", None)


FEW = ["--reports", "400", "--devices", "20", "--processes", "1"]


def test_a_sound_registry_holds_the_table_says_why_and_a_page_to_publish_stands_alone(
    registry: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(registry), *FEW, "--html", str(tmp_path / "audit.html")]) == 0
    out, err = capsys.readouterr()
    rows = [line.split("  ")[0:1] + line.split() for line in out.splitlines()]
    assert rows[0][1:] == ["metric", "what", "declared", "exact", "proved", "expected", "verdict"]
    assert "all 12 claims hold" in out
    assert out.count(" = ") >= 3
    assert "in error once in 100" in out
    assert "1 of 12: dark, report" in err
    page = (tmp_path / "audit.html").read_text("utf-8")
    assert page.count("<h2>") == 3
    assert "all 12 claims hold" in page
    assert "just that, as a fraction" in page
    assert "http" not in page


def test_the_document_has_exact_fractions(registry: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(registry), *FEW, "--metric", "dark", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["holds"], document["reports"], document["devices"]) == (True, 400, 20)
    report, draws, lives, device = document["findings"]
    assert [each["verdict"] for each in (draws, lives)] == ["holds", "holds"]
    assert report["exp_exact"] == report["exp_declared"]
    assert report["exact_is_declared"] is True
    assert (report["samples"], device["samples"]) == (400, 20)
    assert report["expected"] == pytest.approx(0.7, abs=0.2)


def test_a_page_and_a_document_name_what_was_audited(
    registry: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = Registry.load(registry).metrics["theme"].plan.digest
    few = ["--metric", "theme", "--reports", "0", "--devices", "0", "--json"]
    before = utc_today()
    assert main(["audit", str(registry), *few, "--html", str(tmp_path / "audit.html")]) == 0
    document = json.loads(capsys.readouterr().out)
    page = (tmp_path / "audit.html").read_text("utf-8")
    assert (document["audited"], document["plans"]) == (Registry.load(registry).app, {"theme": digest})
    assert document["day"] in (before.isoformat(), utc_today().isoformat())
    assert document["dither"] == version("dither")
    assert all(said in page for said in (digest, document["day"], document["dither"]))


@pytest.mark.parametrize("name", ["Fair", "ready"])
def test_an_adapter_of_three_lines_is_audited(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--adapter", f"mine:{name}", "--reports", "2000", "--processes", "1"]) == 0
    assert "1.09861" in capsys.readouterr().out


def test_an_adapter_that_claims_too_little_is_a_finding(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["audit", "--adapter", "mine:Cheap", "--reports", "0", "--html", str(page)]) == 1
    out = capsys.readouterr().out
    assert "THE EXACT LOSS IS LARGER" in out
    assert "yes (0) against no (1)" in out
    assert "1 of 1 claims do not hold" in out
    assert "Does not hold" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "needs a registry, or a randomizer by --adapter"),
        (["metrics.toml", "--metric", "gone"], "there is no metric gone in metrics.toml: dark, theme"),
        (["metrics.toml", "--reports", "-1"], "--reports must be from 0 to 100,000,000, got -1"),
        (["metrics.toml", "--devices", "9999999"], "--devices must be from 0"),
        (["metrics.toml", "--alpha", "2"], "--alpha must be a probability"),
        (["metrics.toml", "--error", "0"], "--error must be a probability"),
        (["metrics.toml", "--processes", "0"], "--processes must be from 1"),
        (["metrics.toml", "--html", "no/such/place.html"], "there is no folder no/such, make it first"),
        (["gone.toml"], "cannot be read"),
        (["--adapter", "mine"], "named as MODULE:NAME, such as mine:Mine, got 'mine'"),
        (["--adapter", "nowhere:Mine"], "there is no module nowhere here"),
        (["--adapter", "mine:Gone"], "the module mine has no Gone"),
        (["--adapter", "mine:Lacking"], "the adapter Lacking needs randomize"),
        (["--adapter", "mine:Single"], "needs two inputs or more, got 1"),
        (["--adapter", "mine:Wordy"], "must be a number, got 'much'"),
        (["--adapter", "mine:Negative"], "must be a number from 0 to 1000, got -1"),
        (["--adapter", "mine:Huge"], "must be a number from 0 to 1000, got 1"),
        (["--adapter", "mine:Number"], "inputs of the adapter Number must be a tuple, got 2"),
        (["--adapter", "mine:Unmade"], "the adapter Unmade cannot be made: ValueError: no dice (/"),
        (["--adapter", "mine:Failing"], "randomize of the adapter Failing raises for every input: KeyError: 'yes' (/"),
        (["--adapter", "mine:Same"], "all inputs of the adapter Same are equal"),
        (["--adapter", "mine:Elsewhere"], "the same draws of rng give different outcomes"),
        (["--adapter", "mine:Remembering"], "the same draws of rng give different outcomes"),
        (["--adapter", "broken:Mine"], "the module broken cannot be imported: NameError: name 'nothing' is not"),
        (["--adapter", "leaving:Mine"], "the module leaving cannot be imported: SystemExit: 0"),
        (["--adapter", "mine:Leaving"], "randomize of the adapter Leaving raises for every input: SystemExit: 0"),
        (["--adapter", "mine:Listed", "--reports", "0"], "outcomes must be hashable, got a list"),
        (["--adapter", "mine:Inside", "--reports", "0"], "outcomes must be hashable, got a tuple"),
        pytest.param(
            ["--adapter", "mine:Ending", "--reports", "8000", "--processes", "2"],
            "a process that drew samples ended: it was killed",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one process draws everything"),
        ),
        (["--adapter", "mine:Listing", "--reports", "2000"], "outcomes must be hashable, got a list: return tuple"),
    ],
)
def test_a_mistake_is_said_with_the_next_step(
    arguments: list[str], words: str, registry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("broken.py").write_text("nothing", "utf-8")
    Path("leaving.py").write_text("import sys; sys.exit(0)", "utf-8")
    assert main(["audit", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_an_adapter_that_draws_bits_has_no_exact_law(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--adapter", "mine:Bits", "--reports", "2000", "--processes", "1"]) == 0
    assert "it draws bits of its own" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("adapter", "words"),
    [
        ("Typed", "says exact = True, and returns what its law does not have"),
        ("TypedLast", "says exact = True, and returns what its law does not have"),
        ("SeldomAList", "outcomes must be hashable, got a list"),
        ("NoNumber", "outcomes must be equal to themselves, got a NaN"),
    ],
)
@pytest.mark.parametrize("reports", ["0", "2000"])
def test_an_exact_adapter_that_cannot_be_held_to_its_law_is_refused(
    adapter: str, words: str, reports: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "--adapter", f"mine:{adapter}", "--reports", reports, "--processes", "1"]) == 2
    assert words in capsys.readouterr().err


def test_a_command_that_is_refused_leaves_no_page(registry: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(registry), "--html", "page.html", "--adapter", "nowhere:Mine"]) == 2
    assert not Path("page.html").exists()
    assert "no module nowhere" in capsys.readouterr().err


@pytest.mark.slow
def test_an_interrupted_audit_ends_at_once_and_says_nothing_more(registry: Path) -> None:
    command = [sys.executable, "-m", "dither.cli", "audit", str(registry), "--reports", "100000000", "--processes", "2"]
    paths = os.pathsep.join(path for path in sys.path if path)
    process = subprocess.Popen(
        command, env={**ENVIRONMENT, "PYTHONPATH": paths}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stderr
        assert process.stderr.readline() == "1 of 13: dark, report\n"  # with that of linking
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(lambda: len(children.read_text("ascii").split()) == 2)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        with suppress(ProcessLookupError):  # its children are of its group
            os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, out, err) == (130, "", "")


def test_a_claim_without_a_law_or_a_sample_is_not_said_to_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--adapter", "mine:Bits", "--adapter", "mine:Fair", "--reports", "0"]) == 0
    out = capsys.readouterr().out
    assert "not checked" in out
    assert "1 of 2 claims hold; not checked: 1" in out
    assert main(["audit", "--adapter", "mine:Bits", "--reports", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["holds"] is False
