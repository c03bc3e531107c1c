"""The tutorial, run from its first line to its last: its files written, its commands called, its outputs compared."""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.aggregators import ENVIRONMENT
from tests.support.ports import free_port
from tests.support.soaking import SOAK, scaled
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[1] / "client" / "tutorial.md"
SILENT = {"DITHER_TELEMETRY", "XDG_DATA_HOME", *(name for name in os.environ if name.startswith(("CI", "PYTEST")))}
"""Variables that would tell the page's programs that nobody is there, or where else a device's file is."""
WITHIN_S = 120
DEVICES = scaled(250, 1_000)
FEWER = (
    {}
    if SOAK
    else {
        '600 * ["light"] + 300 * ["dark"] + 100 *': '150 * ["light"] + 75 * ["dark"] + 25 *',
        "1000 reports": f"{DEVICES} reports",
        "1001 reports": f"{DEVICES + 1} reports",
        "1,001": f"{DEVICES + 1:,}",
    }
)
"""A fourth of the page's devices, and what is printed of them."""


@dataclass
class Reader:
    """Somebody who does what the page says, in an empty directory, with a home of their own."""

    directory: Path
    stack: ExitStack
    port: int
    output: str = ""
    """The last command's output."""
    key: str = ""
    ran: list[str] = field(default_factory=list)

    def read(self, language: str, text: str) -> None:
        text = text.replace("8080", str(self.port)).replace("the key that serve printed", self.key)
        for shown, fewer in FEWER.items():
            text = text.replace(shown, fewer)
        if language == "sh":
            self.run(text.strip())
        elif language == "python":
            (name,) = re.findall(r"^# (\w+\.py)\n", text)
            (self.directory / name).write_text(text, encoding="utf-8")
        elif language == "toml":
            self.edit(text)
        else:
            assert language.startswith("text"), language
            compare(self.output, text, numbers_vary="numbers vary" in language)

    def run(self, command: str) -> None:
        assert "\n" not in command, "a command has a block of its own"
        self.ran.append(command)
        if command.startswith("dither serve"):
            self.output = self.stack.enter_context(self.serving(command))
            (self.key,) = re.findall(r"key for devices: (\S+)", self.output)
            return
        if command == "python estimates.py":
            self.wait_until_counted()
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            env=self.environment,
            input="y\n",
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), command
        self.output = done.stdout.replace("[y/N] ", "[y/N] y\n")  # as a terminal shows what is typed

    @contextmanager
    def serving(self, command: str) -> Iterator[str]:
        """Run the aggregator until the context ends; yield what it printed before it serves."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout
            printed = ""
            while "Ctrl-C stops it" not in printed:
                line = process.stdout.readline()
                assert line, printed
                printed += line
            yield printed
        finally:
            process.terminate()
            process.communicate(timeout=WITHIN_S)

    def edit(self, lines: str) -> None:
        """Put lines of a registry in place of those of the same keys."""
        path = self.directory / "metrics.toml"
        text = path.read_text(encoding="utf-8")
        for line in lines.splitlines():
            text, count = re.subn(rf"^{line.split()[0]} = .*$", line, text, flags=re.MULTILINE)
            assert count == 1, line
        path.write_text(text, encoding="utf-8")

    def wait_until_counted(self) -> None:
        """Wait as a reader does before they run the next command: reports are counted within a second."""
        wait_until(lambda: self.reading()["meta"]["n"] == DEVICES + 1, WITHIN_S)

    def reading(self) -> dict[str, dict[str, int]]:
        url = f"http://127.0.0.1:{self.port}/v1/metrics/theme/estimates?window=today"
        with urlopen(url, timeout=WITHIN_S) as answer:
            document: dict[str, dict[str, int]] = json.load(answer)
        return document

    @property
    def environment(self) -> dict[str, str]:
        bin_ = self.directory.parent / "bin"
        usual = {name: value for name, value in ENVIRONMENT.items() if name not in SILENT}
        return {**usual, "HOME": str(self.directory.parent / "home"), "PATH": f"{bin_}:{os.environ['PATH']}"}


def compare(printed: str, shown: str, numbers_vary: bool = False) -> None:
    """Assert that what was printed is what the page shows. "..." stands for the rest of a line, or for lines."""
    number = r" *-?\d+\.\d%" if numbers_vary else r"(?!)"
    lines = [line.rstrip() for line in printed.strip().splitlines()]
    assert _follow(lines, [_pattern(line.rstrip(), number) for line in shown.strip().splitlines()]), printed


def _pattern(line: str, number: str) -> str:
    """Return the pattern of a line of the page; "" where it stands for any lines."""
    if line == "...":
        return ""
    words = {"...": ".*"}
    parts = re.split(rf"({number}|\.\.\.)", line)
    fixed, varying = map(re.escape, parts[::2]), [words.get(part, number) for part in parts[1::2]]
    return "".join(part + more for part, more in zip(fixed, [*varying, ""], strict=True))


def _follow(lines: list[str], patterns: list[str]) -> bool:
    if not patterns:
        return not lines
    if not patterns[0]:
        return any(_follow(lines[start:], patterns[1:]) for start in range(len(lines) + 1))
    return bool(lines) and bool(re.fullmatch(patterns[0], lines[0])) and _follow(lines[1:], patterns[1:])


def desk(directory: Path) -> Path:
    """Return an empty directory of a reader, who has a home and finds `python` and `dither` in PATH."""
    for name in ("bin", "home", "empty"):
        (directory / name).mkdir()
    for name, module in (("python", ""), ("dither", " -m dither.cli")):
        wrapper = directory / "bin" / name
        wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}"{module} "$@"\n', encoding="utf-8")
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    return directory / "empty"


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """Return the blocks of a page, each with its language."""
    return re.findall(r"```([^\n]*)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_the_tutorial_runs_from_its_first_line_to_its_last(tmp_path: Path) -> None:
    empty, blocks = desk(tmp_path), blocks_of(PAGE)
    assert len(blocks) >= 20
    with ExitStack() as stack:
        reader = Reader(empty, stack, free_port())
        for language, text in blocks:
            reader.read(language, text)
            if "python estimates.py" in text:
                estimates = dict(re.findall(r"^(.+?) +(-?[\d.]+)% ", reader.output, re.MULTILINE))
        assert reader.ran[-1] == "dither ledger --data ./data"
    # The standard error of a share is 4.9 % at most, of a fourth of the devices 9.8 %. One of the four is 5.2 of them
    # off in one run of 10^7, by the exact law.
    truth = {"light": 60.0, "dark": 30.1, "high contrast": 10.0, "other": 0.0}
    assert {value: float(share) for value, share in estimates.items()} == pytest.approx(
        truth, abs=5.2 * 4.9 * (1_000 / DEVICES) ** 0.5
    )


def test_the_comparison_sees_another_output() -> None:
    compare("a\nb\nc 12\n", "a\n...\nc ...\n")
    compare("x  -1.5%  2.0%\n", "x 62.0% 1.0%", numbers_vary=True)
    for printed, shown in (("a\nb\n", "a"), ("a\n", "a\nb"), ("a 1", "a 2"), ("b\nd", "a\n...\nd")):
        with pytest.raises(AssertionError):
            compare(printed, shown)
