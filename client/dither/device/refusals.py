"""Refusals that could not be written into the device's file, as on a full disk: an empty file beside it for each.

An empty file needs no room on most file systems. The next process that uses the device first writes the refusal into
its file.
"""

import os
from contextlib import suppress

from dither.device.schema import FILE_NAME
from dither_shared.files import StrPath
from dither_shared.ownership import NO_LINK

EVERYTHING = ""
"""In place of a metric's name: the person refuses the whole app."""
REFUSED_NAME = f"{FILE_NAME}-refused"
"""The file that says that the whole app is refused; for a metric, its name follows."""


class Refusals:
    """The refusals that are still to be written."""

    def __init__(self, directory: StrPath | None) -> None:
        self._directory = directory
        self._unmarked: set[str] = set()  # that hold in this process alone
        self.pending: set[str] = set()
        self.look()

    def look(self) -> None:
        """Take note of those that there are by now: another process may have left, written or taken back one."""
        names: list[str] = []
        with suppress(
            OSError, ValueError
        ):  # of a directory that may not be entered the file cannot be used either, and says so
            if self._directory:
                names = os.listdir(self._directory)
        self.pending = self._unmarked | {
            name[len(REFUSED_NAME) + 1 :] for name in names if name.startswith(REFUSED_NAME)
        }

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
                with suppress(FileNotFoundError):
                    os.unlink(self._mark(metric))

    def _mark(self, metric: str) -> str:
        return f"{self._directory}/{REFUSED_NAME}" + (f"-{metric}" if metric else "")
