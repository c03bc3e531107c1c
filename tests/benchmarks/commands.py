"""The example of a command line app beside itself without dither: what telemetry adds to each run of a day.

The quiet day is over, the person agreed, and the server is up, refuses connections, or takes them and never answers.
Each run with dither stands beside one without in the same turn, so that a slow machine is slow for both.
"""

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from tests.benchmarks.programs import Sdk, deaf, up

EXAMPLE = Path(__file__).parents[2] / "client" / "examples" / "cli_app"
RUNS = 24
"""The runs of a day."""
WORST_MAX_S = 0.25
WITHOUT = {
    "import dither\n": "",
    "    telemetry = dither.start(METRICS, endpoint=ENDPOINT, key=KEY)\n": "",
    "def deliver(telemetry: dither.Telemetry)": "def deliver(telemetry: object)",
    "def settle_consent(telemetry: dither.Telemetry, choice": "def settle_consent(telemetry: object, choice",
    "        settle_consent(telemetry, args.telemetry)\n": "",
    "        telemetry.command.record(args.command)\n": "",
    "        telemetry.notes.record(size(count))\n": "        size(count)\n",
    "        deliver(telemetry)\n": "",
    "        telemetry.close()\n": "        pass\n",
}
"""Replacements that take dither out of the program."""


def day(sdk: Sdk, server: str, scratch: Path) -> list[float]:
    """Return by how many seconds each run of a day was longer with dither, in order."""
    directory = shutil.copytree(EXAMPLE, scratch / server)
    _speak_today(directory / "metrics.toml")
    text = (directory / "notes.py").read_text("utf-8")
    bare = text
    for line, instead in WITHOUT.items():
        assert line in bare, f"the example has no {line!r}"
        bare = bare.replace(line, instead)
    (directory / "bare.py").write_text(bare, "utf-8")
    with _serving(sdk, server) as endpoint:
        (directory / "notes.py").write_text(text.replace("https://telemetry.example.org", endpoint), "utf-8")
        _run(sdk, directory / "bare.py", "list")  # from now on the disk has been read
        _run(sdk, directory / "notes.py", "--telemetry", "off")
        longer_s = []
        for turn in range(RUNS):
            agrees = [] if turn else ["--telemetry", "on"]
            with_s = _run(sdk, directory / "notes.py", *agrees, "list")
            longer_s.append(with_s - _run(sdk, directory / "bare.py", "list"))
            time.sleep(0.2)  # what delivers meanwhile must not slow the next turn
    return longer_s


@contextmanager
def _serving(sdk: Sdk, server: str) -> Iterator[str]:
    """Yield the address of a server that is up, closed or hung."""
    if server == "up":
        with up(sdk) as (endpoint, _):
            yield endpoint
    else:
        with deaf(listens=server == "hung") as endpoint:
            yield endpoint


def _speak_today(registry: Path) -> None:
    text = registry.read_text("utf-8").replace("quiet_days = 1", "quiet_days = 0")
    text = text.replace('presence = "public"', 'presence = "public"\nschedule = "early"')
    registry.write_text(
        re.sub(r"expires = \S+", f"expires = {datetime.now(UTC).date() + timedelta(days=200)}", text), "utf-8"
    )


def _run(sdk: Sdk, program: Path, *arguments: str) -> float:
    """Run a program to its end; return the seconds that took."""
    environment = {"HOME": str(program.parent), "DITHER_TELEMETRY": "1", "PATH": "/usr/bin:/bin"}
    began = time.perf_counter()
    subprocess.run(
        [sdk.python, program, *arguments],
        check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment, timeout=60,
    )  # fmt: skip
    return time.perf_counter() - began


def print_table(sdk: Sdk, scratch: Path) -> None:
    """Print what a run of the command line example takes longer with dither."""
    print(f"\n  the command line example with dither, beside it without: seconds more, of {RUNS} runs of a day")
    print(f"    {'server':10}{'median':>8}{'worst':>8}   worst at most {WORST_MAX_S}")
    for server in ("up", "closed", "hung"):
        longer_s = day(sdk, server, scratch)
        verdict = "" if max(longer_s) <= WORST_MAX_S else "missed (not asserted)"
        print(f"    {server:10}{median(longer_s):8.2f}{max(longer_s):8.2f}   {verdict}".rstrip())
