"""The logger `dither`. A message never holds an answer nor anything unseen, and sending it never fails."""

import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from dither import forks
from dither_shared.texts import visible

if TYPE_CHECKING:
    import logging

DEBUG, INFO, WARNING = 10, 20, 30
"""The levels of `logging`, which a start does not import."""


@cache
def logger() -> "logging.Logger":
    """Return the logger. Nothing is printed where the app has no handler."""
    import logging

    found = logging.getLogger("dither")
    found.addHandler(logging.NullHandler())
    return found


def say(level: int, message: str, *arguments: object) -> None:
    """Log a message, whatever the host app does with it. Nobody listens where `logging` was not imported."""
    if "logging" not in sys.modules:
        return
    forks.register()
    with suppress(Exception):
        logger().log(level, message, *(each if isinstance(each, int) else visible(str(each)) for each in arguments))


if "logging" in sys.modules:
    logger()
