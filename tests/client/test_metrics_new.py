"""`dither metrics new`: a registry to begin with passes the check, and a file that is there stays as it is."""

from pathlib import Path

import pytest

from dither.cli import main
from dither_shared.kinds import KINDS
from dither_shared.registry import Registry


def new(path: Path, *arguments: str, app: str = "notes") -> int:
    return main(["metrics", "new", str(path), "--app", app, *arguments])


def test_it_passes_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics.toml"
    assert new(path) == 0
    assert f"dither metrics check {path}" in capsys.readouterr().out
    assert main(["metrics", "check", str(path)]) == 0
    registry = Registry.load(path)
    assert (registry.app, registry.quiet_days, [*registry.metrics]) == ("notes", 1, ["theme"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_metric_of_every_kind_passes_the_check(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    assert new(path, "--metric", f"asked={kind}", "--owner", 'A "B" <c\\d@example.org>') == 0
    assert main(["metrics", "check", str(path)]) == 0
    metric = Registry.load(path).metrics["asked"]
    assert (metric.kind.name, metric.owners) == (kind, ('A "B" <c\\d@example.org>',))


def test_several_metrics_reserve_all_of_the_devices_epsilon(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    assert new(path, *(word for kind in KINDS for word in ("--metric", f"m_{kind}={kind}"))) == 0
    registry = Registry.load(path)
    assert [metric.kind.name for metric in registry.metrics.values()] == [*KINDS]
    reserved = sum(metric.reservation for metric in registry.metrics.values())
    assert reserved == int(registry.device_epsilon * 1_000_000)


@pytest.mark.parametrize("many", [1, 3, 450])
def test_questions_share_what_keeps_a_guess_from_being_nearly_certain(
    many: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "metrics.toml"
    assert new(path, *(word for number in range(many) for word in ("--metric", f"m{number}=flag"))) == 0
    told = capsys.readouterr().out
    assert main(["metrics", "check", str(path), "--strict"]) == 0
    if many > 1:
        share = Registry.load(path).device_epsilon
        assert told.startswith(f"{many} questions share device_epsilon = {share}, so each has 1 report of epsilon ")
        assert "nearly_certain = true" in told
    else:
        assert told.startswith(f"{path} is written")


def test_more_questions_than_can_share_it_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics.toml"
    assert new(path, *(word for number in range(451) for word in ("--metric", f"m{number}=flag"))) == 2
    assert "--metric must be given 450 times at most, got 451" in capsys.readouterr().err
    assert not path.exists()


def test_a_file_that_is_there_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text("mine", encoding="utf-8")
    assert new(path) == 2
    assert path.read_text(encoding="utf-8") == "mine"
    assert "stays as it is: name another file" in capsys.readouterr().err


def test_a_directory_that_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none" / "metrics.toml"
    assert new(path) == 2
    assert capsys.readouterr().err == f"dither: {path} cannot be written: No such file or directory\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metric", "flush=flag"], "must not be that of a method"),
        (["--metric", "class=flag"], "must not be a word of Python's"),
        (["--metric", "a=flag", "--metric", "a=text"], "once for each name, got a twice"),
        (["--owner", ""], "dither: the arguments: --owner must be text"),
        (["--owner", "a\nb"], "--owner must be text in one line, without control characters, got \"'a\\nb'\""),
    ],
)
def test_a_registry_that_could_not_be_used_is_not_written(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert new(tmp_path / "metrics.toml", *arguments) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [["--metric", "theme"], ["--metric", "theme=colour"], ["--metric", "The me=flag"], ["--app", "My App"]]
)
def test_a_name_or_kind_that_cannot_be_is_refused(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        new(tmp_path / "metrics.toml", *arguments)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert "such as" in err
    assert "a lower-case name" in err
    assert list(tmp_path.iterdir()) == []
