"""The commands as people call them: messages, exit codes, never a traceback."""

import json
import os
import re
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import tomllib
from contextlib import closing
from importlib.abc import MetaPathFinder
from math import exp
from pathlib import Path

import pytest

import dither as sdk
from dither.cli import COMMANDS, main
from dither_shared.mechanisms import PureMechanism
from dither_shared.registry import Registry, utc_today
from tests.support.aggregators import DITHER, ENVIRONMENT, SERVERS, dither, serve, start
from tests.support.aggregators import refused as refused_here
from tests.support.numbers import FRESH, MEMO, numbers_text
from tests.support.registries import metrics_text, registry_text
from tests.support.soaking import thinned

ROOT = Path(__file__).parents[2]


@pytest.fixture
def registry_path(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text(), encoding="utf-8")
    return path


def refused(*arguments: object) -> str:
    """Run in this process a command that must refuse its input; return why."""
    return refusal(refused_here(*arguments) if arguments and arguments[0] in SERVERS else dither(*arguments))


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """Return why a command refused its input: exit code 2, nothing on stdout, no traceback."""
    assert (done.returncode, done.stdout) == (2, ""), done
    assert "Traceback" not in done.stderr
    return done.stderr


def test_help_names_every_command_and_shows_examples() -> None:
    done = dither("--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in COMMANDS)
    for command in COMMANDS:
        shown = dither(command, "--help")
        assert (shown.returncode, "example: dither" in shown.stdout) == (0, True)


def test_what_a_terminal_would_run_or_turn_round_is_an_escape_and_a_document_for_a_file_stays(tmp_path: Path) -> None:
    for name, question in (("old", "Which colour?"), ("new", "Which\u202e colour?")):
        text = registry_text().replace("Which colour do people choose?", question)
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    shown = dither("metrics", "diff", tmp_path / "old.toml", tmp_path / "new.toml").stdout
    assert r'its question becomes "Which\u{202e} colour?"' in shown
    assert "\u202e" not in shown
    assert "\u202e" in dither("metrics", "docs", tmp_path / "new.toml", "--format", "markdown").stdout
    missing = dither("metrics", "check", tmp_path / "\x1b[7m\u202e.toml").stderr
    assert r"\u{1b}[7m\u{202e}.toml" in missing


def test_the_version_is_the_distributions() -> None:
    assert dither("--version").stdout == f"dither {sdk.__version__}\n"
    assert sdk.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    with pytest.raises(AttributeError, match="no attribute 'versions'"):
        _ = sdk.versions


def test_a_command_is_needed() -> None:
    assert "COMMAND" in refused()
    assert "invalid choice: 'tally'" in refused("tally")


def test_a_sound_registry_is_described(registry_path: Path) -> None:
    done = dither("metrics", "check", registry_path)
    assert done.returncode == 0
    assert "color: 4 values by grr, epsilon 2 a report and 6 for life" in done.stdout
    assert "one device may be charged 12 of 40" in done.stdout
    document = json.loads(dither("metrics", "check", registry_path, "--json").stdout)
    assert (document["app"], document["reserved"], document["device_epsilon"]) == ("example", 12.0, 40.0)
    assert [metric["metric"] for metric in document["metrics"]] == ["color", "dark"]


SHORT: dict[str, object] = {"kind": "choice", "values": ["a", "b", "c"]}
ASKED: dict[str, dict[str, object]] = {
    "dark": {"kind": "flag", "epsilon": 1, "reports": 3},
    "browser": {"kind": "choice", "values": [f"v{i}" for i in range(1023)], "epsilon": 2, "reports": 1},
    "theme": {**SHORT, "epsilon": 1, "memoize": True, "epsilon_permanent": 3, "answers": 2},
    "tools": {"kind": "choices", "ticks_max": 3, "values": [*"abcdefg"], "epsilon": 4, "reports": 2},
    "named": {**SHORT, "epsilon": 1.25, "reports": 2, "mechanism": "sue"},
}
ONCE: dict[str, object] = {"epsilon": 1, "memoize": True, "answers": 1}
TWO_MEMOS: dict[str, dict[str, object]] = {
    "city": {**ONCE, "kind": "choice", "values": [f"v{i}" for i in range(38)], "epsilon_permanent": 2},
    "home": {**ONCE, "kind": "text", "epsilon_permanent": 4},
}
PRIVACY = metrics_text(ASKED, device_epsilon=100)
LINKING = metrics_text(ASKED | TWO_MEMOS, device_epsilon=100)


def test_a_registry_that_tells_devices_apart_is_refused_until_it_says_so(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(LINKING, encoding="utf-8")
    refusal = dither("metrics", "check", path)
    assert (refusal.returncode, refusal.stdout) == (2, "")
    assert "R(200) must be at most 0.25, got 1.00" in refusal.stderr
    assert "(theme 0.02, city 0.18, home 1.00)" in refusal.stderr
    path.write_text(LINKING.replace("[registry]", "[registry]\nlinkable = true"), encoding="utf-8")
    done = dither("metrics", "check", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "note: R(200) of all its metrics is 1.00" in done.stdout
    document = json.loads(dither("metrics", "check", path, "--json").stdout)
    assert document["linkable"] is True
    assert document["linked_of_200"] > 0.99


def test_privacy_says_what_fewer_values_would_give(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(LINKING, encoding="utf-8")
    assert (
        "city: R(200) is 0.18 of 39 values; it would be 0.15 of 19, 0.07 of 9, 0.02 of 3\n"
        in dither("privacy", path).stdout
    )
    rows = {row["metric"]: row for row in json.loads(dither("privacy", path, "--json").stdout)}
    fewer = rows["city"]["linked_of_200_of_fewer_values"]
    assert {d: round(linked, 2) for d, linked in fewer.items()} == {"19": 0.15, "9": 0.06, "3": 0.01}
    assert rows["home"]["linked_of_200_of_fewer_values"] == rows["dark"]["linked_of_200_of_fewer_values"] == {}


def test_privacy_shows_what_each_metric_promises_and_can_show(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(PRIVACY, encoding="utf-8")
    done = dither("privacy", path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:6]] == [
        ["dark", "grr"],
        ["browser", "pgr"],
        ["theme", "grr"],
        ["tools", "privset"],
        ["named", "sue"],
    ]
    assert "grr memoized" in lines[3]
    document = json.loads(dither("privacy", path, "--json").stdout)
    registry = Registry.load(path)
    assert [row["metric"] for row in document] == list(registry.metrics)
    for row in document:
        metric = registry.metrics[row["metric"]]
        assert list(row) == [
            "metric",
            "mechanism",
            "parameters",
            "cells",
            "epsilon_report",
            "epsilon_lifetime",
            "sure_report",
            "sure_permanent",
            "sure_lifetime",
            "linked_of_200",
            "linked_of_200_of_fewer_values",
            "passed_over",
            "bits_per_report",
            "std_error_at_1e6",
            "detectable_at_1e6",
            "unit",
            "made_up",
        ]
        assert row["unit"] is None
        assert float(metric.epsilon) - 1e-6 <= row["epsilon_report"] <= float(metric.epsilon)
        mechanism = metric.mechanism
        assert isinstance(mechanism, PureMechanism)
        assert (row["mechanism"], row["parameters"], row["cells"]) == (mechanism.name, mechanism.parameters(), 1)
        p, q = float(mechanism.p), float(mechanism.q)
        assert row["std_error_at_1e6"] == pytest.approx((q * (1 - q) / 1e6) ** 0.5 / (p - q), rel=1e-12)
        assert 4 < row["detectable_at_1e6"] / row["std_error_at_1e6"] + 2.5 < 8
        (made_up,) = row["made_up"]
        assert made_up["bound"] == "at most"
        assert (made_up["up"], made_up["down"]) == pytest.approx(((1 - q) / (p - q), q / (p - q)), abs=2e-6)
        assert made_up["raised_by_1_percent"] == pytest.approx(made_up["up"] / 100, abs=2e-6)
        assert made_up["lowered_by_1_percent"] == pytest.approx((made_up["down"] + 1) / 100, abs=2e-6)
        assert (made_up["found_at_1e6"] is None) == (row["metric"] == "dark")
    life = {row["metric"]: row["epsilon_lifetime"] for row in document}
    assert life == {"dark": 3, "browser": 2, "theme": 6, "tools": 8, "named": 2.5}
    assert [row["bits_per_report"] for row in document] == [1, 11, 2, 8, 4]


def test_privacy_shows_how_precisely_numbers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    text = numbers_text(
        delay={**FRESH, "low": 1, "high": 1000, "buckets": 9, "scale": "log", "epsilon": 8},
        size={**FRESH, "unit": "MB", "low": 0, "high": 500, "asks": ["mean"]},
        idle={**MEMO, "unit": "h", "low": 0, "high": 24},
    )
    path.write_text(text, encoding="utf-8")
    registry = Registry.parse(text)
    shown = dither("privacy", path)
    assert (shown.returncode, shown.stderr) == (0, "")
    rows = {row["metric"]: row for row in json.loads(dither("privacy", path, "--json").stdout)}
    for name, metric in registry.metrics.items():
        errors = metric.std_errors(1_000_000)
        assert rows[name]["unit"] == metric.unit
        assert {key: rows[name].get(f"std_error_{key}_at_1e6") for key in errors} == errors
        told = "  ".join(f"{key} {error:.3g} {metric.unit}" for key, error in errors.items())
        assert f"{name:6}  std error: {told}\n" in shown.stdout
    assert list(registry.metrics["size"].std_errors(1)) == ["mean"]


def test_privacy_shows_what_a_report_of_a_table_tells_and_how_precisely(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    asked: dict[str, object] = {**FRESH, "kind": "table", "unit": None, "epsilon": 2}
    text = numbers_text(
        once={**asked, "columns": '= { a = ["x", "y"], b = ["u"] }'},
        pairs={**asked, "columns": '= { a = ["x", "y"], b = ["u", "v"], c = { edges = [1, 2, 3, 4, 5], unit = "h" } }'},
    )
    path.write_text(text, encoding="utf-8")
    registry = Registry.parse(text)
    shown = dither("privacy", path)
    assert (shown.returncode, shown.stderr) == (0, "")
    rows = {row["metric"]: row for row in json.loads(dither("privacy", path, "--json").stdout)}
    for name, summary in (
        ("once", "2 columns of 6 cells asked at once"),
        ("pairs", "3 columns of 63 cells asked in pairs"),
    ):
        errors = registry.metrics[name].std_errors(1_000_000)
        told = "  ".join(f"{key} {100 * error:.3g}%" for key, error in errors.items())
        assert list(errors) == ["cell", "rate"]
        assert f"{name:6}  {summary}\n{name:6}  std error: {told}\n" in shown.stdout
        assert {key: rows[name].get(f"std_error_{key}_at_1e6") for key in errors} == errors
        assert rows[name]["epsilon_report"] == pytest.approx(2, abs=1e-6)
    assert rows["pairs"]["cells"] == 3
    assert "the epsilon of a table's report is of all columns" in " ".join(shown.stdout.lower().split())
    integers = shown.stdout.rpartition("out of 2^64:\n")[2]
    assert [line.split()[:2] for line in integers.splitlines()] == [
        ["once", "d"],
        ["pairs", "cells"],
        ["pairs", "1.cells"],
        ["pairs", "2.cells"],
        ["pairs", "3.cells"],
    ]
    assert "1.weight 1  1.d 9" in integers


def test_privacy_shows_sixteen_columns_in_few_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    columns = ", ".join(f'q{place} = ["no", "yes"]' for place in range(16))
    asked: dict[str, object] = {**FRESH, "kind": "table", "unit": None, "columns": f"= {{ {columns} }}"}
    path.write_text(numbers_text(survey=asked), encoding="utf-8")
    shown = dither("privacy", path).stdout.splitlines()
    assert [line[6:].split()[0] for line in shown[-3:]] == ["cells", "1.cells", "and"]
    assert shown[-1] == "survey  and the same of each part to 120"
    head, row = shown[:2]
    assert head.index("values") + len("values") == row.index("43,046,721") + len("43,046,721")


def test_privacy_tells_odds_and_how_far_a_device_can_be_linked(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(LINKING, encoding="utf-8")
    table = dither("privacy", path).stdout.partition("sure: report")[2].splitlines()[1:9]
    assert [line.split() for line in table] == [
        ["dark", "73.2%", "-", "95.3%", "-"],
        ["browser", "88.1%", "-", "88.1%", "-"],
        ["theme", "73.2%", "95.3%", "above", "99%", "0.02"],
        ["tools", "98.3%", "-", "above", "99%", "-"],
        ["named", "77.8%", "-", "92.5%", "-"],
        ["city", "73.2%", "88.1%", "88.1%", "0.18"],
        ["home", "73.2%", "98.3%", "98.3%", "1.00"],
        ["(all)", "-", "-", "-", "1.00"],
    ]
    rows = {row["metric"]: row for row in json.loads(dither("privacy", path, "--json").stdout)}
    assert rows["theme"]["sure_report"] == 0.731059
    assert (rows["theme"]["sure_permanent"], rows["dark"]["sure_permanent"]) == (0.952575, None)
    assert rows["city"]["linked_of_200"] == pytest.approx(0.1736, abs=5e-5)
    assert [name for name, row in rows.items() if row["linked_of_200"] is None] == ["dark", "browser", "tools", "named"]
    for row in rows.values():
        for stage, epsilon in (("report", row["epsilon_report"]), ("lifetime", row["epsilon_lifetime"])):
            assert 0 <= row[f"sure_{stage}"] - 1 / (1 + exp(-epsilon)) <= 1.3e-6


def test_a_bad_registry_is_refused_by_every_command(registry_path: Path, tmp_path: Path) -> None:
    text = registry_path.read_text(encoding="utf-8")
    for damage, message in [
        (text.replace("epsilon = 2.0", "epsilon = 2,0", 1), "must be TOML"),
        (
            text.replace('kind = "flag"', 'kind = "flog"'),
            'metric.dark: kind must be "flag" or "choice" or "choices" or "number" or "table" or "text" or '
            '"words", got "flog"',
        ),
        (
            text.replace(f"expires = {utc_today().year + 0}", "expires = 2999").replace(
                f"expires = {utc_today().year + 1}", "expires = 2999"
            ),
            "expires must be at most a year away",
        ),
    ]:
        registry_path.write_text(damage, encoding="utf-8")
        assert message in refused("metrics", "check", registry_path)
        assert "a year away" in message or message in refused("privacy", registry_path)
        assert message in refused("serve", registry_path, "--data", tmp_path / "data")
    assert "No such file" in refused("serve", tmp_path / "none.toml", "--data", tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_serve_refuses_what_it_cannot_do(registry_path: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = refused("serve", registry_path, "--data", data, "--port", port)
        assert f"port {port}: Address already in use; name another --port, or 0" in message
    assert "must be a number from 0 to 65535, got '70000'" in refused(
        "serve", registry_path, "--data", data, "--port", 70000
    )
    assert "cannot listen on 192.0.2.1" in refused("serve", registry_path, "--data", data, "--host", "192.0.2.1")
    assert "cannot be used: Not a directory" in refused("serve", registry_path, "--data", registry_path / "x")
    assert "--data" in refused("serve", registry_path)
    (tmp_path / "other.toml").write_text(registry_text(app="other"), encoding="utf-8")
    assert "belongs to the app 'example'" in refused("serve", tmp_path / "other.toml", "--data", data)
    (tmp_path / "changed.toml").write_text(registry_text(values=("x", "y")), encoding="utf-8")
    assert "give the changed metric the next rev" in refused("serve", tmp_path / "changed.toml", "--data", data)


def test_a_second_serve_on_the_same_directory_is_refused_and_the_first_goes_on(
    registry_path: Path, tmp_path: Path
) -> None:
    with serve(registry_path, tmp_path / "data") as served:
        message = refusal(dither("serve", registry_path, "--data", tmp_path / "data", "--port", 0))
        assert "is being served already" in message
        assert json.loads(dither("ledger", "--data", tmp_path / "data", "--json").stdout)["balanced"] is True
        assert served.process.poll() is None


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_serve_announces_itself_in_words_and_stops_cleanly(
    registry_path: Path, tmp_path: Path, how: signal.Signals
) -> None:
    process = start("serve", registry_path, "--data", tmp_path / "data", "--port", 0)
    assert process.stdout
    lines = [process.stdout.readline() for _ in range(4)]
    assert lines[0].startswith("dither serves example at http://127.0.0.1:")
    assert lines[1].startswith("key for devices: ")
    assert lines[2].startswith("health for monitors: http://127.0.0.1:")
    started = time.monotonic()
    process.send_signal(how)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")
    assert time.monotonic() - started < 10


def test_serve_listens_where_others_reach_it_once_reading_needs_a_key(registry_path: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    beyond = ("--data", data, "--port", 0, "--host", "0.0.0.0")
    said = "--host 0.0.0.0 can be reached from elsewhere, so reading must need a key: make one with "
    assert f"{said}`dither keys create read --data {data}`" in refusal(dither("serve", registry_path, *beyond))
    assert dither("keys", "create", "read", "--data", data).returncode == 0
    with serve(registry_path, data, *beyond[2:]) as served:
        assert served.url.startswith("http://127.0.0.1:")
        assert served.stop() == ""


def test_the_ledger_of_no_store_is_refused(tmp_path: Path) -> None:
    assert "holds no store; `dither serve REGISTRY --data" in refused("ledger", "--data", tmp_path)
    (tmp_path / "store.sqlite3").write_bytes(b"garbage" * 1000)
    assert "file is not a database" in refused("ledger", "--data", tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epsilon = 2.0", "epsilon = 1e99999999999999999999"),
        ("epsilon = 2.0", "epsilon = 1e-99999999999999999999"),
        ("epsilon = 2.0", "epsilon = 2.00000000000000000000000000000000000001"),
        ("rev = 1", "rev = 0x" + "F" * 5000),
        ("rev = 1", "rev = " + "9" * 5000),
    ],
    ids=lambda text: text[:20],
)
def test_absurd_numbers_are_refused(registry_path: Path, old: str, new: str) -> None:
    text = registry_path.read_text(encoding="utf-8")
    registry_path.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert str(registry_path) in refused("metrics", "check", registry_path)


def test_absurd_hosts_and_directories_are_refused(registry_path: Path, tmp_path: Path) -> None:
    for host in ("a..b", "h" * 300, "none.invalid"):
        assert "cannot listen on" in refused("serve", registry_path, "--data", tmp_path / "data", "--host", host)
    assert "must name a directory" in refused("serve", registry_path, "--data", "")


def test_a_damaged_store_is_refused(registry_path: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serve(registry_path, data) as served:
        served.stop()
    with closing(sqlite3.connect(data / "store.sqlite3")) as db, db:
        db.execute("UPDATE document SET text = '{}' WHERE kind = 'plans' AND id = 2")
    assert "a document of the store (plans) is damaged" in refused("ledger", "--data", data)
    assert "a document of the store (plans) is damaged" in refused("serve", registry_path, "--data", data)
    with closing(sqlite3.connect(data / "store.sqlite3")) as db, db:
        db.execute("DROP TABLE log")
        (sound,) = db.execute("SELECT text FROM document WHERE kind = 'plans' AND id = 1").fetchone()
        db.execute("UPDATE document SET text = ? WHERE kind = 'plans'", (sound,))
    assert "no such table: log" in refused("ledger", "--data", data)


@pytest.mark.parametrize("where", thinned(["/dev/full", "closed"], 0))  # nobody reads: as below
def test_output_that_cannot_be_written_is_no_traceback(registry_path: Path, where: str) -> None:
    redirect = ">&-" if where == "closed" else f">{where}"
    command = f"{shlex.join(DITHER)} metrics check {shlex.quote(str(registry_path))} {redirect}"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, check=False, env=ENVIRONMENT)
    assert "Traceback" not in done.stderr
    assert done.returncode == (0 if where == "closed" else 2)


def test_the_demo_refuses_impossible_fleets() -> None:
    assert "must be a number from 1 to 2000000, got '0'" in refused("demo", "--devices", 0)
    assert "got 'many'" in refused("demo", "--devices", "many")
    assert "must be a number of at most 18 digits, got '-1'" in refused("demo", "--seed=-1")
    assert "argument --data: invalid choice: 'sheep'" in refused("demo", "--data", "sheep")
    assert "--devices must be at most 48842 with --data census, got 48843" in refused(
        "demo", "--data", "census", "--devices", 48_843
    )


@pytest.mark.parametrize("command", ["serve", "audit", "attack", "metrics load"])
def test_without_the_aggregators_package_its_commands_name_it(
    command: str, registry_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = re.compile(r"(dither_aggregator|dither\.commands\.(audit|attack))\b")

    class Lacking(MetaPathFinder):
        def find_spec(self, fullname: str, *_: object) -> None:
            if elsewhere.match(fullname):
                raise ModuleNotFoundError(name=fullname)

    monkeypatch.setattr(sys, "meta_path", [Lacking(), *sys.meta_path])
    for name in filter(elsewhere.match, list(sys.modules)):
        monkeypatch.delitem(sys.modules, name)
    assert main(["metrics", "check", str(registry_path)]) == 0
    capsys.readouterr()
    for arguments in ([str(registry_path), "--data", "data"], ["--help"]):
        assert main([*command.split(), *arguments]) == 2
        said = "dither: this comes with the aggregator: pip install dither-aggregator\n"
        assert capsys.readouterr() == ("", said)


def test_a_module_that_a_command_lacks_is_not_taken_for_the_aggregators_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "dither.auditing", None)
    monkeypatch.delitem(sys.modules, "dither.commands.audit", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"dither\.auditing"):
        main(["audit", "--help"])


def test_a_reader_that_leaves_early_is_no_error(registry_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*DITHER, "metrics", "check", str(registry_path)],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
        env=ENVIRONMENT,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
