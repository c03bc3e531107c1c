"""Settings: a flag, a variable or a key of a file; the page that lists them; what is said of wrong ones."""

import argparse
import importlib
import json
import re
from pathlib import Path

import pytest

from dither.cli import COMMANDS, main
from dither_aggregator.arguments.settings import FILE_VARIABLE, OF_DEVICES, SETTINGS, Setting
from dither_aggregator.workers.tasks import QUEUES
from tests.support.registries import registry_text

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "deploy" / "settings.md").read_text(encoding="utf-8")
OF_A_CALL = {
    *("-h", "--help", "--json", "--settings", "--weekly", "--html", "--to", "--sender", "--url"),
    *("--prometheus", "--webhook", "--again"),
}
"""Options that say how a command is called, and are no settings."""
TAKE = ("serve", "api", "worker", "beat", "init", "report")
VALUES = {
    "data": "/srv/dither",
    "broker": "redis://10.0.0.6:6379/0",
    "smtp": "smtps://mail.example.org",
    "host": "127.0.0.2",
    "port": "9000",
    "health": "9001",
    "allow_host": "a.example",
    "allow_origin": "https://a.example",
    "trusted_proxy": "10.0.0.0/8",
    "base_path": "/telemetry",
    "limit_address": "50:100",
    "limit_key": "7",
    "backlog_max": "5",
    "disk_floor": "3%",
    "write_key_file": "/srv/write.key",
    "read_key_file": "/srv/read.key",
    "admin_key_file": "/srv/admin.key",
    "public": "site",
    "log_format": "json",
    "log_level": "debug",
    "processes": "3",
    "queues": "fold",
    "shards": "2",
    "replicas": "2",
    "allow_lossy_store": "true",
}
"""A value of each setting, which is not the default."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "dither.toml"


def table(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, dict[str, str]]:
    """Return what `dither settings` prints."""
    assert main(["settings", "--json", *map(str, arguments)]) == 0
    return {row["setting"]: row for row in json.loads(capsys.readouterr().out)["settings"]}


def wrong(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Return what a command says of what is wrong."""
    assert main([*map(str, arguments)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def parsers(command: str) -> list[argparse.ArgumentParser]:
    """Return a command's parser, and those of what it can be told to do."""
    found = [argparse.ArgumentParser()]
    importlib.import_module(COMMANDS[command][0]).add_arguments(found[0])
    for parser in found:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                found += action.choices.values()
    return found


def flags(command: str) -> set[str]:
    """Return a command's options."""
    return {option for action in parsers(command)[0]._actions for option in action.option_strings}


def line(setting: Setting) -> str:
    """Return the page's line for a setting."""
    takes = ", ".join(command for command in TAKE if setting.flag in flags(command))
    variables = f"`{setting.variable}`" + f", `{setting.variable}_FILE`" * setting.secret
    keys = f"`{setting.name}`" + f", `{setting.name}_file`" * setting.secret
    return f"| `{setting.flag}` | {variables} | {keys} | {setting.shown_default} | {takes} | {setting.what} |"


# The table.


def test_the_page_has_every_setting_as_it_is_in_the_code() -> None:
    there = [row for row in PAGE.splitlines() if row.startswith("| `--")]
    assert there == [line(setting) for setting in SETTINGS.values()]


@pytest.mark.parametrize("command", TAKE)
def test_every_flag_of_a_command_is_a_setting(command: str) -> None:
    assert flags(command) - OF_A_CALL <= {setting.flag for setting in SETTINGS.values()}


def test_whatever_takes_a_store_takes_the_file_too() -> None:
    options = [
        {option for action in parser._actions for option in action.option_strings}
        for command in set(COMMANDS) - {"demo"}  # where --data is of other data
        for parser in parsers(command)
    ]
    with_store = [each for each in options if "--data" in each]
    assert len(with_store) >= 20
    assert all("--settings" in each for each in with_store)


def test_the_variables_of_devices_are_those_that_the_sdk_reads() -> None:
    read = {
        name
        for path in (ROOT / "client" / "dither").glob("**/*.py")
        for name in re.findall(r"\bDITHER_[A-Z_]+", path.read_text(encoding="utf-8"))
    }
    assert read == set(OF_DEVICES)


def test_what_workers_do_is_named_as_they_do() -> None:
    assert SETTINGS["queues"].what.endswith(",".join(QUEUES))


# Precedence.


@pytest.mark.parametrize("name", SETTINGS)
def test_a_flag_comes_before_a_variable_and_that_before_the_file_and_that_before_the_default(
    name: str, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    setting, value = SETTINGS[name], VALUES[name]
    assert table(capsys)[name]["from"] == "default"
    in_file = "true" if setting.switch else value if value.isdigit() else json.dumps(value)
    file.write_text(f"{name} = {in_file}\n", encoding="utf-8")
    row = table(capsys, "--settings", file)[name]
    assert (row["value"], row["from"]) == (value, f"{file}: {name}")
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    monkeypatch.setenv(setting.variable, "false" if setting.switch else value)
    row = table(capsys)[name]
    assert (row["value"], row["from"]) == ("false" if setting.switch else value, setting.variable)
    row = table(capsys, setting.flag, *([] if setting.switch else [value]))[name]
    assert (row["value"], row["from"]) == (value, setting.flag)


def test_a_setting_of_several_is_a_list_in_the_file_and_words_in_the_variable(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text('allow_host = ["a.example", "b.example"]\n', encoding="utf-8")
    assert table(capsys, "--settings", file)["allow_host"]["value"] == "a.example b.example"
    monkeypatch.setenv("DITHER_ALLOW_HOST", "c.example,d.example e.example")
    assert table(capsys, "--settings", file)["allow_host"]["value"] == "c.example d.example e.example"
    row = table(capsys, "--allow-host", "f.example", "--allow-host", "g.example")["allow_host"]
    assert row["value"] == "f.example g.example"


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DITHER_PORT", "")
    assert table(capsys)["port"]["from"] == "default"


def test_people_get_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--port", "9000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(SETTINGS)
    assert ["port", "9000", "--port"] in [each.split() for each in lines]


def test_a_default_that_depends_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table(capsys)
    assert rows["limit_address"]["value"] == "20:1200; off for loopback while no proxy is trusted"
    assert rows["processes"]["value"] == "one a CPU"
    assert rows["port"]["value"] == "8080"


def test_a_command_works_with_the_file_alone(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = tmp_path / "metrics.toml"
    metrics.write_text(registry_text(), encoding="utf-8")
    file.write_text(f'data = "{tmp_path / "store"}"\nport = 9000\n', encoding="utf-8")  # port is another command's
    assert main(["init", str(metrics), "--settings", str(file)]) == 0
    assert main(["ledger", "--settings", str(file), "--json"]) == 0
    assert main(["store", "show", "--settings", str(file), "--json"]) == 0
    assert (tmp_path / "store" / "store.sqlite3").exists()
    capsys.readouterr()
    assert "say the store: --data, DITHER_DATA, or data in the file of --settings" in wrong(capsys, "ledger")


# Mistakes.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('prot = "9000"', ": there is no setting prot; did you mean port? `dither settings` lists them"),
        ("limit-address = 5", ": there is no setting limit-address; did you mean limit_address?"),
        ("[serve]\nport = 1", ": there is no setting serve; "),
        ("dither = 1", ": there is no setting dither; `dither settings` lists them"),
        ("port = 70000", ": port: must be a number from 0 to 65535, got '70000'"),
        ("port = [1]", ": port must be a text or a number"),
        ("port = true", ": port must be a text or a number"),
        ("port = 2026-01-01", ": port must be a text or a number"),
        ("allow_host = [1]", ": allow_host must be a list of texts"),
        ('allow_lossy_store = "yes"', ": allow_lossy_store must be true or false"),
        ('limit_key = "fast"', ": limit_key: a rate must be like 20"),
        ('disk_floor = "100%"', ": disk_floor: a floor must be below 100%"),
        ('disk_floor = "much"', ": disk_floor: a floor must be like 5%, 1GB"),
        ('trusted_proxy = "10.0.0.1/8"', ": trusted_proxy: must be an address or a network"),
        ("backlog_max = 0", ": backlog_max: must be a number above 0, or off"),
        ('queues = "fold,sing"', ": queues: must be some of fold,"),
        ("port = ", " is not TOML"),
        ("a" + ".a" * 3_000 + " = 1", " is not TOML: a key must have at most 8 parts"),
        ("a = " + "[" * 3_000, " is not TOML: lists and tables must be nested at most 8 deep"),
        ("a = 1\n" * 20_000, " must have at most 65536 bytes"),
    ],
    ids=lambda text: text[:30],
)
def test_what_is_wrong_in_the_file_is_named(
    text: str, said: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text, encoding="utf-8")
    assert f"dither: {file}{said}" in wrong(capsys, "settings", "--settings", file)


def test_a_byte_order_mark_is_no_part_of_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("port = 8081", encoding="utf-8-sig")
    assert main(["settings", "--settings", str(file)]) == 0
    assert "8081" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("DITHER_PROT", "1", "there is no variable DITHER_PROT; did you mean DITHER_PORT?"),
        ("DITHER_LIMIT_ADRESS", "1", "there is no variable DITHER_LIMIT_ADRESS; did you mean DITHER_LIMIT_ADDRESS?"),
        ("DITHER_PORT_FILE", "1", "there is no variable DITHER_PORT_FILE; did you mean"),
        ("DITHER_PORT", "tcp://10.0.0.1:80", "DITHER_PORT: must be a number from 0 to 65535"),
        ("DITHER_PORT", "1" * 5_000, "DITHER_PORT: must be a number from 0 to 65535"),
        ("DITHER_PROCESSES", "1" * 5_000, "DITHER_PROCESSES: must be a number from 1 to 1000"),
        ("DITHER_ALLOW_LOSSY_STORE", "maybe", "DITHER_ALLOW_LOSSY_STORE: must be one of 1, true"),
        ("DITHER_SETTINGS", "/nowhere.toml", "the settings /nowhere.toml cannot be read: No such file"),
        ("DITHER_DATA_FILE", "/nowhere", "DITHER_DATA_FILE: /nowhere cannot be read: No such file"),
    ],
)
def test_a_wrong_variable_is_named(
    variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, value)
    assert f"dither: {said}" in wrong(capsys, "settings")


def test_a_wrong_flag_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for flag, value in (("--port", "x"), ("--limit-address", "x"), ("--disk-floor", "x")):
        with pytest.raises(SystemExit, match="2"):
            main(["settings", flag, value])
        assert f"argument {flag}: " in capsys.readouterr().err


def test_variables_of_devices_are_no_mistake(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in OF_DEVICES:
        monkeypatch.setenv(name, "1")
    assert len(table(capsys)) == len(SETTINGS)


# Secrets.


SECRET = "redis://user:geheim@10.0.0.5:6379/0"


@pytest.mark.parametrize("address", [SECRET, "redis://10.0.0.5:6379/0?password=geheim", "redis://:a?geheim@10.0.0.5/0"])
@pytest.mark.parametrize("name", ["data", "broker"])
def test_a_secret_comes_by_a_file_of_its_own_and_is_not_shown(
    name: str,
    address: str,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(address + "\n", encoding="utf-8")
    file.write_text(f'{name}_file = "{secret}"\n', encoding="utf-8")
    row = table(capsys, "--settings", file)[name]
    assert row["from"] == f"{file}: {name}_file"
    monkeypatch.setenv(f"DITHER_{name.upper()}_FILE", str(secret))
    assert table(capsys, "--settings", file)[name] == {**row, "from": f"DITHER_{name.upper()}_FILE"}
    assert "geheim" not in str(row)
    assert row["value"].startswith("redis://")
    monkeypatch.setenv(f"DITHER_{name.upper()}", SECRET)
    said = wrong(capsys, "settings")
    assert f"DITHER_{name.upper()} and DITHER_{name.upper()}_FILE: one of them, not both" in said
    assert "geheim" not in said


def test_a_command_uses_the_address_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("redis://:geheim@127.0.0.1:1/0", encoding="utf-8")
    monkeypatch.setenv("DITHER_DATA_FILE", str(secret))
    said = wrong(capsys, "ledger")
    assert "redis at 127.0.0.1:1" in said
    assert "geheim" not in said


@pytest.mark.parametrize("held", ["", "\n", "redis://h\nredis://i", "x" * 5_000, "r\xe9dis"])
def test_a_file_that_holds_no_address_is_named_and_not_quoted(
    held: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(held, encoding="latin-1")
    monkeypatch.setenv("DITHER_BROKER_FILE", str(secret))
    assert wrong(capsys, "settings") == f"dither: DITHER_BROKER_FILE: {secret} must hold one line of text\n"


def test_a_password_in_the_settings_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(f'broker = "{SECRET}"\n', encoding="utf-8")
    said = wrong(capsys, "settings", "--settings", file)
    assert "broker holds a password: put it in a file of its own, named by broker_file" in said
    assert "geheim" not in said


@pytest.mark.parametrize("address", ["http://:geheim@10.0.0.5", "redis//:geheim@x://"])
def test_a_wrong_address_is_not_repeated(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DITHER_DATA", address)
    said = wrong(capsys, "settings")
    assert said.startswith("dither: DITHER_DATA: an address must begin with redis://")
    assert "geheim" not in said
