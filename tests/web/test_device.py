"""The web SDK's device in Node: its own tests, which are Node's; its types; and its sizes, as its page has them."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.node import COMPILED, NODE, ROOT

ROOM = ROOT / "client" / "web"
TESTS = sorted((ROOM / "test").glob("*.test.ts"))


def node(*arguments: object) -> str:
    """Run Node in the room of the web SDK; return what it prints."""
    command = [str(NODE), *map(str, arguments)]
    ended = subprocess.run(
        command, cwd=ROOM, env={**os.environ, **COMPILED}, capture_output=True, text=True, timeout=280, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_device_keeps_its_rules() -> None:
    """All files in one process: a start of Node for each, and one beside it, takes a third of the time."""
    said = node("--test", "--test-isolation=none", "--test-reporter=tap", *TESTS)
    (passed,), (failed,) = (re.findall(rf"^# {what} (\d+)$", said, re.MULTILINE) for what in ("pass", "fail"))
    assert int(passed) > 100
    assert (failed, "# skipped 0" in said) == ("0", True)


def test_a_test_of_the_device_that_fails_is_seen(tmp_path: Path) -> None:
    spoiled = tmp_path / "spoiled.test.ts"
    spoiled.write_text('import test from "node:test"; test("it fails", () => { throw new Error("spoiled"); });\n')
    with pytest.raises(AssertionError, match="spoiled"):
        node("--test", spoiled)


def test_its_types_are_sound() -> None:
    node("node_modules/typescript/bin/tsc")


def test_its_page_has_the_sizes_that_are_measured() -> None:
    rows = {
        row
        for row in (ROOM / "README.md").read_text().splitlines()
        if re.match(r"\| (flag and|the same|all kinds)", row)
    }
    printed = re.findall(
        r"(flag and choice|the same, and status\(\)|all kinds) +\d+ +(\d+) +(\d+)", node("build.ts", "--sizes")
    )
    assert rows == {f"| {what} | {int(minified):,} | {int(gzip):,} |" for what, minified, gzip in printed}
    assert len(rows) == 3
