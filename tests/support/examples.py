"""The examples as a person installs them: copied, with a registry of today, pointed to an aggregator of the test."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from dither_aggregator.ingest.service import Service
from dither_shared.registry import utc_today
from tests.support.aggregators import ENVIRONMENT
from tests.support.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "client" / "examples"
NOW = {"quiet_days = 1": "quiet_days = 0", 'presence = "public"': 'presence = "public"\nschedule = "early"'}
"""So that a first day has answers: the shipped registries say nothing then, and on few days of a year."""


def shipped(example: str, directory: Path, changes: dict[str, str] | None = None) -> Path:
    """Copy an example; put what is changed, and a day to come, into its registry."""
    copy = shutil.copytree(EXAMPLES / example, directory / example, ignore=shutil.ignore_patterns("__pycache__"))
    text = (copy / "metrics.toml").read_text(encoding="utf-8")
    text, dates = re.subn(r"expires = \S+", f"expires = {utc_today() + timedelta(days=200)}", text)
    assert dates == text.count("[metric.")
    for before, after in (changes or {}).items():
        assert before in text
        text = text.replace(before, after)
    (copy / "metrics.toml").write_text(text, encoding="utf-8")
    return copy


def point(program: Path, url: str, key: str) -> None:
    """Let a program send to this aggregator."""
    code = program.read_text(encoding="utf-8")
    for before, after in {"https://telemetry.example.org": url, "the key that serve printed": key}.items():
        assert before in code
        code = code.replace(before, after)
    program.write_text(code, encoding="utf-8")


def counted(service: Service) -> dict[str, int]:
    """Return how many reports of each metric the aggregator has accepted."""
    return {row.metric: row.accepted for row in service.store.ledger()}


@contextmanager
def gunicorn(
    program: Path, log: Path, *options: str, workers: int = 4, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a web app under gunicorn, with four workers unless told otherwise; yield the master and its address."""
    # Reports leave within the hour; for a test, within half a second.
    impatient = "import dither.sending.upload_thread\ndither.sending.upload_thread.SEND_WITHIN_S = 0.5\n"
    (program.parent / "conf.py").write_text(impatient, encoding="utf-8")
    arguments = [
        "--workers",
        str(workers),
        "--bind",
        "127.0.0.1:0",
        "--config",
        "conf.py",
        *options,
        f"{program.stem}:app",
    ]
    with log.open("wb") as stderr:
        master = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", *arguments],
            cwd=program.parent,
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            env={**ENVIRONMENT, **environment},
        )
        try:
            wait_until(lambda: log.read_text().count("Booting worker") == workers)
            found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
            assert found
            yield master, found[0]
        finally:
            # Its workers end by themselves when they find that the master has.
            if master.poll() is None:
                master.kill()
            master.wait()


def children(pid: int) -> list[int]:
    """Return the processes that a process has started, where the system tells."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def has_open(pid: int, name: str) -> bool:
    """Tell whether a process has a file of that name open."""
    found = False
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            found |= name in str(descriptor.readlink())
    return found
