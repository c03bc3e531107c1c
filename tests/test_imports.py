"""Imports go one way, and `import dither` loads little."""

import ast
import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.benchmarks.programs import FEW, registry_text, write_registry
from tests.support.aggregators import ENVIRONMENT

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "shared/dither_shared": {"dither_shared"},
    "client/dither": {"dither", "dither_shared", "requests", "urllib3"},
    "client/examples": {"celery", "dither", "django", "fastapi", "flask"},
    # For an app's own tests, which pytest loads.
    "client/dither/testing": {"dither", "dither_shared", "pytest"},
    "aggregator/dither_aggregator": {
        "apispec",
        "billiard",
        "cachetools",
        "celery",
        "dither_aggregator",
        "dither_shared",
        "flask",
        "httptools",
        "itsdangerous",
        "jinja2",
        "kombu",
        "marshmallow",
        "msgspec",
        "numpy",
        "prometheus_client",
        "pyarrow",
        "redis",
        "scipy",
        "webargs",
        "werkzeug",
    },
    # The builder asks it, and nothing that is installed does.
    "aggregator/hatch_build.py": {"hatchling"},
    "aggregator/dither_aggregator/ask": {"dither_aggregator", "dither_shared", "lark", "numpy", "scipy"},
    "aggregator/dither_aggregator/simulate": {"dither_aggregator", "dither_shared", "dither", "numpy"},
    # Sends reports of another system's clients as a device sends its own.
    "aggregator/dither_aggregator/google_rappor.py": {
        "dither",
        "dither_aggregator",
        "dither_shared",
        "numpy",
        "scipy",
    },
    "aggregator/dither_aggregator/commands/rappor.py": {"dither", "dither_aggregator", "dither_shared"},
    # The doctor asks a server's health as a monitor does, and bounds its answer as devices do.
    "aggregator/dither_aggregator/health/diagnosis.py": {"dither", "dither_aggregator", "dither_shared"},
    # A webhook's answer is bounded as a server's is to devices.
    "aggregator/dither_aggregator/commands/report.py": {"dither", "dither_aggregator", "dither_shared"},
    # A notebook's client of the API asks as devices do: https, or loopback. Only a frame takes pandas.
    "aggregator/dither_aggregator/notebook.py": {"dither", "dither_aggregator", "dither_shared", "pandas"},
    # The demo compares what the simulated devices know with what the API says.
    "aggregator/dither_aggregator/commands/demo.py": {"dither_aggregator", "dither_shared", "requests"},
}


@dataclass(frozen=True)
class Module:
    """The parts of a module's source that these tests look at."""

    imports: tuple[ast.Import | ast.ImportFrom, ...]
    """Anywhere in it."""
    classes: tuple[str, ...]
    """The names of all."""
    defined: frozenset[str]
    """The names of its own functions and classes."""
    bases: frozenset[str]
    """The classes of installed libraries that its own are subclasses of."""
    private: frozenset[str]
    """The names of others that it uses and that begin with an underscore, and all that it sets in their modules."""

    @classmethod
    def of(cls, source: str) -> "Module":
        tree = ast.parse(source)
        nodes = list(ast.walk(tree))
        return cls(
            tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)),
            tuple(node.name for node in nodes if isinstance(node, ast.ClassDef)),
            frozenset(str(node.name) for node in tree.body if hasattr(node, "name")),
            *_of_others(nodes),
        )


OURS = {"dither", "dither_shared", "dither_aggregator"}


def _of_others(nodes: list[ast.AST]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the bases and private names that are not ours."""
    known: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for each in node.names:
                name = f"{node.module}.{each.name}" if isinstance(node, ast.ImportFrom) else each.name
                first = name.split(".")[0] if isinstance(node, ast.Import) and not each.asname else name
                known |= {name: name, each.asname or first.split(".")[-1]: first}
    known = {name: whole for name, whole in known.items() if whole.split(".")[0] not in OURS}

    def whole(node: ast.AST) -> str:
        if isinstance(node, ast.Name):
            return known.get(node.id, "")
        before = whole(node.value) if isinstance(node, ast.Attribute | ast.Subscript) else ""
        return f"{before}.{node.attr}" if before and isinstance(node, ast.Attribute) else before

    bases = {whole(base) for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases}
    attributes = [(whole(node), node.ctx) for node in nodes if isinstance(node, ast.Attribute)]
    used = {name for name, _ in attributes} | set(known.values())
    private = {
        name for name in used if any(part.startswith("_") for part in name.split(".")) and "__future__" not in name
    }
    changed = {name for name, context in attributes if not isinstance(context, ast.Load)} - {""}
    libraries = {base for base in bases if base and base.split(".")[0] not in sys.stdlib_module_names}
    return frozenset(libraries), frozenset(private | changed)


@cache
def module(path: Path) -> Module:
    """Return a file's module, which several tests look at and one parses."""
    return Module.of(path.read_text(encoding="utf-8"))


def imported(path: Path) -> set[str]:
    """Return the top-level packages that a module imports anywhere, the standard library left out."""
    names: set[str] = set()
    for node in module(path).imports:
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        else:
            assert node.level == 0, f"{path} imports relatively"
            names.add((node.module or "").split(".")[0])
    return names - set(sys.stdlib_module_names)


MODULES = sorted(path for room in ("shared", "client", "aggregator") for path in (ROOT / room).rglob("*.py"))


def test_a_module_imports_only_what_its_room_may() -> None:
    for path in MODULES:
        place = path.relative_to(ROOT).as_posix()
        room = max((room for room in MAY_IMPORT if place.startswith(room)), key=len)
        assert imported(path) <= MAY_IMPORT[room], path


def test_the_check_sees_an_import_that_is_not_allowed(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("def late():\n    import numpy.linalg\n    from flask import Flask\n")
    assert imported(tmp_path / "module.py") == {"numpy", "flask"}


def graph(modules: dict[str, Module]) -> dict[str, set[str]]:
    """Return which of the modules, given by name, each one imports, anywhere."""
    edges: dict[str, set[str]] = {}
    for name, one in modules.items():
        edges[name] = set()
        for node in one.imports:
            if isinstance(node, ast.Import):
                edges[name] |= {alias.name for alias in node.names}
            else:
                submodules = {f"{node.module}.{alias.name}" for alias in node.names} & modules.keys()
                edges[name] |= submodules or {node.module or ""}
        edges[name] = edges[name] & modules.keys() - {name}
    return edges


def circle(modules: dict[str, Module]) -> list[str]:
    """Return modules that import one another in a circle; none where there is no circle."""
    edges = graph(modules)
    while free := [name for name, targets in edges.items() if not targets & edges.keys()]:
        for name in free:
            del edges[name]
    return sorted(edges)


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_modules_import_one_another_in_a_circle() -> None:
    assert circle({name_of(path): module(path) for path in MODULES}) == []


@pytest.mark.parametrize(("late", "found"), [("import d", []), ("import a", ["a", "b.c"])])
def test_the_check_sees_a_circle(late: str, found: list[str]) -> None:
    sources = {"a": "from b import c\n", "b.c": f"def late():\n    {late}\n", "d": "", "b": ""}
    assert circle({name: Module.of(source) for name, source in sources.items()}) == found


def test_no_two_classes_have_one_name() -> None:
    names = Counter(name for path in MODULES if "examples" not in path.parts for name in module(path).classes)
    assert [name for name, number in names.items() if number > 1] == []
    assert {"Plan", "Telemetry", "SQLiteStore"} <= names.keys()


BUILT_ON = {
    "celery.bootsteps.StartStopStep",
    "hatchling.builders.hooks.plugin.interface.BuildHookInterface",
    "hatchling.metadata.plugin.interface.MetadataHookInterface",
    "jinja2.BytecodeCache",
    "lark.visitors.Transformer_NonRecursive",
    "marshmallow.Schema",
    "marshmallow.fields.Date",
    "marshmallow.fields.Decimal",
    "marshmallow.fields.Integer",
    "marshmallow.fields.String",
    "marshmallow.validate.OneOf",
    "msgspec.Struct",
    "prometheus_client.registry.Collector",
    "requests.adapters.HTTPAdapter",
    "urllib3.connection.HTTPConnection",
    "urllib3.connection.HTTPSConnection",
    "webargs.flaskparser.FlaskParser",
}
"""Classes that their libraries hand out to be built on, in the ways that they document."""
DOCUMENTED = {"_thread", "_thread.allocate_lock", "os._exit", "sys._current_frames"}
PRIVATE = {
    "_ctypes.Py_INCREF",
    "billiard.pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT",
    "celery.worker.state.should_stop",
}
"""Names that are not documented, each in one file, which says why; so are those of urllib3 in sending/connection.py."""


def test_we_build_on_what_libraries_hand_out_for_that_and_change_nothing_else_of_theirs() -> None:
    product = [module(path) for path in MODULES if "examples" not in path.parts]
    assert {base for one in product for base in one.bases} == BUILT_ON
    assert Counter(name for one in product for name in one.private - DOCUMENTED) == Counter(PRIVATE)


def test_the_check_sees_what_is_built_on_and_what_is_changed() -> None:
    source = "import a.b\nfrom c import d, _e\nclass F(d.G[int]): pass\na.b.H = 1\nd.i += d._j\nd.k.add(1)\n"
    assert Module.of(source).bases == {"c.d.G"}
    assert Module.of(source).private == {"a.b.H", "c._e", "c.d.i", "c.d._j"}


COMMANDS = sorted(path for path in MODULES if "commands" in path.parts and path.name != "__init__.py")


def test_every_file_among_the_commands_is_one() -> None:
    assert len(COMMANDS) > 10
    for path in COMMANDS:
        assert {"add_arguments", "run"} <= module(path).defined, path


@cache
def loaded(code: str) -> frozenset[str]:
    """Return the modules that a process has loaded after some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env=ENVIRONMENT,
        timeout=60,
    )
    return frozenset(done.stdout.split())


def packages(code: str) -> set[str]:
    """Return the top-level packages among them."""
    return {name.split(".")[0] for name in loaded(code)}


HEAVY = {"celery", "numpy", "redis", "scipy", "flask", "requests", "urllib3", "dither_aggregator", "pytest"}


def test_importing_and_starting_loads_nothing_heavy() -> None:
    start = (
        "import dither; from tests.support.registries import registry\n"
        "t = dither.start(registry(), endpoint='https://example.org', key='k', data_dir=':memory:', consent=True)\n"
        "t.color.record('red'); t.status(); t.close()"
    )
    assert not packages("import dither") & HEAVY
    assert not packages(start) & {*HEAVY, "zipfile"}  # the last comes with a look at what is installed


def test_the_command_line_loads_a_command_on_use() -> None:
    assert not packages("import dither.cli") & HEAVY


def test_what_only_takes_uploads_and_folds_loads_no_estimates() -> None:
    """They start in half the time. Readers load them, and whoever finalizes a day."""
    commands = (f"dither_aggregator.commands.{command}" for command in ("serve", "api", "worker", "beat"))
    assert packages(f"import {', '.join(commands)}") & {"numpy", "scipy"} == {"numpy"}


NOT_AT_A_START = {
    "base64",
    "hashlib",
    "ipaddress",
    "pathlib",
    "random",
    "socket",
    "ssl",
    "struct",
    "tempfile",
    "unicodedata",
    "urllib.parse",
    "dither.cli",
    "dither.delivering",
    "dither.development",
    "dither.device.migrations",
    "dither.terms_sentences",
    "dither_shared.domains.coded_words",
    "dither_shared.domains.columns",
    "dither_shared.domains.number_ranges",
    "dither_shared.safe_output",
    "dither_shared.kinds.number",
    "dither_shared.kinds.precision",
    "dither_shared.kinds.table",
    "dither_shared.kinds.words",
    "dither_shared.mechanisms.parameter_sets",
    "dither_shared.words.code",
}
"""A start with listed values and texts alone does without these. Each took it a hundredth, or more."""
MODULES_MAX = 61
"""Our own modules, with texts: 61 at the time of writing, 56 from a compiled registry."""


def test_a_start_loads_what_its_metrics_need_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").write_text(registry_text(FEW), encoding="utf-8")
    started = loaded(
        f"import dither; dither.start({str(tmp_path / 'metrics.toml')!r}, endpoint='http://127.0.0.1:8080', key='k', "
        f"data_dir={str(tmp_path / 'device')!r}, consent=True)"
    )
    assert started & NOT_AT_A_START == set()
    assert len([name for name in started if name.startswith("dither")]) <= MODULES_MAX


TOML_ALONE = {
    "tomllib",
    "typing",
    "dither_shared.accounting",
    "dither_shared.kinds.text_memo",
    "dither_shared.mechanisms.automatic_choice",
    "dither_shared.mechanisms.window",
    "dither_shared.toml_tables",
}
"""A compiled registry has the results of these: TOML that is read, mechanisms that are chosen, how far memos link.

`typing` comes with `tomllib`.
"""


def test_a_compiled_start_neither_reads_toml_nor_chooses_a_mechanism(tmp_path: Path) -> None:
    directory = tmp_path / "registry"
    directory.mkdir()
    write_registry(FEW, directory)
    started = {}
    for name in ("metrics.toml", "metrics.json"):
        started[name] = loaded(
            f"import dither; t = dither.start({str(directory / name)!r}, endpoint='http://127.0.0.1:8080', key='k', "
            f"data_dir={str(tmp_path / name)!r}, consent=True)\n"
            "t.browser.record('Edge'); t.tools.record(['git']); t.plan.record('free'); t.homepage.record('a')\n"
            "t.close()"
        )
    assert started["metrics.toml"] >= TOML_ALONE
    assert started["metrics.json"] & TOML_ALONE == set()
    assert started["metrics.json"] - started["metrics.toml"] == {"dither_shared.compiled"}


def test_the_figures_of_the_house_are_those_of_what_is_called(tmp_path: Path) -> None:
    """A call through another file is a switch, and back is one more; what is not the product's is not counted."""
    from dither_shared import text_normalization
    from tests import house

    gone = house.Travel().of(lambda: (text_normalization.normal("a"), json.dumps({}), text_normalization.folded("a")))
    assert (gone.files, gone.switches) == ({text_normalization.__file__}, 1)
    for step in ("append", "fold"):
        directory = tmp_path / step
        directory.mkdir()
        gone = house.travel(step, directory)
        assert 1 < len(gone.files) < gone.switches
    assert house.names("from a.b import c\nd.e = f(g=1)") == {"a", "b", "c", "d", "e", "f", "g"}
