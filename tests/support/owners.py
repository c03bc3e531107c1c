"""Owners of files as a test wants them: only root could give files away."""

import os
from pathlib import Path

import pytest

from dither_shared import files as file_permissions

ME, SOMEBODY = 1000, 4711


class Owners:
    """Says who owns what: whoever runs the tests stands for `user`, unless a path was given to somebody else."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, user: int = ME) -> None:
        self._user, self._given, self._look = user, dict[str, tuple[int, int | None]](), file_permissions._look
        monkeypatch.setattr(os, "geteuid", lambda: user)
        monkeypatch.setattr(file_permissions, "_look", self._found)

    def give(self, path: Path, owner: int, group: int | None = None) -> None:
        self._given[str(path)] = owner, group

    def _found(self, path: str) -> os.stat_result:
        found = list(self._look(path))
        real = self._user if found[4] == os.getuid() else found[4]
        owner, group = self._given.get(path, (real, None))
        found[4:6] = owner, found[5] if group is None else group
        return os.stat_result(found)
