"""The logger `dither`. A message never holds an answer nor anything unseen, and sending it never fails."""

from __future__ import annotations

import logging
from logging import DEBUG, INFO, WARNING

from dither_shared.text_normalization import visible

__all__ = ["DEBUG", "INFO", "LOGGER", "WARNING", "say"]

LOGGER = logging.getLogger("dither")
LOGGER.addHandler(logging.NullHandler())


def say(level: int, message: str, *arguments: object) -> None:
    """Log a message, whatever the host app's handlers and filters do with it."""
    try:
        if LOGGER.isEnabledFor(level):
            LOGGER.log(level, message, *(each if isinstance(each, int) else visible(str(each)) for each in arguments))
    except Exception:  # noqa: S110 - and `suppress` takes longer than a level that nobody hears
        pass
