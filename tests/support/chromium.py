"""One Chromium for the files of a process that follow each other and need one: it takes two seconds to start and end.

`asyncio.run` is refused on this thread while it is there, so it ends before the first test of a file that needs none.
"""

import os
import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SCRIPTS = [
    "--single-threaded",  # threads that compile and collect ahead of a page's script take from the others
    *("--no-maglev", "--no-turbofan"),  # no page lives as long as it takes to get back what they spend on axe
    "--no-flush-bytecode",  # axe, compiled for one page, is there for the next
]
"""How V8 is told to go about scripts that run once a page."""
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    f"--js-flags={' '.join(SCRIPTS)}",
]
NAMES = ("chromium-headless-shell", "chromium")
"""The first is the same browser without windows, and takes less of the processor."""

_opened = ExitStack()
_launched: "list[Browser]" = []


def chromium() -> "Browser":
    """Return the browser, started where there is none, or none any more."""
    if _launched and not _launched[0].is_connected():
        close()
    if not _launched:
        from playwright.sync_api import sync_playwright

        path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
        assert path, f"the tests drive a real Chromium: apt-get install {NAMES[0]}, or set CHROMIUM to the path of one"
        playwright = _opened.enter_context(sync_playwright())
        _launched.append(playwright.chromium.launch(executable_path=path, args=ARGUMENTS))
        _opened.callback(_launched[0].close)
    return _launched[0]


def close() -> None:
    """End it, if there is one."""
    _launched.clear()
    _opened.close()
