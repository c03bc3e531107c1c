"""A telemetry object's settings, device and uploader: its session, opened and closed as the person chooses."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf

from dither import app_process
from dither.app_process import WARNING, say
from dither.device import FILE_NAME, REFUSED_NAME, Device, DeviceFault
from dither.sending.transport import Transport
from dither.sending.upload_thread import Uploader, passes
from dither.status import Mode, Standing
from dither_shared.files import StrPath, is_there
from dither_shared.frozen import frozen
from dither_shared.registry import Registry
from dither_shared.rng import SYSTEM


@frozen
class Settings:
    """The settings of one telemetry object."""

    registry: Registry
    transport: Transport
    directory: StrPath | None
    """The directory of the device's file, or None for a device in memory."""
    consent: bool | None
    silent: str = ""
    """Why nothing may be recorded, kept or sent, whatever the person chose."""
    strict: bool = False
    public: int = 0
    """The place of the device's value in the registry's public column."""
    development: bool = False
    """Whether this is a developer's machine: `status()` says so."""
    clock: Callable[[], float] = time.time


CATCH_UP_EVERY_S = 1.0
"""How seldom answers look for a choice that was made in another process, so that they do not wait for the file."""

LAZY_APPS = (
    "needs lazy-apps = true under uWSGI: metrics whose presence is hidden are answered only where the app is loaded in "
    "each worker"
)


class Session:
    """The device and the uploader of one telemetry object. Its methods raise; `Telemetry` lets nothing of it out."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.device: Device | None = None
        self.uploader: Uploader | None = None
        self.standing = Standing(Mode.OFF, settings.silent) if settings.silent else Standing(Mode.SPEAKS)
        """Whether anything is recorded and sent, or why not."""
        self._closed = False
        self._unkept_refusal = False  # one that could not be kept, and is tried again when telemetry is closed
        self._caught_up = -inf  # when the file was last looked at for a choice, by time.monotonic
        self._locks: dict[tuple[int, object], threading.RLock] = {}

    @property
    def speaks(self) -> bool:
        """Whether anything is recorded and sent."""
        return self.standing.mode is Mode.SPEAKS

    # A test's own does these otherwise.

    def open_device(self) -> Device:
        """Return a device, whose file is opened on first use."""
        return Device(self.settings.registry, self.settings.directory, SYSTEM, self.settings.clock)

    def make_uploader(self, device: Device) -> Uploader:
        """Return the uploader of a device."""
        return Uploader(device, self.settings.transport, self.begin_device, self.settings.clock)

    def file_exists(self) -> bool:
        """Tell whether anything was ever kept on this device."""
        directory = self.settings.directory
        try:
            return directory is not None and any(is_there(f"{directory}/{name}") for name in (FILE_NAME, REFUSED_NAME))
        except OSError as error:  # the directory is another user's, and may not be entered
            raise DeviceFault(f"the device file in {directory} cannot be used: {error.strerror}") from None

    # Beginning and ending.

    def begin(self) -> None:
        """Record and send if the person's choice allows it; until there is one, nothing is made or kept."""
        consent = self.settings.consent
        if not self.speaks:
            self._erase_rest()
        elif consent is True or self.file_exists():  # in this order: a file that cannot be used now is tried again
            self.speak()
        else:
            self.standing = Standing(_mode_of(consent))

    def speak(self) -> None:
        """Record and send from now on, or once the device's file can be used."""
        self.device = self.device or self.open_device()
        self.device.set_public(self.settings.public)
        self.uploader = self.uploader or self.make_uploader(self.device)
        if self.device.hidden and app_process.comes_untold():
            say(WARNING, "telemetry %s", LAZY_APPS)
        self.uploader.start()

    def begin_device(self) -> bool | None:
        """Open the device and look up what the person chose; return whether that lets it speak; None if it may erase.

        Their choice here goes before what the app says. May be called by the sending thread.
        """
        device, consent = self.device, self.settings.consent
        if device is None:
            return False
        try:
            device.open()
            kept = device.choice()
            choice = False if self.settings.silent else consent if kept is None else kept
            if choice is True:
                device.agree_once()
                device.begin()
            elif kept is None and consent is False and not self.settings.silent:
                device.drop()
        except Exception as error:
            if passes(error) and self.standing.mode in (Mode.SPEAKS, Mode.FAULT):
                if self.standing.mode is Mode.SPEAKS:
                    say(WARNING, "telemetry cannot begin yet: %s", error)
                self.standing = Standing(Mode.FAULT, str(error))  # the thread tries again
            raise
        if self.standing.mode in (Mode.SPEAKS, Mode.FAULT):
            self.standing = Standing(_mode_of(choice))
        if choice is True:
            return True
        if device.erasing():  # what was forgotten goes, whatever else the person chose
            return None
        self.stop()
        return False

    def fail(self, error: Exception) -> None:
        """Be silent for good: telemetry could not begin."""
        self.stop()
        self.standing = Standing(Mode.OFF, str(error))
        say(WARNING, "telemetry is off: %s", error)

    def close(self) -> None:
        """Be closed from now on; `end` may fail."""
        self._closed = True
        if self.speaks:
            self.standing = Standing(Mode.CLOSED)

    def reopen(self, settings: Settings) -> None:
        """Go on as another start of the app does, with its settings."""
        self.end()
        self._closed = False
        self.settings, self.standing = settings, Standing(Mode.SPEAKS)
        self.begin()

    def end(self) -> None:
        """Keep a refusal that could not be kept before, and end what runs."""
        if self._unkept_refusal:
            with self._any_device() as device:
                device.refuse()
            self._unkept_refusal = False
        self.stop()

    def stop(self) -> None:
        """End the uploader, which closes the device."""
        device, uploader, self.device, self.uploader = self.device, self.uploader, None, None
        if uploader is not None:
            uploader.close()
        elif device is not None:
            device.close()

    @contextmanager
    def _any_device(self) -> Iterator[Device]:
        """Yield the device; a file that telemetry does not speak for is closed again, and what is in memory is kept."""
        if self.device is None and self.settings.directory is None:
            self.device = self.open_device()
        device = self.device or self.open_device()
        try:
            yield device
        finally:
            if device is not self.device:
                device.close()

    # The person's choices.

    def agree(self, metric: str | None) -> bool:
        """Keep that the person agrees, unless the environment forbids it."""
        if self.settings.silent:
            return False
        with self._choosing:
            with self._any_device() as device:
                device.open()
                if metric is None:
                    device.agree(chosen=True)
                else:
                    device.refuse_metric(metric, refused=False)
            if metric is None and not self._closed:
                self.standing = Standing(Mode.SPEAKS)
                self._unkept_refusal = False
                self.speak()
            elif self.uploader is not None:
                self.uploader.start()
        return True

    def refuse(self, metric: str | None) -> bool:
        """Keep that the person refuses. For the whole app it holds at once, whatever becomes of the file."""
        lasts = self.settings.directory is not None or not self.settings.silent  # not where this is nobody's device
        if metric is not None:
            with self._any_device() as device:
                device.refuse_metric(metric, refused=True)
            self._erase_dropped()
            return lasts
        self._unkept_refusal = True  # first: a look into the file that is under way gives way to it
        if not self.settings.silent:
            self.standing = self._refused_or_closed()
        try:
            with self._choosing, self._any_device() as device:
                device.refuse()
        except Exception:
            self.stop()  # nothing of what waits is sent meanwhile
            raise
        self._unkept_refusal = False
        self._erase_dropped()
        return lasts

    def _erase_dropped(self) -> None:
        """Have what was dropped erased from the log, beside the app's calls: there may be no look that does."""
        if self.uploader is not None:
            self.uploader.tidy_beside()

    def _refused_or_closed(self) -> Standing:
        return Standing(Mode.CLOSED if self._closed else Mode.REFUSED)

    # Choices that the person makes in another process.

    @property
    def _choosing(self) -> threading.RLock:
        """The lock of this process around choices and looks for them: a fork may copy its parent's as it was taken.

        And of the present kind of threads: gevent's do not keep each other out by a lock of the system's.
        """
        return self._locks.setdefault((os.getpid(), threading.Lock), threading.RLock())

    def catch_up(self, every_s: float = 0.0) -> None:
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
            if self.file_exists():
                self._follow_file()
        finally:
            lock.release()

    def _follows_file(self) -> bool:
        """Tell whether the file may say more; a refusal that is kept nowhere is later than anything in it."""
        if self.settings.silent or self._closed or self._unkept_refusal:
            return False
        return self.standing.mode in (Mode.NOT_ASKED, Mode.REFUSED) or (self.speaks and self.uploader is None)

    def _follow_file(self) -> None:
        before = self.standing
        # Kept open: a further look costs next to nothing, and a fork closes it.
        self.device = device = self.device or self.open_device()
        try:
            device.open()
            choice = device.choice()
            if choice is True:
                self.standing = Standing(Mode.SPEAKS)
                self.speak()
            elif choice is False:
                self.standing = Standing(Mode.REFUSED)
        except Exception as error:
            self.standing = before
            if not passes(error):  # as where a fork has left the connection to the parent: the next look opens another
                self.stop()
            raise
        finally:
            if self._unkept_refusal or self._closed:  # meanwhile, by another thread or a signal handler
                self.standing = self._refused_or_closed()
                self.stop()

    def erase(self) -> None:
        """Forget, and let the thread go on with it where another process reads what was."""
        if self.device is not None or self.file_exists():
            with self._any_device() as device:
                device.open()
                erased = device.forget()
            if not erased and not self._closed:
                self.speak()

    def _erase_rest(self) -> None:
        """Go on with what was forgotten, and close all periods, though nothing else may be done.

        No thread looks here: until the next start nothing else would hide which of them were answered.
        """
        if not self.file_exists():
            return
        with self._any_device() as device:
            device.open()
            if device.end_periods():
                with suppress(Exception):  # the next start's look does it else
                    device.tidy()
            erasing = device.erasing()
        if erasing:
            self.speak()


def _mode_of(choice: bool | None) -> Mode:
    return {True: Mode.SPEAKS, False: Mode.REFUSED, None: Mode.NOT_ASKED}[choice]
