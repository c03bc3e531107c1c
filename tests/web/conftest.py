"""The npm package, made once for all processes of a run."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.node import ROOT


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the tarball that `make dist` makes. One process makes it; others that want it wait for that."""
    place = tmp_path_factory.getbasetemp()
    out = (place.parent if "PYTEST_XDIST_WORKER" in os.environ else place) / "npm-package"
    with out.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not out.exists():
            making = tmp_path_factory.mktemp("package")
            done = subprocess.run(
                ["sh", ".ci/npm-pack", str(making)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
            )
            assert done.returncode == 0, done.stderr + done.stdout
            making.rename(out)
    (tarball,) = out.iterdir()
    return tarball
