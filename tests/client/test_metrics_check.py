"""`dither metrics check`: what it says of metrics that expire."""

import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from dither.cli import main
from dither_shared.registry import utc_today
from tests.support.registries import registry_text


def written(directory: Path, expires: date) -> str:
    """Write a registry of two metrics, of which `dark` expires on that day and `color` in 180 days."""
    text = registry_text(expires=utc_today() + timedelta(days=180))
    first, name, rest = text.partition("[metric.dark]")
    rest = rest.replace(str(utc_today() + timedelta(days=180)), str(expires))
    path = directory / "metrics.toml"
    path.write_text(first + name + rest, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("days", "code"), [(-1, 1), (59, 1), (60, 1), (61, 0)])
def test_a_metric_that_expires_within_so_many_days_is_named_and_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], days: int, code: int
) -> None:
    path = written(tmp_path, utc_today() + timedelta(days=days))
    assert main(["metrics", "check", path]) == 0
    capsys.readouterr()
    assert main(["metrics", "check", path, "--expires-within", "60d"]) == code
    shown = capsys.readouterr().out
    assert ("within 60 days dark will have expired" in shown) == bool(code)
    assert (f"expires soon: dark on {utc_today() + timedelta(days=days)}, in {days} days" in shown) == (
        days in (59, 60)
    )
    assert main(["metrics", "check", path, "--expires-within", "60d", "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document["expires_soon"] == ["dark"] * code


def test_without_being_asked_nothing_expires_too_soon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, utc_today() + timedelta(days=1))
    assert main(["metrics", "check", path, "--json"]) == 0
    assert "expires_soon" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("days", ["60", "0d", "-1d", "2 months", "10000d"])
def test_what_is_no_number_of_days_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], days: str) -> None:
    path = written(tmp_path, utc_today() + timedelta(days=1))
    with pytest.raises(SystemExit) as ended:
        main(["metrics", "check", path, f"--expires-within={days}"])
    assert ended.value.code == 2
    assert "--expires-within: must be 1d to 9999d, got" in capsys.readouterr().err


def test_a_list_that_no_metric_names_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(written(tmp_path, utc_today() + timedelta(days=180)))
    path.write_text(path.read_text(encoding="utf-8") + '\n[values.spare]\nvalues = ["x"]\n', encoding="utf-8")
    assert main(["metrics", "check", str(path)]) == 0
    assert "note: nothing names the list [values.spare]\n" in capsys.readouterr().out
    assert main(["metrics", "check", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unused_lists"] == ["spare"]
