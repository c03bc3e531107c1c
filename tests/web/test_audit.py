"""`dither audit --adapter` runs on the web SDK: it tells the exact law of the TypeScript, and samples what it does."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dither.cli import main
from dither_shared.rng import Rng
from tests.support.node import DEVICE, NOTHING, Device
from tests.support.soaking import thinned
from tests.web.test_laws import ASKED, PLANTED, planted

FEW = ("--reports", "1000", "--processes", "1")
started: list[Device] = []


class WebSDK:
    """A metric of the web SDK, in a process of Node for each process that audits."""

    exact = True
    epsilon = "2.0"
    script = DEVICE
    asked: ClassVar[str]
    inputs: ClassVar[tuple[str, ...]]
    """Expressions of JavaScript."""

    def __init__(self) -> None:
        self._by = -1

    def randomize(self, value: str, rng: Rng) -> Any:
        """Return a report as on the wire. All coins and integers are asked of `rng`."""
        if self._by != os.getpid():
            started.append(Device(self.script))
            self._by, self._metric = os.getpid(), started[-1].metric(ASKED[self.asked].plan)
        return started[-1].call("report", rng, metric=self._metric, cell=0, answer=value, secret="")


class Theme(WebSDK):
    asked = "choice"
    inputs = ("'a'", "'b'", "'unlisted'", "null", "({get a() { throw 1 }})")


class Length(WebSDK):
    asked = "hidden number"
    inputs = ("0", "0.3", "9", "'5'", NOTHING)


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    while started:
        started.pop().close()


def audited(capsys: pytest.CaptureFixture[str], adapter: type[WebSDK]) -> tuple[int, str]:
    code = main(["audit", "--adapter", f"{__name__}:{adapter.__name__}", *FEW])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("adapter", thinned([Theme, Length], 1))
def test_an_audit_tells_the_exact_law_of_the_web_sdk(capsys: pytest.CaptureFixture[str], adapter: type[WebSDK]) -> None:
    code, table = audited(capsys, adapter)
    assert (code, bool(re.search(r"outcome +2 +2 +1\.\d+ .* holds", table))) == (0, True), table


def test_an_audit_finds_a_planted_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Theme, "script", planted(tmp_path, *PLANTED["a subset too light"]))
    code, table = audited(capsys, Theme)
    assert (code, "holds" in table) == (1, False), table
