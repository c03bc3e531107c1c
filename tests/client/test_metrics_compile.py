"""`dither metrics compile`: what an app ships; a device goes on with it, from TOML and back."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import dither
from dither.cli import main
from dither_shared.registry import Registry, utc_today
from dither_shared.terms import Terms
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, MEMO, open_device, record, send
from tests.support.registries import registry_text

SCHEMA = json.loads((Path(__file__).parents[2] / "shared" / "compiled.schema.json").read_text(encoding="utf-8"))


def written(directory: Path, **changes: Any) -> tuple[Path, Path]:
    """Write a registry, compile it, and return both files."""
    toml, compiled = directory / "metrics.toml", directory / "metrics.json"
    toml.write_text(registry_text(**changes), encoding="utf-8")
    assert main(["metrics", "compile", str(toml), "--out", str(compiled)]) == 0
    return toml, compiled


def test_the_file_is_the_registry_in_the_described_form(tmp_path: Path) -> None:
    toml, compiled = written(tmp_path)
    document = json.loads(compiled.read_text(encoding="utf-8"))
    jsonschema_rs.validate(SCHEMA, document)
    registry = Registry.load(toml)
    assert Registry.load(compiled) == registry
    color = document["metrics"][0]
    assert color["digest"] == registry.metrics["color"].plan.digest
    assert color["terms"]["lifetime"] == Terms.of(registry.metrics["color"]).lifetime == 6_000_000


def test_its_sentences_are_those_that_people_are_asked(tmp_path: Path) -> None:
    _, compiled = written(tmp_path)
    document = json.loads(compiled.read_text(encoding="utf-8"))
    telemetry = dither.start(compiled, endpoint="http://127.0.0.1:8080", key="k", data_dir=":memory:")
    said = [str(sentence) for sentence in telemetry.terms()]
    telemetry.close()
    assert [one["template"].format_map(one["facts"]) for one in document["sentences"]] == said
    assert len(said) > 10


def test_check_says_the_same_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toml, compiled = written(tmp_path)
    for path in (toml, compiled):
        assert main(["metrics", "check", str(path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["compiled"] == json.loads(compiled.read_text(encoding="utf-8"))


def test_without_a_file_it_goes_to_stdout_and_again_it_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml, compiled = written(tmp_path)
    for path in (toml, compiled):
        assert main(["metrics", "compile", str(path)]) == 0
        assert capsys.readouterr().out == compiled.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"expires": utc_today() + timedelta(days=400)}, "expires must be at most a year away"),
        ({"kind": "text", "epsilon": "1.0", "epsilon_permanent": "4.0"}, "R(200) must be at most"),
    ],
)
def test_a_review_s_refusals_are_its_own_and_nothing_is_written(
    changes: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = tmp_path / "metrics.toml"
    toml.write_text(registry_text(**changes), encoding="utf-8")
    assert main(["metrics", "compile", str(toml), "--out", str(tmp_path / "metrics.json")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "metrics.json").exists()


def test_one_that_no_app_could_read_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared list comes once for each metric that names it."""
    monkeypatch.setattr("dither_shared.compiled.ITEMS_MAX", 10_000)
    toml = tmp_path / "metrics.toml"
    named = registry_text().replace('values = ["red", "green", "blue"]', 'values = "many"')
    listed = ", ".join(f'"a value, the {number}th"' for number in range(11_000))
    toml.write_text(f"{named}\n[values.many]\nvalues = [{listed}]\n", encoding="utf-8")
    assert main(["metrics", "compile", str(toml), "--out", str(tmp_path / "metrics.json")]) == 2
    assert "there must be at most 10,000 items" in capsys.readouterr().err
    assert not (tmp_path / "metrics.json").exists()


@pytest.mark.parametrize("first", [0, 1])
def test_a_device_goes_on_when_its_app_ships_the_other_form(first: int, tmp_path: Path) -> None:
    """Nothing is asked again, no memo is drawn or paid for again, and reports are of the same plans."""
    clock = Clock()
    forms = [Registry.load(path) for path in written(tmp_path, expires=EXPIRES, **MEMO)]
    before, after = forms[first], forms[1 - first]
    device = open_device(before, tmp_path / "device", clock)
    assert record(device, before) == record(device, before, "dark", True) == ""
    sent, spent = send(device), device.spent()
    device.close()
    clock.travel(1)
    device = open_device(after, tmp_path / "device", clock, agree=False)
    assert device.asks() == {}
    assert record(device, after) == record(device, after, "dark", True) == ""
    again = send(device)
    assert sent
    assert again
    plans = [{group["metric"]: group["plan"] for group in body["groups"]} for body in (sent, again)]
    assert plans[0] == plans[1]
    assert device.spent() == spent


def test_a_start_from_a_damaged_file_says_what_to_do(tmp_path: Path) -> None:
    _, compiled = written(tmp_path)
    compiled.write_text(compiled.read_text(encoding="utf-8").replace('"quiet_days":0', '"quiet_days":9'), "utf-8")
    with pytest.raises(dither.RegistryError, match=r"change metrics\.toml; `dither metrics compile"):
        dither.start(compiled, endpoint="http://127.0.0.1:8080", key="k", data_dir=":memory:")
