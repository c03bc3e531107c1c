"""The logger `dither`. A message never holds an answer, and sending it never fails."""

import logging
from contextlib import suppress

LOGGER = logging.getLogger("dither")
LOGGER.addHandler(logging.NullHandler())


def say(level: int, message: str, *arguments: object) -> None:
    """Log a message, whatever the host app's handlers and filters do with it."""
    with suppress(Exception):
        LOGGER.log(level, message, *arguments)
