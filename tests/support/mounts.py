"""Directories that nobody can write to, root neither: mounted read-only, for one command, in a namespace of its own."""

import subprocess
from pathlib import Path

import pytest

_MOUNT = 'mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" && shift 2 && exec "$@"'


def read_only(directory: Path, mounted: Path, *command: str) -> list[str]:
    """Return the command that sees a directory at another place, mounted read-only; skip where nobody may mount."""
    mounted.mkdir(exist_ok=True)
    prefix = ["unshare", "--map-root-user", "--mount", "sh", "-c", _MOUNT, "sh", str(directory), str(mounted)]
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False, timeout=30)
    if tried.returncode:
        pytest.skip(f"this system lets nobody mount in a namespace of their own: {tried.stderr.strip()}")
    return [*prefix, *command]
