"""The stub of an app's metrics: what type checkers then know, and that it is the text of any registry."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dither.cli import main
from dither.commands.metrics.types import VALUES_MAX, stub, web_types
from dither_shared.registry import Registry
from tests.support.aggregators import ENVIRONMENT, dither
from tests.support.registries import metrics_text
from tests.support.web_pages import WEB, node

ROOT = Path(__file__).parents[2]
MYPY = [sys.executable, "-m", "mypy", "--strict", "--config-file="]
AWKWARD = (
    'say "hi"',
    "it's",
    "both ' and \"",
    "more '' than \"",
    "back\\slash",
    "\\",
    "\\'",
    '\\"',
    '"""',
    "'''",
    "{braces}",
    "grün 好 😀",
    "\u0600 png.exe",
    "\N{NO-BREAK SPACE}".join("ab"),
    "# type: ignore",
    "x" * 200,
)


Keys = Mapping[str, object]


def registry_of(metrics: Mapping[str, Keys], presence: str = "public") -> Registry:
    """Return a registry of such metrics, which are choices unless they say otherwise."""
    usual = {"kind": "choice", "epsilon": 1, "reports": 1, "presence": presence}
    return Registry.parse(
        metrics_text({name: {**usual, "question": f"What about {name}?", **keys} for name, keys in metrics.items()})
    )


def asked(**metrics: Keys) -> Registry:
    return registry_of(metrics)


FLAG: Keys = {"kind": "flag"}
COLOR: Keys = {"values": ["red", "green"]}
TOOLS: Keys = {"kind": "choices", "ticks_max": 2, "values": ["git", "make"]}
DELAY: Keys = {"kind": "number", "unit": "s", "edges": [0, 1, 5]}
CRASH: Keys = {"kind": "table", "columns": {"crashed": ["no", "yes"], "age": {"edges": [20, 40]}}}
LONG: Keys = {"values": [f"v{number}" for number in range(VALUES_MAX)]}
KEYWORD: Keys = {
    "kind": "table",
    "columns": {"class": ["a"], "size": {"low": 0, "high": 1, "asks": ["mean"]}, "version": LONG["values"]},
}


def site() -> Registry:
    """Return a registry with a text, which is memoized."""
    return asked(site={"kind": "text", "reports": None, "memoize": True, "epsilon_permanent": 2, "answers": 1})


def types_of(asked: Registry) -> dict[str, Any]:
    """Return the values that the stub's type aliases list, by their names."""
    module = ast.parse(stub(asked))
    aliases = [node for node in module.body if isinstance(node, ast.AnnAssign) and node.value]
    return {ast.unparse(alias.target): ast.literal_eval(alias.value.slice) for alias in aliases}  # type: ignore[union-attr]


PROGRAM = """\
from decimal import Decimal

import dither
from app.metrics import telemetry


def settings(given: dither.Telemetry, theme: dither.Choice) -> None: ...


settings(telemetry, telemetry.color)
telemetry.dark.record(True)
telemetry.color.record("red")
telemetry.color.record("other")
telemetry.tools.record(["git", "other"])
telemetry.tools.record({"make"})
telemetry.long.record(str(telemetry))
telemetry.delay.record(12.5)
telemetry.delay.record(Decimal("0.25"))
telemetry.crash.record({"crashed": "yes", "age": 41})
telemetry.crash.record({"age": Decimal("40.5")})
telemetry.crash.record({"crashed": "other"})
telemetry.keyword.record({"class": "a", "size": 0.5})
telemetry.keyword.record({"version": str(telemetry)})
with telemetry.delay.timing():
    telemetry.flush(timeout=1)


@telemetry.delay.timing()
def load(name: str) -> int:
    return len(name)


@telemetry.delay.timing()
async def fetch(name: str) -> int:
    return load(name)


async def both() -> int:
    return load("a") + await fetch("b")


telemetry.dark.record("yes")  # arg-type
telemetry.color.record("rde")  # arg-type
telemetry.color.record("none")  # arg-type
telemetry.color.record(True)  # arg-type
telemetry.tools.record("git")  # arg-type
telemetry.tools.record(["gti"])  # list-item
telemetry.delay.record("0.25 s")  # arg-type
telemetry.crash.record({"crashed": "yse"})  # typeddict-item
telemetry.crash.record({"crash": "yes"})  # typeddict-unknown-key
telemetry.crash.record({"crashed": True})  # typeddict-item
telemetry.crash.record({"age": "41"})  # typeddict-item
telemetry.crash.record("yes")  # arg-type
telemetry.keyword.record({"class": "b"})  # typeddict-item
load(3)  # arg-type
telemetry.colour.record("red")  # attr-defined
telemetry.flash()  # attr-defined
"""


def test_mypy_takes_a_right_program_and_finds_every_typing_mistake(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The cache outlives the run: dither itself is checked once."""
    assert request.config.cache
    cache = request.config.cache.mkdir("types of dither")
    app = tmp_path / "app"
    app.mkdir()
    (app / "__init__.py").write_text("", encoding="utf-8")
    (app / "metrics.py").write_text(
        "import dither\n\ntelemetry = dither.start('metrics.toml', endpoint='https://example.org', key='k')\n",
        encoding="utf-8",
    )
    registry = asked(dark=FLAG, color=COLOR, tools=TOOLS, long=LONG, delay=DELAY, crash=CRASH, keyword=KEYWORD)
    (app / "metrics.pyi").write_text(stub(registry), encoding="utf-8")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [*MYPY, "--cache-dir", str(cache), "-p", "app", "-m", "program"],
        cwd=tmp_path,
        env={**ENVIRONMENT, "MYPYPATH": ":".join(str(ROOT / room) for room in ("client", "shared"))},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    found = re.findall(r"^(\S+):(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    lines = enumerate(PROGRAM.splitlines(), start=1)
    mistakes = [("program.py", str(number), line.split("# ")[1]) for number, line in lines if "# " in line]
    assert found == mistakes, done.stdout + done.stderr
    assert len(mistakes) == 16


def test_a_handle_takes_the_listed_values_and_other() -> None:
    assert types_of(asked(color=COLOR, tools=TOOLS, dark=FLAG)) == {
        "ColorAnswer": ("red", "green", "other"),
        "ToolsAnswer": ("git", "make", "other"),
    }
    assert types_of(registry_of({"color": COLOR}, "hidden")) == {"ColorAnswer": ("red", "green", "other", "none")}


def test_a_number_takes_any_number() -> None:
    text = stub(asked(delay=DELAY))
    assert "class DelayHandle(dither.Number):" in text
    assert "record" not in text


def test_a_table_takes_a_dict_of_its_columns() -> None:
    text = stub(asked(crash=CRASH))
    assert "from decimal import Decimal\nfrom fractions import Fraction\nfrom typing import ClassVar, Literal" in text
    assert (
        "class CrashAnswer(TypedDict, total=False):\n"
        '    crashed: Literal["no", "yes", "other"]\n'
        "    age: float | Decimal | Fraction\n"
    ) in text
    assert "def record(self, answer: CrashAnswer) -> None: ..." in text
    assert stub(registry_of({"crash": CRASH}, "hidden")) == text  # "none" is said by devices, of no column


def test_a_column_whose_name_is_a_keyword_is_typed_too() -> None:
    assert (
        'KeywordAnswer = TypedDict(\n    "KeywordAnswer",\n    {\n        "class": Literal["a", "other"],\n'
        '        "size": float | Decimal | Fraction,\n        "version": str,\n    },\n    total=False,\n)\n'
    ) in stub(asked(keyword=KEYWORD))


def test_texts_and_long_lists_take_any_text() -> None:
    assert types_of(site()) == {}
    assert types_of(asked(long=LONG)) == {}
    (listed,) = types_of(asked(long={"values": [f"v{number}" for number in range(VALUES_MAX - 1)]})).values()
    assert len(listed) == VALUES_MAX


def test_each_value_is_itself_whatever_it_holds() -> None:
    assert types_of(asked(awkward={"values": AWKWARD})) == {"AwkwardAnswer": (*AWKWARD, "other")}
    for value in AWKWARD:
        assert types_of(asked(awkward={"values": [value]})) == {"AwkwardAnswer": (value, "other")}
    assert "\u0600" not in stub(asked(awkward={"values": AWKWARD}))


@pytest.mark.parametrize("question", [*AWKWARD, 'Which "theme"?', 'Is it "dark"'])
def test_the_question_is_the_handles_docstring(question: str) -> None:
    module = ast.parse(stub(asked(color={**COLOR, "question": question})))
    handle = next(node for node in module.body if isinstance(node, ast.ClassDef))
    assert ast.get_docstring(handle, clean=False) == question


def test_every_metric_has_a_class_of_its_own() -> None:
    names = ["ab", "a_b", "a__b", "a_1", "a1", "a_", "telemetry", "dither", "literal", "handle", "ab_answer"]
    module = ast.parse(stub(registry_of(dict.fromkeys(names, FLAG))))
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    assert len({node.name for node in classes}) == len(names) + 1
    handles = {node.name: ast.unparse(node.bases[0]) for node in classes[:-1]}
    assert set(handles.values()) == {"dither.Flag"}
    declared = [node for node in classes[-1].body if isinstance(node, ast.AnnAssign)][1:]
    assert {ast.unparse(node.target): ast.unparse(node.annotation) for node in declared} == dict(
        zip(names, handles, strict=True)
    )


WRITTEN = {
    "all kinds": asked(dark=FLAG, color=COLOR, tools=TOOLS, long=LONG, crash=CRASH, keyword=KEYWORD),
    "awkward texts": asked(
        awkward={"values": AWKWARD, "question": 'Why """?'}, **{f"v{n}": {"values": [v]} for n, v in enumerate(AWKWARD)}
    ),
    "all widths": asked(**{f"a{length}": {"values": ["x" * length]} for length in range(35, 60)}),
    "all widths of columns": asked(
        **{
            f"a{length}_{name}": {"kind": "table", "columns": {name: ["x" * length, "y"], "b": ["x" * 90]}}
            for length in range(45, 60)
            for name in ("a", "if")
        }
    ),
    "long choices": asked(long={**LONG, "kind": "choices", "ticks_max": 2}),
    "columns": asked(crash={"kind": "table", "columns": {"a": ["1"], "b": ["2"]}}),
    "columns of numbers": asked(crash={"kind": "table", "columns": {"a": {"edges": [0, 1]}, "b": {"edges": [0, 1]}}}),
    "a flag": asked(dark=FLAG),
    "a text": site(),
}


def test_every_stub_is_formatted_and_imports_what_it_uses(tmp_path: Path) -> None:
    for name, registry in WRITTEN.items():
        (tmp_path / f"{name.replace(' ', '_')}.pyi").write_text(stub(registry), encoding="utf-8")
    for check in (["format", "--diff"], ["check", "--select", "E1,E2,E3,E7,E9,F,I,N815,PIE,UP,W,RUF100"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *check, "--isolated", "--no-cache", "--target-version", "py311", tmp_path],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.toml"
    dark = {"kind": "flag", "question": "Wählt?", "epsilon": 1, "reports": 1}
    path.write_text(metrics_text({"dark": dark}), encoding="utf-8")
    return path


def test_it_goes_to_a_file_or_to_stdout(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = path.with_suffix(".pyi")
    text = stub(Registry.load(path))
    assert main(["metrics", "types", str(path)]) == 0
    assert capsys.readouterr().out == text
    assert main(["metrics", "types", str(path), "--out", str(out), "--name", "ask"]) == 0
    assert out.read_bytes().decode("utf-8") == text.replace("\ntelemetry: Telemetry\n", "\nask: Telemetry\n") != text
    assert capsys.readouterr().out == ""


def test_check_tells_a_stub_of_another_registry(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = path.with_suffix(".pyi")
    check = ["metrics", "types", str(path), "--check", str(out)]
    again = f"{out} is not of this registry: dither metrics types {path} --out {out}\n"
    out.write_bytes(b"")
    assert (main(check), capsys.readouterr().out) == (1, again)
    assert main(["metrics", "types", str(path), "--out", str(out)]) == 0
    assert (main(check), capsys.readouterr().out) == (0, "")
    out.write_bytes(out.read_bytes().replace(b"\n", b"\r\n"))
    assert main(check) == 0
    out.write_bytes(b"\xff" + out.read_bytes())
    assert main(check) == 1
    assert main(["metrics", "types", str(path), "--out", str(out)]) == 0
    capsys.readouterr()
    assert main([*check, "--name", "ask"]) == 1
    assert "metrics.toml --name ask --out" in capsys.readouterr().out
    path.write_text(path.read_text(encoding="utf-8").replace("metric.dark", "metric.night"), encoding="utf-8")
    assert main(check) == 1


def test_check_tells_a_stub_that_cannot_be_read_from_another(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for out, why in ((path.with_suffix(".pyi"), "No such file or directory"), (path.parent, "Is a directory")):
        assert main(["metrics", "types", str(path), "--check", str(out)]) == 2
        assert capsys.readouterr() == ("", f"dither: {out} cannot be read: {why}\n")


@pytest.mark.parametrize(
    "name", ["2b", "a b", "", "class", "None", "dither", "Literal", "Fraction", "Telemetry", "DarkHandle"]
)
def test_a_name_that_cannot_be_used_is_refused(name: str, path: Path) -> None:
    done = dither("metrics", "types", path, "--name", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"got {name!r}" in done.stderr
    assert "Traceback" not in done.stderr


def test_out_and_check_are_not_asked_for_together(path: Path) -> None:
    done = dither("metrics", "types", path, "--out", "a.pyi", "--check", "a.pyi")
    assert done.returncode == 2
    assert "not allowed with argument" in done.stderr


@pytest.mark.parametrize("action", ["check", "diff", "docs", "types"])
def test_every_action_has_an_example(action: str) -> None:
    done = dither("metrics", action, "--help")
    assert done.returncode == 0
    assert f"example: dither metrics {action} " in done.stdout
    assert action in dither("metrics", "--help").stdout


# For a page.

PAGE = """
import {{ start }} from "{sdk}/client/web/src/index.ts";
import type {{ Answers }} from "./metrics.d.ts";
const telemetry = start<Answers>({{ registry: {{}}, endpoint: "https://a.example", key: "k" }});
telemetry.dark.record(true);
telemetry.color.record("red");
telemetry.tools.record(["git"]);
telemetry.tools.record(new Set(["git", "make"] as const));
telemetry.delay.record(1.5);
telemetry.delay.record(2n);
telemetry.crash.record({{ crashed: "yes", age: 31 }});
telemetry.awkward.record({awkward});
telemetry.many.record("anything");
"""
WRONG = (
    "telemetry.dark.record('yes')",
    "telemetry.color.record('blue')",
    "telemetry.tools.record(['svn'])",
    "telemetry.delay.record('1')",
    "telemetry.crash.record({ crashed: 'perhaps' })",
    "telemetry.crash.record({ speed: 1 })",
    "telemetry.colour.record('red')",
    "telemetry.record('color', 'blue')",
)


def test_a_page_is_told_of_wrong_names_and_values_when_it_is_compiled(tmp_path: Path) -> None:
    registry = asked(
        dark=FLAG,
        color={**COLOR, "question": "Which /* one */ is it?"},
        tools=TOOLS,
        delay=DELAY,
        crash=CRASH,
        awkward={"values": AWKWARD},
        many={"values": [str(number) for number in range(VALUES_MAX + 1)]},
    )
    (tmp_path / "metrics.d.ts").write_text(web_types(registry), encoding="utf-8")
    right = PAGE.format(sdk=ROOT, awkward=json.dumps(AWKWARD[11]))
    wrong = "".join(f"// @ts-expect-error\n{line};\n" for line in WRONG)
    (tmp_path / "page.ts").write_text(right + wrong, encoding="utf-8")
    options = ("--strict", "--noEmit", "--allowImportingTsExtensions", "--target", "es2022", "--module", "nodenext")
    compiler = WEB / "node_modules" / "typescript" / "bin" / "tsc"
    node(
        compiler,
        *options,
        "--lib",
        "es2022,dom",
        "--types",
        "node",
        "--typeRoots",
        WEB / "node_modules" / "@types",
        "page.ts",
        cwd=tmp_path,
    )


def test_the_types_of_a_page_are_compared_with_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    registry, types = tmp_path / "metrics.toml", tmp_path / "metrics.d.ts"
    registry.write_text(
        metrics_text({"dark": {**FLAG, "question": "Dark?", "epsilon": 1, "reports": 1, "presence": "public"}})
    )
    assert main(["metrics", "types", str(registry), "--web", "--out", str(types)]) == 0
    assert "  /** Dark? */\n  dark: boolean;\n" in types.read_text(encoding="utf-8")
    assert main(["metrics", "types", str(registry), "--web", "--check", str(types)]) == 0
    types.write_text("", encoding="utf-8")
    assert main(["metrics", "types", str(registry), "--web", "--check", str(types)]) == 1
    assert f"dither metrics types {registry} --web --out {types}" in capsys.readouterr().out
