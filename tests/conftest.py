"""For all tests: this is a developer's machine, but not a person's."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from flask import Flask
from jinja2.bccache import Bucket, BytecodeCache

from dither.sending import upload_thread
from dither_aggregator.operations.signal_handling import FORMAT_ENVIRONMENT, LEVEL_ENVIRONMENT
from dither_shared.rng import jitter
from tests.support import chromium
from tests.support.devices import close_all

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.support.browsing import Tab
    from tests.support.firefox import AnyPage, Firefox

HERE = Path(__file__).parent

# Telemetry is silent in tests; these are its own.
os.environ["DITHER_TELEMETRY"] = "1"
for variable in (
    "DO_NOT_TRACK",
    "DITHER_BROKER",
    "DITHER_DATA",
    "DITHER_DATA_DIR",
    "DITHER_DEBUG",
    "DITHER_DRY_RUN",
    "DITHER_ENDPOINT",
):
    os.environ.pop(variable, None)

# argparse would look for a translation's file at each word of each command's help, though none is read.
os.environ["LANGUAGE"] = "C"

# Python keeps compiled modules, even if told not to: hundreds of processes start, and each would compile them again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A core has a process of tests already: BLAS's threads would spin while they wait for each other. Before numpy loads.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

# A shell has a command behind `&` ignore SIGINT, and so does all that it starts. Tests interrupt what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Compiled(BytecodeCache):
    """Templates as one application of this process has compiled them, for all others: each would take as long again."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        assert bucket.code
        self._codes[bucket.key, bucket.checksum] = bucket.code


Flask.jinja_options = {"bytecode_cache": Compiled()}

# A report leaves at a random moment of an hour, here after ten minutes, which no test takes. Else what a test finds
# waiting would have left in one of some hundred thousand cases, and there are dozens. Tests of moments set their own.
WITHIN_S = upload_thread.SEND_WITHIN_S
setattr(upload_thread, "jitter", lambda most_s: max(jitter(most_s), 600.0 if most_s == WITHIN_S else 0.0))  # noqa: B010

# A busy machine may be late with any one example.
hypothesis.settings.register_profile("dither", deadline=None)
hypothesis.settings.load_profile("dither")

# Else much of the time in which tests are collected goes into looking for garbage among what stays.
gc.disable()


def pytest_collection(session: pytest.Session) -> None:
    """Import a share of all tests before the others, where several processes do the same.

    A test file is compiled when it is first imported, with its assertions rewritten, and kept: else each process would
    compile all of them.
    """
    process: dict[str, Any] = getattr(session.config, "workerinput", {})
    if process and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        place, processes = int(process["workerid"].removeprefix("gw")), process["workercount"]
        for path in sorted(HERE.rglob("test_*.py"))[place::processes]:
            with suppress(Exception):  # pytest will say what is wrong with it
                import_module(".".join(path.relative_to(HERE.parent).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Look for garbage again, from now on among what tests make, and less often, since looking takes time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.fixture(autouse=True)
def _leave_nothing() -> Iterator[None]:
    """Close devices, and take back how a command that ran in this process tells its children to log."""
    yield
    close_all()
    for variable in (FORMAT_ENVIRONMENT, LEVEL_ENVIRONMENT):
        os.environ.pop(variable, None)
    logging.getLogger("dither_aggregator").setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def _chromium() -> Iterator[None]:
    yield
    chromium.close()


@pytest.fixture(scope="module")
def browser(_chromium: None) -> "Browser":
    """Give a real Chromium."""
    return chromium.chromium()


@pytest.fixture(scope="module")
def _firefox() -> Iterator["Firefox"]:
    from tests.support.firefox import firefox

    with firefox() as started:
        yield started


@pytest.fixture(params=["chromium", "firefox"])
def page(request: pytest.FixtureRequest, browser: "Browser", _firefox: "Firefox") -> Iterator["AnyPage"]:
    """Give a page of each of two browsers, of a person who has nothing stored."""
    person = browser.new_context() if request.param == "chromium" else _firefox.new_context()
    yield person.new_page()
    person.close()


@pytest.fixture(scope="module")
def tab(browser: "Browser") -> Iterator["Tab"]:
    """Give a tab that tests share: each of them visits a page of its own first."""
    from tests.support.browsing import shared_tab

    shared = shared_tab(browser)
    yield shared
    shared.page.goto("about:blank")  # a server that ends has nobody who asks it


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return two processes more than there are cores: many tests wait, for processes, a browser or a disk."""
    return (os.cpu_count() or 1) + 2


BROWSING = pytest.StashKey[set[Path]]()
"""The files of which a test needs a browser."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files that take long, so that no core has one to itself at the end; browse in a row.

    Files with slow tests take long, and then those that are no room's: they try the whole.
    """
    browsing = {item.path for item in items if "browser" in getattr(item, "fixturenames", ())}
    config.stash[BROWSING] = browsing
    items.sort(
        key=lambda item: (item.get_closest_marker("slow") is None, item.path in browsing, item.path.parent != HERE)
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let a file that needs no browser have none beside it."""
    if item.path not in item.config.stash[BROWSING]:
        chromium.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let nothing be skipped in CI: there, a part that a test needs and does not find is an error."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"nothing is skipped in CI: {reason}"
    return report
