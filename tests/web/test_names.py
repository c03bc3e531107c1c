"""The command line and `start()` refuse the same registries for pages, in the same words."""

import json
from pathlib import Path

import pytest

from dither.cli import main
from dither_shared.errors import RegistryError
from dither_shared.registry import Registry
from tests.support.measured import PARTS, measured_text
from tests.support.node import run
from tests.support.registries import registry_text
from tests.support.web_pages import WEB, compiled

NAMES_OF_JAVASCRIPT = """
const chains = [Object.prototype, Function.prototype, Promise.prototype, Telemetry.prototype];
console.log(JSON.stringify([...new Set(chains.flatMap((one) => Object.getOwnPropertyNames(one)))]));
"""
STARTED = """
const { readFileSync } = await import("node:fs");
const said = JSON.parse(readFileSync(process.argv[2], "utf8")).map((registry) => {
  try {
    const settings = { registry, endpoint: "http://127.0.0.1:9", key: "k", storage: ":memory:", consent: false };
    void start(settings).close();
    return "";
  } catch (error) {
    return error.message;
  }
});
console.log(JSON.stringify(said));
"""


def script(directory: Path, text: str) -> Path:
    """Write a program that has the SDK."""
    path = directory / "program.ts"
    imports = [("start", "index.ts"), ("Telemetry", "telemetry.ts")]
    lines = [f'import {{ {name} }} from "{(WEB / "src" / module).as_uri()}";\n' for name, module in imports]
    path.write_text("".join(lines) + text, encoding="utf-8")
    return path


def started(directory: Path, documents: list[object]) -> list[str]:
    """Return what `start()` throws for each compiled registry; "" where it begins."""
    (directory / "registries.json").write_text(json.dumps(documents), encoding="utf-8")
    said: list[str] = json.loads(run(script(directory, STARTED), str(directory / "registries.json")))
    return said


def checked(directory: Path, text: str, command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a command says against a registry for pages; "" where it is sound."""
    path = directory / "metrics.toml"
    path.write_text(text, encoding="utf-8")
    code = main(["metrics", command, str(path), "--web"])
    said = capsys.readouterr().err
    assert code == (2 if said else 0)
    return said


def named(name: str) -> str:
    """Return a registry for pages, with a metric of that name."""
    text = registry_text(quiet_days=1).replace("quiet_days", "evicted = true\nquiet_days")
    return text.replace("[metric.dark]", f"[metric.{json.dumps(name)}]")


def renamed(document: str, name: str) -> object:
    """Return a compiled registry that no command writes: with a metric of any name."""
    text: object = json.loads(document.replace('"dark"', json.dumps(name)))
    return text


def test_each_name_that_start_refuses_is_refused_by_the_command_line_and_no_other_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = sorted({*json.loads(run(script(tmp_path, NAMES_OF_JAVASCRIPT))), "prototype", "then", "record", "theme"})
    assert {"constructor", "__proto__", "toString", "setConsent", "catch"} <= {*names}
    plain = compiled(named("dark"))
    thrown = dict(zip(names, started(tmp_path, [renamed(plain, name) for name in names]), strict=True))
    refused = {name for name in names if thrown[name]}
    assert {"constructor", "__proto__", "toString"} <= refused
    for name in names:
        try:
            Registry.parse(named(name))
        except RegistryError:
            assert checked(tmp_path, named(name), "compile", capsys)  # for no device at all
            continue
        for command in ("check", "compile"):
            said = checked(tmp_path, named(name), command, capsys)
            assert bool(said) == (name in refused), name
            if said:
                assert said.endswith(f"metric.{name}: {thrown[name]}\n")
    assert "theme" not in refused


def test_what_a_page_cannot_measure_is_refused_in_the_words_of_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = started(tmp_path, [json.loads(compiled(measured_text(name))) for name in PARTS])
    for name, thrown in zip(PARTS, said, strict=True):
        for command in ("check", "compile"):
            refused = checked(tmp_path, measured_text(name), command, capsys)
            assert refused.endswith(f"metric.{name}: {thrown}\n") if thrown else not refused
    assert said.count("") == 1  # a theme is told, not measured


def test_all_that_a_page_cannot_ask_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = measured_text("back", "days").replace("[metric.back]", "[metric.constructor]")
    said = checked(tmp_path, text, "check", capsys).splitlines()
    assert [line.split(": ")[-1] for line in said[:3]] == [
        "name it otherwise",
        "leave it out",
        "leave it out",
    ]


def test_other_devices_may_have_such_a_name(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(named("constructor"), encoding="utf-8")
    assert main(["metrics", "check", str(path)]) == 0
    assert main(["metrics", "compile", str(path), "--out", str(tmp_path / "metrics.json")]) == 0
