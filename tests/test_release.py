"""A release, built and installed as a stranger would: in clean environments, away from the working tree."""

import email
import json
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from functools import cached_property
from importlib.metadata import distributions
from pathlib import Path
from unittest.mock import patch
from urllib.request import urlopen
from zipfile import ZipFile

import pytest

from tests.support.aggregators import ENVIRONMENT
from tests.support.soaking import SOAK, thinned
from tests.support.tools import tool

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PACKAGES = {"dither": "client", "dither_aggregator": "aggregator", "dither_shared": "shared"}
NOT_OF_APPS = re.compile(
    r"dither/(auditing/|attacking/|commands/(audit|attack)\.py$)|dither_aggregator/"
    r"|dither_shared/((kinds/((number|table|words)_)?)?precision|releases|accounting/composition|words/prefixes)\.py$"
    r"|dither_shared/(published/|words/(tables/|README\.md$))"
)
"""The files of the three packages that dither-aggregator brings; dither has the others."""
PROJECTS = {"dither": ".", "dither_aggregator": "aggregator"}
CLEAN = {name: value for name, value in ENVIRONMENT.items() if name not in {"PYTHONPATH", "SOURCE_DATE_EPOCH"}}
"""The environment of a process that is to find nothing of the working tree."""
CORE = {"certifi", "charset-normalizer", "dither", "idna", "requests", "urllib3"}
LICENCES = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "MIT", "MPL-2.0", "PSF-2.0", "Zlib"),
    *("Apache Software License", "BSD License", "Mozilla Public License 2.0 (MPL 2.0)"),  # as classifiers say it
}
"""Licences of packages that one under Apache-2.0 may need."""
OWN_MIB_MAX = 2.1
"""With its bytecode, of the Python that runs this."""
UV = (tool("uv"), "pip", "install", "--quiet")
"""The installer of the working tree; `test_readme.py` installs by pip, as README.md says."""


def run(*command: object, cwd: Path = ROOT, code: int = 0, **environment: str) -> str:
    """Run a command and return all that it printed. Another exit code than `code` fails the test, with its words."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**CLEAN, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == code, f"{command}: exit {done.returncode}\n{done.stdout}"
    return done.stdout


@dataclass(frozen=True)
class Release:
    """A wheel and an sdist of one package that were built of the working tree."""

    directory: Path
    package: str = "dither"

    @property
    def wheel(self) -> Path:
        (path,) = self.directory.glob(f"{self.package}-*.whl")
        return path

    @property
    def sdist(self) -> Path:
        (path,) = self.directory.glob(f"{self.package}-*.tar.gz")
        return path

    def shipped(self) -> set[str]:
        """Return the wheel's files, but for those that are about the wheel."""
        with ZipFile(self.wheel) as wheel:
            return {name for name in wheel.namelist() if ".dist-info/" not in name}

    def metadata(self) -> Message:
        with ZipFile(self.wheel) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            return email.message_from_bytes(wheel.read(name))

    def unpacked(self, directory: Path) -> Path:
        """Unpack the sdist into a directory, and lend it the tools of the working tree."""
        directory.mkdir(parents=True)
        run("tar", "-xf", self.sdist, "-C", directory)  # Python 3.11.0 to 3.11.3 want no filter, later ones want one
        (root,) = directory.iterdir()
        (root / ".venv").symlink_to(ROOT / ".venv")
        return root


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    directory = tmp_path_factory.mktemp("dist")
    run("sh", ".ci/dist", directory, SOURCE_DATE_EPOCH="1800000000")
    return Release(directory)


@pytest.fixture(scope="module")
def both(release: Release) -> tuple[Release, ...]:
    return tuple(Release(release.directory, package) for package in PROJECTS)


@dataclass(frozen=True)
class Installed:
    """A clean environment into which wheels were installed, with a directory to work in."""

    directory: Path

    @classmethod
    def of(cls, releases: Sequence[Release], directory: Path, *installer: object) -> "Installed":
        """Install wheels by the installer of the working tree, so that no environment needs one of its own."""
        venv.create(directory / "venv")
        installed = cls(directory)
        python = str(installed.bin / "python")
        wheels = [release.wheel for release in releases]
        run(*installer, *wheels, cwd=directory, UV_PYTHON=python)
        return installed

    @property
    def bin(self) -> Path:
        return self.directory / "venv" / "bin"

    def python(self, *arguments: str) -> str:
        return run(self.bin / "python", *arguments, cwd=self.directory)

    def dither(self, *arguments: str, code: int = 0) -> str:
        return run(self.bin / "dither", *arguments, cwd=self.directory, code=code)

    def several(self, *commands: Sequence[str]) -> str:
        """Run commands of `dither` in one process; return all that they print, and then a list of their exit codes."""
        run_each = f"[main(words) for words in {commands!r}]"
        return self.python("-c", f"import sys; from dither.cli import main; print({run_each}, file=sys.stderr)")

    @property
    def site(self) -> Path:
        (site,) = self.directory.glob("venv/lib/python*/site-packages")
        return site

    @cached_property
    def packages(self) -> set[str]:
        return {package.name.lower() for package in distributions(path=[str(self.site)])}


@pytest.fixture(scope="module")
def core(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed.of([release], tmp_path_factory.mktemp("core"), *UV, "--compile-bytecode")


@pytest.fixture(scope="module")
def whole(both: tuple[Release, ...], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed.of(both, tmp_path_factory.mktemp("whole"), *UV)


def test_each_file_of_the_packages_is_in_one_wheel_and_no_other_file_in_any(both: tuple[Release, ...]) -> None:
    app, aggregator = (each.shipped() for each in both)
    there = {
        path.relative_to(ROOT / room).as_posix()
        for package, room in PACKAGES.items()
        for path in (ROOT / room / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert app == {name for name in there if not NOT_OF_APPS.match(name)}
    assert aggregator == there - app
    assert {f"{package}/py.typed" for package in PACKAGES} <= app | aggregator
    assert {"dither_aggregator/web/templates/base.html", "dither/attacking/example.toml"} <= aggregator
    assert {"dither_shared/words/letters.bin", "dither/testing/pytest_plugin.py"} <= app


def test_the_licences_of_what_is_shipped_go_with_it(both: tuple[Release, ...]) -> None:
    licence = (ROOT / "LICENSE").read_bytes()
    expressions = ("Apache-2.0", "Apache-2.0 AND CC-BY-4.0 AND CC0-1.0 AND MIT AND MPL-2.0 AND Unicode-3.0")
    for each, expression in zip(both, expressions, strict=True):
        with ZipFile(each.wheel) as wheel:
            texts = {name.rpartition("/")[2]: wheel.read(name) for name in wheel.namelist() if "/licenses/" in name}
        named = re.findall(r"^(?:shared/)?(\w\S+/data/\S+|\w\S+\.bin)$", texts["NOTICE"].decode(), re.MULTILINE)
        assert set(named) == {name for name in each.shipped() if name.endswith((".csv", ".csv.gz", ".bin"))}
        assert texts["LICENSE"] == licence
        assert each.metadata()["License-Expression"] == expression
        assert ("UNICODE LICENSE V3\n" in texts["NOTICE"].decode()) == ("Unicode-3.0" in expression)
        assert ("LICENSE.MPL-2.0" in texts) == ("MPL-2.0" in expression)


def test_the_aggregators_package_needs_dither_of_its_own_version(both: tuple[Release, ...]) -> None:
    _, aggregator = both
    assert [each.metadata()["Version"] for each in both] == [version()] * 2
    assert f"dither=={version()}" in aggregator.metadata().get_all("Requires-Dist", [])


def test_the_sdist_has_the_files_of_the_repository_and_no_other(release: Release, tmp_path: Path) -> None:
    repository = ROOT / ".git"
    if not repository.exists():  # an unpacked source archive: an empty repository tells what is ignored
        run("git", "init", "--quiet", str(tmp_path))
        repository = tmp_path / ".git"
    git = ("git", "--git-dir", str(repository), "--work-tree", str(ROOT))
    listed = run(*git, "ls-files", "--cached", "--others", "--exclude-standard").split()
    tracked = {name for name in listed if (ROOT / name).is_file()}  # .venv may be a link
    with tarfile.open(release.sdist) as sdist:
        shipped = {name.partition("/")[2] for name in sdist.getnames()}
    assert shipped - tracked <= {"PKG-INFO"}
    assert tracked - shipped <= {".editorconfig"}


def test_the_aggregators_sdist_has_what_its_wheel_is_built_of_and_no_other_file(both: tuple[Release, ...]) -> None:
    _, aggregator = both
    with tarfile.open(aggregator.sdist) as sdist:
        files = {name.partition("/")[2].removeprefix("client/").removeprefix("shared/") for name in sdist.getnames()}
    builds = {".gitignore", "LICENSE", "LICENSE.MPL-2.0", "NOTICE", "PKG-INFO", "hatch_build.py", "pyproject.toml"}
    assert files == aggregator.shipped() | builds


if SOAK:

    def test_an_unpacked_sdist_is_tested(release: Release, tmp_path: Path) -> None:
        fast = (sys.executable, "-m", "pytest", "-q", "tests/shared/test_frozen.py")
        tested = run(*fast, cwd=release.unpacked(tmp_path / "unpacked"))
        assert re.search(r"^\d+ passed", tested, re.MULTILINE)


@pytest.mark.parametrize("package", thinned([*PROJECTS], 1))
def test_an_unpacked_sdist_is_built_to_the_same_bytes(release: Release, package: str, tmp_path: Path) -> None:
    first, again = Release(release.directory, package), Release(tmp_path / "again", package)
    root = first.unpacked(tmp_path / "unpacked")
    # Not by .ci/dist, which would look at the same bytes again.
    build = (".venv/bin/python", "-m", "build", "--installer", "uv", "--outdir", again.directory, ".")
    run(*build, cwd=root, SOURCE_DATE_EPOCH="1800000000")
    assert again.wheel.read_bytes() == first.wheel.read_bytes()
    assert again.sdist.read_bytes() == first.sdist.read_bytes()


def test_an_index_can_show_the_readme(release: Release) -> None:
    from readme_renderer import markdown

    metadata = release.metadata()
    readme = str(metadata.get_payload())
    html = markdown.render(readme)
    assert html is not None
    assert "<img" not in html
    links = set(re.findall(r'(?:href|src)="([^"]*)"', html))
    assert {link for link in links if not link.startswith(("https://", "#user-content-"))} == set()  # or a heading
    assert "](" not in readme
    assert "on a package index yet" not in readme
    assert "pip install dither" in readme.replace("`", "")
    named = set(re.findall(r"`([\w./-]+\.md)`", readme))
    assert {"CHANGELOG.md", "client/tutorial.md", "shared/guarantees.md"} <= named
    with tarfile.open(release.sdist) as sdist:
        assert named <= {name.partition("/")[2] for name in sdist.getnames()}
    assert {"<table>", '<h2 id="user-content-install">'} <= set(re.findall(r"<table>|<h2 [^>]*>", html))


def test_classifiers_are_of_the_pythons_that_are_supported(both: tuple[Release, ...]) -> None:
    release, aggregator = both
    classifiers = release.metadata().get_all("Classifier", [])
    assert aggregator.metadata().get_all("Classifier") == classifiers
    assert aggregator.metadata()["Requires-Python"] == release.metadata()["Requires-Python"]
    classified = set(re.findall(r":: (3\.\d+)$", "\n".join(classifiers), re.MULTILINE))
    page = (ROOT / "shared" / "stability.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| (3\.\d+) \|", page, re.MULTILINE)) == classified
    assert min(classified, key=lambda version: int(version[2:])) == release.metadata()["Requires-Python"].strip(">=")


def test_the_core_brings_requests_and_what_that_needs(core: Installed) -> None:
    assert core.packages == CORE
    place = core.python("-c", "import dither, dither_shared; print(dither.__file__, dither_shared.__file__)")
    assert all(path.startswith(str(core.bin.parent)) for path in place.split())


def test_what_an_app_ships_is_small(core: Installed) -> None:
    """Its two packages. Beside them pip writes its own records and README, 55 KB, which no app has that is frozen."""
    packages = (core.site / "dither", core.site / "dither_shared")
    files = [file for place in packages for file in place.rglob("*") if file.is_file()]
    assert sum(file.suffix == ".pyc" for file in files) == sum(file.suffix == ".py" for file in files) > 50
    assert sum(file.stat().st_size for file in files) / 2**20 <= OWN_MIB_MAX


def test_the_core_has_the_commands_of_an_app_developer(core: Installed) -> None:
    assert core.dither("--version").strip() == f"dither {version()}"
    new = ("metrics", "new", "metrics.toml", "--app", "notes", "--metric", "theme=choice", "--metric", "dark=flag")
    actions = (("check",), ("compile", "--out", "metrics.json"), ("diff", "metrics.toml"))
    others = (("metrics", action, "metrics.toml", *more) for action, *more in actions)
    pages = [("metrics", action, "metrics.toml") for action in ("docs", "types")]
    assert core.several(new, *others, *pages).endswith("[0, 0, 0, 0, 0, 0]\n")


def test_the_core_reads_past_what_is_published(core: Installed) -> None:
    core.dither("metrics", "new", "published.toml", "--app", "notes", "--metric", "dark=flag")
    file = core.directory / "published.toml"
    asked = file.read_text(encoding="utf-8").replace("[registry]", "[registry]\npublish_epsilon_year = 13", 1)
    published = '[metric.dark]\npublish = "month"\npublish_epsilon = 1\nwhy = "We decide what to keep."'
    file.write_text(asked.replace("[metric.dark]", published, 1), encoding="utf-8")
    core.dither("metrics", "check", "published.toml")


def test_no_command_of_the_core_ends_in_a_traceback(core: Installed) -> None:
    codes = core.python(
        "-c",
        "import sys\n"
        "from dither.cli import COMMANDS, main\n"
        "for name in COMMANDS:\n"
        "    try: print(name, main([name, '--help']), file=sys.stderr)\n"
        "    except SystemExit as end: print(name, end.code, file=sys.stderr)\n",
    )
    ends = dict(re.findall(r"^(\w+) (\d)$", codes, re.MULTILINE))
    assert {name for name, code in ends.items() if code == "0"} == {"metrics", "device"}
    assert set(ends.values()) <= {"0", "2"}
    assert codes.count("\ndither: this comes with the aggregator: pip install dither-aggregator\n") == len(ends) - 2 > 0


def test_planning_names_the_package_that_it_comes_with(core: Installed, whole: Installed, tmp_path: Path) -> None:
    path, installs = str(tmp_path / "asked.toml"), ("--installs", "5000", "--on", "50")
    new = ("metrics", "new", path, "--app", "notes", "--metric", "dark=flag")
    asked = (("privacy", path, "--scenario", "year"), ("privacy", path, *installs))
    check = ("metrics", "check", path, *installs)
    said = core.several(new, *asked) + core.dither(*check, code=2)  # stderr goes with the rest
    assert said.count("this comes with the aggregator: pip install dither-aggregator\n") == 3
    assert "[0, 2, 2]\n" in said
    precise = f"""
import dither
from dither_shared.errors import ConfigurationError
try:
    dither.Registry.load({path!r}).metrics["dark"].noise_variance
except ConfigurationError as error:
    print(error)
"""
    assert core.python("-c", precise) == "install dither-aggregator, which knows how precise it is\n"
    # And what else is the aggregator's: an audit, which errs once in a million times, and an attack on its own example.
    audit = ("audit", path, "--reports", "2000", "--devices", "50", "--json")
    said = whole.several(*asked, check, audit, ("attack", "--only", "plain", "--devices", "5", "--days", "8"))
    assert said.count("dark") >= 3
    assert json.loads(next(line for line in said.splitlines() if line.startswith("{")))["holds"] is True
    assert "plain" in said
    assert said.endswith("[0, 0, 0, 0, 0]\n")


if SOAK:

    def test_an_app_is_typed_by_what_is_installed(core: Installed) -> None:
        app = core.directory / "app.py"
        app.write_text(
            "import dither\n"
            'telemetry = dither.start("metrics.toml", endpoint="http://127.0.0.1:1", key="k", data_dir=":memory:")\n'
            "reveal_type(telemetry)\n",
            encoding="utf-8",
        )
        python = core.bin / "python"
        said = run(sys.executable, "-m", "mypy", "--strict", "--python-executable", python, app, cwd=core.directory)
        assert re.search(r'Revealed type is "dither\.\S*Telemetry"', said)


def test_the_aggregator_counts_the_demo_and_serves_its_pages(whole: Installed) -> None:
    command = [str(whole.bin / "dither"), "demo", "--devices", "20", "--serve", "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=whole.directory, env=CLEAN, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout
            assert process.stderr
            shown = json.loads(process.stdout.readline())
            url = next(found[1] for line in process.stderr if (found := re.search(r"still serving (\S+) until", line)))
            with urlopen(url, timeout=30) as page:
                html = page.read().decode()
            (style,) = re.findall(r'href="(/\S+\.css[^"]*)"', html)
            with urlopen(url + style, timeout=30) as sheet:
                assert sheet.headers["Content-Type"].startswith("text/css")
        finally:
            process.send_signal(signal.SIGINT)  # it removes its store
    assert shown["ledger"]["accepted"] == shown["ledger"]["folded"] > 0
    assert "browser" in html


def test_the_bills_of_materials_list_what_is_installed_with_licences_that_fit(
    both: tuple[Release, ...], core: Installed, whole: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rfc3987_syntax", None)  # the grammar of addresses: it takes seconds to import
    for each in both:
        shutil.copy(each.wheel, tmp_path)
    run("sh", ".ci/sbom", tmp_path, *(() if SOAK else ("--no-validate",)))
    for name, installed in (("dither", core), ("dither-aggregator", whole)):
        text = (tmp_path / f"sbom-{name}.cdx.json").read_text(encoding="utf-8")
        assert str(tmp_path) not in text
        assert invalid(text) is None
        assert invalid(text.replace('"library"', '"nothing"'))
        bill = json.loads(text)
        assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", version())
        assert {part["name"].lower() for part in bill["components"]} == installed.packages - {name}
        for part in bill["components"]:
            assert licences(part), part["name"]
            assert licences(part) <= LICENCES, part["name"]


def invalid(bill: str) -> object:
    """Return what is wrong with a bill by CycloneDX's schema; but for the form of addresses, which a soak looks at.

    cyclonedx-py looks at that, too, by a grammar that takes longer than all else.
    """
    # They take a second to import, which processes that run other files would wait for.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    from jsonschema import Draft7Validator

    with patch.dict(Draft7Validator.FORMAT_CHECKER.checkers):
        Draft7Validator.FORMAT_CHECKER.checkers.pop("iri-reference", None)
        return JsonStrictValidator(SchemaVersion.from_version(json.loads(bill)["specVersion"])).validate_str(bill)


def licences(part: dict[str, list[dict[str, dict[str, str]]]]) -> set[str]:
    """Return every licence that a component's metadata names, whether as an expression, an id or a classifier."""
    named: set[str] = set()
    for entry in part.get("licenses", []):
        one = entry.get("license", {})
        expression = str(entry.get("expression", "")).replace("(", "").replace(")", "")
        said = expression or one.get("id") or one["name"].rpartition(" :: ")[2]
        named |= set(re.split(r" (?:AND|OR) ", said))
    return named


def version() -> str:
    project: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["version"]
