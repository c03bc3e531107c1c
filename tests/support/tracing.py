"""strace for the tests: what a process wrote, synced and sent, in order; and a disk that takes its time.

The tracer is no parent of what it traces, so that this has the process id, the signals and the end that it would have.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

CALLS = ("write", "writev", "pwrite64", "pwritev", "fsync", "fdatasync", "sendto", "sendmsg")
SYNCS = {"fsync", "fdatasync"}

_LINE = re.compile(
    r"(?P<tid>\d+) +(?P<time>\d+\.\d+) "
    r"(?:<\.\.\. (?P<resumed>\w+) resumed>|(?P<name>\w+)\(\d+<(?P<file>[^>]*)>)(?P<rest>.*)"
)


class Call(NamedTuple):
    """A call that has ended well. `file` is a path, or what kind of socket or pipe it is; `data` its beginning."""

    tid: int
    time_s: float
    name: str
    file: str
    data: str


def strace() -> str:
    """Return the path of strace. A test that needs it fails without it, and where tracing is not permitted."""
    path = os.environ.get("STRACE") or shutil.which("strace")
    assert path, "the tests trace system calls: apt-get install strace, or set STRACE to the path of one"
    tried = subprocess.run([path, "-e", "trace=none", "true"], capture_output=True, text=True, check=False, timeout=60)
    assert tried.returncode == 0, (
        f"the tests trace system calls, and strace may not: {tried.stderr.strip()}; in a container allow it with "
        "--cap-add SYS_PTRACE"
    )
    return path


def tracing(output: Path, calls: Sequence[str] = CALLS) -> list[str]:
    """Return what to put before a command, so that its calls are written into a file."""
    names = ",".join(calls)
    return [strace(), "-D", "-f", "--seccomp-bpf", "-q", "-ttt", "-yy", "-s", "64", "-e", f"trace={names}",
            "-e", "signal=none", "-o", str(output)]  # fmt: skip


def slow_syncs(output: Path, seconds: float) -> list[str]:
    """Return what to put before a command, so that each of its syncs takes longer."""
    delay = f"inject=fsync,fdatasync:delay_exit={seconds * 1_000_000:.0f}"
    return [strace(), "-D", "-f", "--seccomp-bpf", "-q", "-e", "trace=fsync,fdatasync", "-e", delay,
            "-o", str(output)]  # fmt: skip


def wrapper(directory: Path, before: Sequence[str], command: str) -> Path:
    """Write a script that runs a command behind another one."""
    path = directory / "wrapper"
    path.write_text(f'#!/bin/sh\nexec {shlex.join([*before, command])} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def calls(output: Path) -> Iterator[Call]:
    """Yield the calls of a trace, each where it ended."""
    begun: dict[int, Call] = {}
    for line in output.read_text(errors="replace").splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        tid, time_s, rest = int(found["tid"]), float(found["time"]), found["rest"]
        if found["resumed"]:
            call = begun.pop(tid, None)
            if call is None or call.name != found["resumed"]:
                continue
        else:
            call = Call(tid, time_s, found["name"], found["file"].removesuffix(" (deleted)"), rest)
        if rest.endswith("<unfinished ...>"):
            begun[tid] = call
        elif re.search(r"= \d+", rest):
            yield call._replace(time_s=time_s)
