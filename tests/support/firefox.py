"""Debian's Firefox, driven over WebDriver BiDi: the part of a page that our tests ask for, by Playwright's names.

Playwright drives a Firefox of its own alone, which no Debian has. BiDi is the standard that this one speaks by itself,
without geckodriver: JSON over a websocket (https://w3c.github.io/webdriver-bidi/).
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias, Union

from websockets.sync.client import ClientConnection, connect

if TYPE_CHECKING:
    from playwright.sync_api import Page as ChromiumPage

AnyPage: TypeAlias = Union["Page", "ChromiumPage"]
"""A page of either browser: `goto`, `evaluate` and `close` are the same in both."""
UNTIL_IT_ENDS: dict[str, Any] = {"open_timeout": None, "ping_interval": None}
"""A browser beside busy programs takes as long as it takes. One that has ended closes the socket."""
PREFERENCES = {
    "app.update.auto": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.newtab.preload": False,
    "browser.newtabpage.enabled": False,
    "browser.startup.page": 0,
    "datareporting.policy.dataSubmissionEnabled": False,
    "dom.ipc.processPrelaunch.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,",
    "toolkit.telemetry.enabled": False,
}
"""Nothing is asked of anybody beyond this machine, and no page is made ready that no test opens."""
_LISTENS = re.compile(rb"WebDriver BiDi listening on (ws://\S+)")


class BrowserError(AssertionError):
    """An error in the words of the browser, or of a page's script."""


class Firefox:
    """A browser, and one session of it."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = count(1)
        self.ask("session.new", capabilities={})

    def ask(self, method: str, **params: Any) -> Any:
        """Return what a command answers; what happens meanwhile is passed over."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            came = json.loads(self._socket.recv())
            if came.get("id") == number:
                if came["type"] == "error":
                    raise BrowserError(f"{method}: {came['message']}")
                return came["result"]

    def new_context(self) -> "Person":
        """Return somebody who has nothing stored."""
        return Person(self, self.ask("browser.createUserContext")["userContext"])


class Person:
    """A person, whose tabs share what is stored."""

    def __init__(self, browser: Firefox, name: str) -> None:
        self._browser, self._name = browser, name

    def new_page(self) -> "Page":
        """Open a tab."""
        opened = self._browser.ask("browsingContext.create", type="tab", userContext=self._name)
        return Page(self._browser, self, opened["context"])

    def close(self) -> None:
        """Close their tabs, and forget all that they stored."""
        self._browser.ask("browser.removeUserContext", userContext=self._name)


class Page:
    """A tab."""

    def __init__(self, browser: Firefox, person: Person, name: str) -> None:
        self._browser, self.context, self._context = browser, person, name

    def goto(self, url: str) -> None:
        """Load a page, with all that it loads."""
        self._browser.ask("browsingContext.navigate", context=self._context, url=url, wait="complete")

    def set_viewport_size(self, size: Mapping[str, int]) -> None:
        """Give the page so much room."""
        self._browser.ask("browsingContext.setViewport", context=self._context, viewport=dict(size))

    def evaluate(self, function: str, argument: object = None) -> Any:
        """Return what a function of JavaScript, perhaps an async one, returns for an argument; both are JSON."""
        code = f"async (given) => JSON.stringify((await ({function})(JSON.parse(given))) ?? null)"
        came = self._browser.ask(
            "script.callFunction",
            functionDeclaration=code,
            awaitPromise=True,
            target={"context": self._context},
            arguments=[{"type": "string", "value": json.dumps(argument)}],
        )
        if came["type"] == "exception":
            raise BrowserError(came["exceptionDetails"]["text"])
        return json.loads(came["result"]["value"])

    def close(self) -> None:
        """Close the tab, as a person does: the page is told that it goes."""
        self._browser.ask("browsingContext.close", context=self._context)


@contextmanager
def firefox(preferences: Mapping[str, object] = {}) -> Iterator[Firefox]:
    """Start it without a window, with some preferences of its own, and end it."""
    path = os.environ.get("FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox")
    assert path, "the tests drive a real Firefox: apt-get install firefox-esr, or set FIREFOX to the path of one"
    with tempfile.TemporaryDirectory() as profile:
        lines = (
            f"user_pref({json.dumps(name)}, {json.dumps(value)});\n"
            for name, value in {**PREFERENCES, **preferences}.items()
        )
        Path(profile, "user.js").write_text("".join(lines), encoding="utf-8")
        command = [path, "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0"]
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env={**os.environ, "HOME": profile}
        ) as process:
            assert process.stderr
            try:
                with connect(f"{_address(process.stderr)}/session", max_size=None, **UNTIL_IT_ENDS) as socket:
                    yield Firefox(socket)
            finally:
                process.terminate()
                process.stderr.read()  # until it has ended: it writes into its profile


def _address(errors: IO[bytes]) -> str:
    for line in errors:
        if found := _LISTENS.search(line):
            return found[1].decode("ascii")
    raise AssertionError("Firefox ended before it listened")
