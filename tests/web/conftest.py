"""The npm package, made once for all tests of a process."""

import subprocess
from pathlib import Path

import pytest

from tests.support.node import ROOT


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the tarball that `make dist` makes."""
    out = tmp_path_factory.mktemp("package")
    done = subprocess.run(
        ["sh", ".ci/npm-pack", str(out)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    (tarball,) = out.iterdir()
    return tarball
