"""`dither attack`: the table, the document, the page, and what it says to mistakes."""

import json
from pathlib import Path

import pytest

from dither.attacking.trials import Score
from dither.cli import main
from tests.pinned.registries import registry_of
from tests.support.attacks import FLAG, MEMO

FEW = ["--devices", "10", "--days", "8", "--seed", "1", "--only", "plain", "--only", "redrawn", "--only", "memo"]


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "metrics.toml"
    path.write_text(
        registry_of(FLAG, f"{MEMO}\nanswers = 2", 'name = "later"\nkind = "flag"\nepsilon = 2\nreports = 1')
    )
    monkeypatch.chdir(tmp_path)
    return path


def test_the_example_is_attacked_where_no_registry_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attack", *FEW]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].split("  ")[0] == "attack"
    assert "answers as they are" in out
    assert "dither: 3 reports, then silence" in out
    assert "no attack did better than its formula allows" in out
    assert err.splitlines() == ["1 of 3: plain", "2 of 3: redrawn", "3 of 3: memo"]


def test_the_document_has_every_point_with_its_interval_and_a_page_to_publish_stands_alone(
    registry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = registry.with_name("attacks.html")
    asked = ["--metric", "later", "--metric", "theme", "--json", "--html", str(page)]
    assert main(["attack", str(registry), *FEW, *asked]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["holds"], document["devices"], document["days"]) == (True, 10, 8)
    plain, redrawn, memo = document["attacks"]
    assert {point["share"] for point in plain["lines"][0]["points"]} == {1}
    assert "later" in redrawn["measured"]
    assert memo["lines"][0]["by"] == "whole devices"
    for line in (*plain["lines"], *redrawn["lines"], *memo["lines"]):
        for point in line["points"]:
            assert point["lower"] <= point["share"] == point["right"] / 10 <= point["upper"]
    html = page.read_text("utf-8")
    assert html.count("<figure>") == 3
    assert html.count("<h2>") == 4
    for word in ("http", "<script", "url(", "src="):
        assert word not in html


def test_an_attack_above_its_bound_is_a_finding(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Score, "above_its_bound", lambda self, error: self.bound is not None and self.n == 10)
    assert main(["attack", "--devices", "10", "--days", "8", "--only", "redrawn"]) == 1
    assert "above what is promised: redrawn, noise redrawn each day" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gone.toml"], "cannot be read"),
        (["--devices", "0"], "--devices must be from 1 to 100,000, got 0"),
        (["--days", "3"], "--days must be from 8 to 730, got 3"),
        (["--processes", "0"], "--processes must be from 1 to 1,024, got 0"),
        (["--html", "no/such/place.html"], "there is no folder no/such, make it first"),
        (["--metric", "gone"], "there is no metric gone in example: crashed, theme, editor"),
        (["--metric", "theme", "--metric", "editor"], "theme and editor are both memoized: attack one after the other"),
        (["--metric", "theme", "--only", "averaging"], "example has no metric for averaging: name another attack"),
    ],
)
def test_a_mistake_is_said_with_the_next_step(
    arguments: list[str], words: str, registry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attack", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_law_that_is_too_large_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(
        registry_of(
            f'name = "long"\nkind = "choice"\nmechanism = "ss"\nepsilon = 1\nreports = 1\nvalues = {_listed(60)}'
        )
    )
    assert main(["attack", str(path), "--only", "redrawn", "--metric", "long"]) == 2
    err = capsys.readouterr().err
    assert "the law of long cannot be told" in err
    assert "attack another metric by --metric" in err
    assert main(["attack", str(path), "--only", "redrawn"]) == 2
    assert "has no metric for redrawn" in capsys.readouterr().err


def _listed(d: int) -> str:
    return "[" + ", ".join(f'"v{number}"' for number in range(d)) + "]"
