"""Refusals that could not be written into the device's file, as on a full disk: an empty file beside it for each.

An empty file needs no room on most file systems. The next process that uses the device first writes the refusal into
its file.
"""

import os
from contextlib import suppress
from pathlib import Path

from dither.device.schema import FILE_NAME
from dither_shared.ownership import NO_LINK

EVERYTHING = ""
"""In place of a metric's name: the person refuses the whole app."""
REFUSED_NAME = f"{FILE_NAME}-refused"
"""The file that says that the whole app is refused; for a metric, its name follows."""


class Refusals:
    """The refusals that are still to be written."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._unmarked: set[str] = set()  # that hold in this process alone
        self.pending: set[str] = set()
        self.look()

    def look(self) -> None:
        """Take note of those that there are by now: another process may have left, written or taken back one."""
        marks: list[Path] = []
        with suppress(OSError):  # of a directory that may not be entered the file cannot be used either, and says so
            if self._directory and self._directory.is_dir():
                marks = list(self._directory.glob(f"{REFUSED_NAME}*"))
        self.pending = self._unmarked | {path.name[len(REFUSED_NAME) + 1 :] for path in marks}

    def of(self, metric: str) -> bool:
        """Tell whether a pending refusal covers a metric."""
        return not self.pending.isdisjoint({EVERYTHING, metric})

    def note(self, metric: str) -> bool:
        """Let a refusal hold in this process from now on; tell whether the next start will know, too."""
        self.pending.add(metric)
        try:
            if self._directory:
                os.close(os.open(self._mark(metric), os.O_CREAT | os.O_WRONLY | NO_LINK, 0o600))
        except OSError:
            self._unmarked.add(metric)
            return False
        return True

    def clear(self, *metrics: str) -> None:
        """Take these off: they are written, or the person has changed their mind."""
        for metric in metrics:
            self.pending.discard(metric)
            self._unmarked.discard(metric)
            if self._directory:
                self._mark(metric).unlink(missing_ok=True)

    def _mark(self, metric: str) -> Path:
        assert self._directory
        return self._directory / (f"{REFUSED_NAME}-{metric}" if metric else REFUSED_NAME)
