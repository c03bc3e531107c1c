"""The pytest plugin in a fresh project, in a pytest of its own."""

import inspect
import subprocess
import sys
import textwrap

import pytest

from dither.testing import FakeAggregator, pytest_plugin
from tests.support import aggregators
from tests.support.registries import registry_text

pytest_plugins = ["pytester"]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project as on a CI machine, whose app sends to an aggregator that is not there."""
    monkeypatch.delenv("DITHER_TELEMETRY")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # it has none of our own
    monkeypatch.setenv("PYTHONPATH", aggregators.ENVIRONMENT["PYTHONPATH"])
    for variable in ("CI", "DO_NOT_TRACK", "DITHER_DRY_RUN"):
        monkeypatch.setenv(variable, "1")
    for variable in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(variable, str(pytester.path / "home"))
    pytester.makeconftest('pytest_plugins = ["dither.testing"]')
    text = registry_text(values=("light", "dark")).replace("[metric.color]", "[metric.theme]")
    (pytester.path / "metrics.toml").write_text(text, encoding="utf-8")
    return pytester


def run(project: pytest.Pytester, passed: int = 0, failed: int = 0, errors: int = 0, fresh: bool = False) -> str:
    """Run the project's tests, in a process of their own if asked; return what pytest said. Warnings are errors."""
    how = project.runpytest_subprocess if fresh else project.runpytest_inprocess
    result = how("-q", "-W", "error", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=passed, failed=failed, errors=errors)
    assert not (project.path / "home").exists()  # nothing was written
    return result.stdout.str()


def example(documented: object) -> str:
    """Return the indented lines of a docstring."""
    lines = (inspect.getdoc(documented) or "").splitlines()
    return textwrap.dedent("\n".join(line for line in lines if line.startswith("    ")))


def test_the_documented_fixtures_run_as_shown(project: pytest.Pytester) -> None:
    shown = [
        example(fixture)
        for fixture in (pytest_plugin.telemetry, pytest_plugin.fake_aggregator, pytest_plugin.dither_consent)
    ]
    project.makepyfile("\n".join(["import pytest", "from dither.testing import Recorded", *shown]))
    run(project, passed=3, fresh=True)


def test_the_documented_aggregator_runs_as_shown_and_without_pytest(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("DO_NOT_TRACK", "DITHER_DRY_RUN"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("DITHER_TELEMETRY", "1")
    within = f"""
{example(FakeAggregator.fail_next)}
telemetry.theme.record("dark")
print(telemetry.flush(30).sent, fake.reports, len(fake.uploads), "pytest" in sys.modules)
telemetry.close()
"""
    program = f"import sys, dither\nfrom dither.testing import FakeAggregator\n{example(FakeAggregator)}"
    result = project.run(sys.executable, "-W", "error", "-c", program + textwrap.indent(within, "    "))
    assert (result.ret, result.outlines) == (0, ["1 {'theme': 1} 4 False"])


APP = """
import dither
SETTINGS = dict(endpoint="https://telemetry.example.org", key="k", consent=True)
"""
APPS = {
    "in_main": "def telemetry(): return dither.start('metrics.toml', **SETTINGS)",
    "by_name": "from dither import start\ndef telemetry(): return start('metrics.toml', **SETTINGS)",
    "on_import": "_started = dither.start('metrics.toml', **SETTINGS)\ndef telemetry(): return _started",
    "once": "import functools\n@functools.cache\ndef telemetry(): return dither.start('metrics.toml', **SETTINGS)",
    "by_handle": "class A: theme = dither.start('metrics.toml', **SETTINGS).theme\ndef telemetry(): return A",
}


def test_apps_that_start_telemetry_in_their_own_way_need_no_change(project: pytest.Pytester) -> None:
    project.makepyfile(
        **{name: f"{APP}{way}\ndef main(theme): telemetry().theme.record(theme)" for name, way in APPS.items()}
    )
    project.makeconftest(
        f"""
        import {", ".join(APPS)}  # before the plugin
        from dither.testing import Recorded

        pytest_plugins = ["dither.testing"]
        """
    )
    project.makepyfile(
        f"""
        import {", ".join(APPS)}
        import dither, pytest
        from dither.testing import Recorded

        APPS = {", ".join(APPS)}

        @pytest.mark.parametrize("app", APPS)
        @pytest.mark.parametrize("theme", ["light", "dark"])
        def test_main(telemetry, app, theme):
            app.main(theme)
            assert telemetry.recorded() == [Recorded("theme", theme)]
            assert telemetry.status().waiting == 1

        @pytest.mark.parametrize("app", APPS)
        def test_afterwards_nothing_is_left(app):
            app.main("dark")
            started = dither.start("metrics.toml", **app.SETTINGS)
            assert type(started) is dither.Telemetry
            assert "is set" in started.status().silent
        """
    )
    run(project, passed=15, fresh=True)


def test_misuse_is_said_in_the_apps_tests(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_value(telemetry):
            telemetry.theme.record("pink")

        def test_metric(telemetry):
            telemetry.colour.record("dark")

        def test_network(telemetry):
            telemetry.theme.record("dark")
            assert telemetry.flush().sent == 1
        """
    )
    said = run(project, failed=3)
    assert "no answer that theme asks for" in said
    assert "the registry has no metric 'colour'; it has theme, dark" in said
    assert "the network is refused in tests: in one that takes fake_aggregator" in said


TRY = "def test_it(telemetry): assert telemetry.theme.metric.name == 'theme'"


def test_a_missing_registry_is_named_with_the_ways_out(project: pytest.Pytester) -> None:
    (project.path / "metrics.toml").rename(project.path / "questions.toml")
    project.makepyfile(TRY)
    said = run(project, errors=1)
    assert "metrics.toml: cannot be read: No such file or directory" in said
    assert f"the ini option dither_registry names, relative to {project.path}" in said
    assert "Traceback" not in said
    assert "plugin.py" not in said


def test_the_ini_option_says_where_the_registry_is_from_any_directory(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = project.mkdir("src")
    (project.path / "metrics.toml").rename(place / "questions.toml")
    project.makeini("[pytest]\ndither_registry = src/questions.toml\n")
    (project.mkdir("tests") / "test_it.py").write_text(TRY, encoding="utf-8")
    monkeypatch.chdir(project.path / "tests")
    run(project, passed=1)


@pytest.mark.parametrize("returned", ["'questions.toml'", "dither.Registry.load('questions.toml')"])
def test_a_projects_own_fixture_says_what_the_registry_is(project: pytest.Pytester, returned: str) -> None:
    (project.path / "metrics.toml").rename(project.path / "questions.toml")
    project.makepyfile(
        f"""
        import dither, pytest

        @pytest.fixture
        def dither_registry():
            return {returned}

        def test_both(telemetry, fake_aggregator):
            telemetry.theme.record("dark")
            assert telemetry.flush().sent == fake_aggregator.reports["theme"]
        """
    )
    run(project, passed=1)


def test_a_test_with_the_fake_alone_uses_the_real_start(project: pytest.Pytester) -> None:
    project.makepyfile(
        app=APP,
        test_it="""
        import dither
        from app import SETTINGS

        def test_delivery(fake_aggregator):
            started = dither.start("metrics.toml", **{**SETTINGS, "key": fake_aggregator.key})
            assert type(started) is dither.Telemetry
            started.theme.record("dark")
            assert started.flush(30) == dither.FlushResult(1, 0, "")
            assert fake_aggregator.reports == {"theme": 1}
            started.close()

        def test_a_file(fake_aggregator, monkeypatch, tmp_path):
            monkeypatch.setenv("DITHER_DATA_DIR", str(tmp_path))
            dither.start("metrics.toml", **SETTINGS).close()
            assert [path.name for path in tmp_path.glob("*/*")] == ["device.sqlite3"]
        """,
    )
    run(project, passed=2)


def test_importing_dither_loads_neither_this_nor_pytest() -> None:
    code = "import dither, sys; print('dither.testing' in sys.modules, 'pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]
