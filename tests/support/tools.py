"""Programs that check or run what deploy/ has: each is there, or the test that needs it fails."""

import os
import shutil
import sys
from pathlib import Path


def tool(name: str) -> str:
    """Return the path of a program. A test that needs it fails without it."""
    path = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin")
    assert path, f"{name} is missing: `sh .ci/system-packages` says how to install it"
    return path
