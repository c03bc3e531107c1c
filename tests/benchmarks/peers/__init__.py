"""Other libraries, each in a pinned environment of its own: `ask("pure_ldp", questions)`, `environment("sentry")`."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PEERS = ("pure_ldp", "multi_freq_ldpy", "mbi")
AUDITED = ("pure_ldp", "multi_freq_ldpy", "opendp")
SDKS = ("sentry", "posthog", "opentelemetry", "glean")
HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CACHE = Path(tempfile.gettempdir()) / "dither-peers"
VENV_TIMEOUT_S = 120.0
PIP_TIMEOUT_S = 900.0
ANSWER_TIMEOUT_S = 900.0
LAST_LINES = 5
LINE_LENGTH = 300  # pip lists every version there is


class PeerUnavailable(RuntimeError):
    """A peer whose environment cannot be made, or whose script did not answer."""


def ask(peer: str, questions: list[dict[str, Any]], timeout_s: float = ANSWER_TIMEOUT_S) -> list[dict[str, Any]]:
    """Return the peer's answers, one for each question, in order.

    The first call installs the peer. Questions and answers are described at the top of the peer's script; a mechanism
    that the peer lacks or breaks at answers `{"error": why}`. Raises PeerUnavailable if there are no answers at all.
    """
    if peer not in PEERS:
        raise ValueError(f"peer must be one of {', '.join(PEERS)}, got {peer!r}")
    # -I: neither PYTHONPATH nor the script's directory may shadow what is installed there.
    command = [str(environment(peer)), "-I", str(HERE / f"ask_{peer}.py")]
    answers = json.loads(_run(f"asking {peer}", command, timeout_s, json.dumps(questions)))
    if len(answers) != len(questions):
        raise PeerUnavailable(f"{peer} must answer {len(questions)} questions, got {len(answers)} answers")
    return list(answers)


def audit_peer(peer: str, reports: int, timeout_s: float = ANSWER_TIMEOUT_S) -> list[dict[str, Any]]:
    """Return what an audit finds of a peer's randomizers, with so many reports a side; see `ask_audit.py`."""
    command = [str(environment(peer)), "-I", str(HERE / "ask_audit.py"), peer]
    return list(json.loads(_run(f"auditing {peer}", command, timeout_s, json.dumps({"reports": reports}))))


def environment(peer: str) -> Path:
    """Return the Python of the peer's environment, which is made if it is not there yet."""
    requirements = HERE / f"{peer}.txt"
    home = _cache() / f"{peer}-{_key(requirements)}"
    if not home.exists():
        print(f"installing {peer} into {home}, once", file=sys.stderr, flush=True)
        _build(peer, requirements, home)
    return home / "bin" / "python"


def build_project(home: Path) -> Path:
    """Install this project at `home`, not editable and with what it requires alone; return the Python there.

    Not kept: it would have to be another one after each change.
    """
    _install("dither", HERE / "dither.txt", home)
    _pip("installing this project", home, "--no-deps", str(ROOT))
    return home / "bin" / "python"


def _cache() -> Path:
    """Return the cache directory, which must be ours: we run what lies in it, and anybody may write next to it."""
    CACHE.mkdir(mode=0o700, exist_ok=True)
    if CACHE.is_symlink() or CACHE.stat().st_uid != os.getuid():
        raise PeerUnavailable(f"{CACHE} must belong to whoever runs the benchmarks; remove it or set TMPDIR")
    return CACHE


def _key(requirements: Path) -> str:
    """Return a short name for these requirements under this Python."""
    return hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]


def _build(peer: str, requirements: Path, home: Path) -> None:
    """Install in a directory beside `home`, then rename, so that an interrupted build is never taken for a whole."""
    with tempfile.TemporaryDirectory(prefix=f"{peer}-", dir=home.parent, ignore_cleanup_errors=True) as directory:
        venv = Path(directory) / "venv"
        _install(peer, requirements, venv)
        try:
            venv.rename(home)
        except OSError:
            if not home.exists():  # otherwise another run was quicker, and its environment is as good
                raise


def _install(peer: str, requirements: Path, venv: Path) -> None:
    _run(f"making a venv for {peer}", [sys.executable, "-m", "venv", str(venv)], VENV_TIMEOUT_S)
    # --no-deps: what the file does not pin does not get in.
    _pip(f"installing {peer}", venv, "--no-deps", "--requirement", str(requirements))


def _pip(what: str, venv: Path, *options: str) -> None:
    pip = [str(venv / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
    _run(what, [*pip, "install", "--quiet", *options], PIP_TIMEOUT_S)


def _run(what: str, command: list[str], timeout_s: float, text: str = "") -> str:
    """Return what the command prints, or raise PeerUnavailable with its last lines."""
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"{what}: not done after {timeout_s:g} s") from None
    except OSError as error:
        raise PeerUnavailable(f"{what}: {error}") from error
    if done.returncode != 0:
        last = "\n".join(line[:LINE_LENGTH] for line in done.stderr.strip().splitlines()[-LAST_LINES:])
        raise PeerUnavailable(f"{what}: exit status {done.returncode}\n{last}")
    return done.stdout
