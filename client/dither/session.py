"""The base of a telemetry object: the device and its uploader, opened and closed as the person chooses."""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf

from dither import forks
from dither.device import FILE_NAME, REFUSED_NAME, Device, DeviceFault
from dither.randomness import SYSTEM
from dither.say import WARNING, say
from dither.sending.courier import passes
from dither.sending.uploader import Uploader
from dither.settings import Settings
from dither.status import CLOSED, NOT_ASKED, REFUSED
from dither_shared.ownership import is_there

CATCH_UP_EVERY_S = 1.0
"""How seldom answers look for a choice that was made in another process, so that they do not wait for the file."""

LAZY_APPS = (
    "needs lazy-apps = true under uWSGI: metrics whose presence is hidden are answered only where the app is loaded in "
    "each worker"
)


class Session:
    """The device and the uploader of one telemetry object. Its methods raise; `Telemetry` lets nothing of it out."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._device: Device | None = None
        self._uploader: Uploader | None = None
        self._silent = settings.silent
        self._fault = ""  # why the device could not be opened yet; the thread tries again
        self._closed = False
        self._unkept_refusal = False  # one that could not be kept, and is tried again when telemetry is closed
        self._failures: Counter[str] = Counter()
        self._caught_up = -inf  # when the file was last looked at for a choice, by time.monotonic
        self._locks: dict[tuple[int, object], threading.RLock] = {}

    # Beginning and ending.

    def _begin(self) -> None:
        """Record and send if the person's choice allows it; until there is one, nothing is made or kept."""
        consent = self._settings.consent
        if consent is True or self._file_exists():  # in this order: a file that cannot be used now is tried again
            self._speak()
        else:
            self._silent = NOT_ASKED if consent is None else REFUSED

    def _speak(self) -> None:
        """Record and send from now on, or once the device's file can be used."""
        self._device = self._device or self._open()
        self._device.set_public(self._settings.public)
        self._uploader = self._uploader or self._make_uploader(self._device)
        if self._device.hidden and forks.comes_untold():
            say(WARNING, "telemetry %s", LAZY_APPS)
        self._uploader.start()

    def _make_uploader(self, device: Device) -> Uploader:
        return Uploader(device, self._settings.transport, self._begin_device, self._settings.clock)

    def _begin_device(self) -> bool | None:
        """Open the device and look up what the person chose; return whether that lets it speak; None if it may erase.

        Their choice here goes before what the app says. May be called by the sending thread.
        """
        device, consent = self._device, self._settings.consent
        if device is None:
            return False
        try:
            device.open()
            kept = device.choice()
            choice = False if self._settings.silent else consent if kept is None else kept
            if choice is True:
                device.agree_once()
                device.begin()
            elif kept is None and consent is False and not self._settings.silent:
                device.drop()
        except Exception as error:
            if passes(error) and self._silent == self._fault:
                if not self._fault:
                    say(WARNING, "telemetry cannot begin yet: %s", error)
                self._silent = self._fault = str(error)
            raise
        if self._silent == self._fault:
            self._silent = "" if choice is True else NOT_ASKED if choice is None else REFUSED
        self._fault = ""
        if choice is True:
            return True
        if device.erasing():  # what was forgotten goes, whatever else the person chose
            return None
        self._stop()
        return False

    def _open(self) -> Device:
        return Device(self._settings.registry, self._settings.directory, SYSTEM, self._settings.clock)

    def _file_exists(self) -> bool:
        directory = self._settings.directory
        try:
            return directory is not None and any(is_there(f"{directory}/{name}") for name in (FILE_NAME, REFUSED_NAME))
        except OSError as error:  # the directory is another user's, and may not be entered
            raise DeviceFault(f"the device file in {directory} cannot be used: {error.strerror}") from None

    def _end(self) -> None:
        if self._unkept_refusal:
            with self._any_device() as device:
                device.refuse()
            self._unkept_refusal = False
        self._stop()

    def _stop(self) -> None:
        device, uploader, self._device, self._uploader = self._device, self._uploader, None, None
        if uploader is not None:
            uploader.close()
        elif device is not None:
            device.close()

    @contextmanager
    def _any_device(self) -> Iterator[Device]:
        """Yield the device; a file that telemetry does not speak for is closed again, and what is in memory is kept."""
        if self._device is None and self._settings.directory is None:
            self._device = self._open()
        device = self._device or self._open()
        try:
            yield device
        finally:
            if device is not self._device:
                device.close()

    # The person's choices.

    def _agree(self, metric: str | None) -> bool:
        """Keep that the person agrees, unless the environment forbids it."""
        if self._settings.silent:
            return False
        with self._choosing:
            with self._any_device() as device:
                device.open()
                if metric is None:
                    device.agree(chosen=True)
                else:
                    device.refuse_metric(metric, refused=False)
            if metric is None and not self._closed:
                self._silent = self._fault = ""
                self._unkept_refusal = False
                self._speak()
            elif self._uploader is not None:
                self._uploader.start()
        return True

    def _refuse(self, metric: str | None) -> bool:
        """Keep that the person refuses. For the whole app it holds at once, whatever becomes of the file."""
        lasts = self._settings.directory is not None or not self._settings.silent  # not where this is nobody's device
        if metric is not None:
            with self._any_device() as device:
                device.refuse_metric(metric, refused=True)
            self._erase_dropped()
            return lasts
        self._unkept_refusal = True  # first: a look into the file that is under way gives way to it
        self._silent = self._settings.silent or self._refused_or_closed()
        try:
            with self._choosing, self._any_device() as device:
                device.refuse()
        except Exception:
            self._stop()  # nothing of what waits is sent meanwhile
            raise
        self._unkept_refusal = False
        self._erase_dropped()
        return lasts

    def _erase_dropped(self) -> None:
        """Have what was dropped erased from the log, beside the app's calls: there may be no look that does."""
        if self._uploader is not None:
            self._uploader.tidy_beside()

    def _refused_or_closed(self) -> str:
        return CLOSED if self._closed else REFUSED

    # Choices that the person makes in another process.

    @property
    def _choosing(self) -> threading.RLock:
        """The lock of this process around choices and looks for them: a fork may copy its parent's as it was taken.

        And of the present kind of threads: gevent's do not keep each other out by a lock of the system's.
        """
        return self._locks.setdefault((os.getpid(), threading.Lock), threading.RLock())

    def _catch_up(self, every_s: float = 0.0) -> None:
        """Go by what the file says, while telemetry is silent because nobody was asked or the person refused.

        Looks at most once in `every_s`, and not while another thread looks or chooses. Only a choice of the person's
        counts, no argument of another start.
        """
        now = time.monotonic()
        if now < self._caught_up + every_s or not self._follows_file():
            return
        lock = self._choosing
        if not lock.acquire(blocking=False):
            return
        try:
            self._caught_up = now
            if self._file_exists():
                self._follow_file()
        finally:
            lock.release()

    def _follows_file(self) -> bool:
        """Tell whether the file may say more; a refusal that is kept nowhere is later than anything in it."""
        if self._settings.silent or self._closed or self._unkept_refusal:
            return False
        return self._silent in (NOT_ASKED, REFUSED) or (not self._silent and self._uploader is None)

    def _follow_file(self) -> None:
        silent = self._silent
        # Kept open: a further look costs next to nothing, and a fork closes it.
        self._device = device = self._device or self._open()
        try:
            device.open()
            choice = device.choice()
            if choice is True:
                self._silent = ""
                self._speak()
            elif choice is False:
                self._silent = REFUSED
        except Exception as error:
            self._silent = silent
            if not passes(error):  # as where a fork has left the connection to the parent: the next look opens another
                self._stop()
            raise
        finally:
            if self._unkept_refusal or self._closed:  # meanwhile, by another thread or a signal handler
                self._silent = self._refused_or_closed()
                self._stop()

    def _erase(self) -> None:
        """Forget, and let the thread go on with it where another process reads what was."""
        if self._device is not None or self._file_exists():
            with self._any_device() as device:
                device.open()
                erased = device.forget()
            if not erased and not self._closed:
                self._speak()

    def _erase_rest(self) -> None:
        """Go on with what was forgotten, and close all periods, though nothing else may be done.

        No thread looks here: until the next start nothing else would hide which of them were answered.
        """
        if not self._file_exists():
            return
        with self._any_device() as device:
            device.open()
            if device.end_periods():
                with suppress(Exception):  # the next start's look does it else
                    device.tidy()
            erasing = device.erasing()
        if erasing:
            self._speak()
