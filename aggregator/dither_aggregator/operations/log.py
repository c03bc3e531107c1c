"""How a command that runs for long writes its log to stderr. Loads no store: settings are read with it."""

import json
import logging
import os
import time
from datetime import UTC, datetime
from textwrap import indent
from typing import Any

from dither_shared.safe_output import visible

SAME_AGAIN_AFTER_S = 60.0
MESSAGES_MAX = 1_000
FORMATS = ("text", "json")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
FORMAT_ENVIRONMENT, LEVEL_ENVIRONMENT = "DITHER_LOG_FORMAT", "DITHER_LOG_LEVEL"
"""How a command tells the processes that it starts."""

_log = logging.getLogger("dither_aggregator")


def set_up_logging(form: str = "", level: str = "") -> None:
    """Log to stderr, the same line at most once a minute: a client that causes one fills no disk.

    `form` is one of FORMATS and `level` one of LEVELS; without them, as the process that started this one does. The
    libraries' words below a warning are never logged: they may name addresses.
    """
    os.environ[FORMAT_ENVIRONMENT] = form = form or os.environ.get(FORMAT_ENVIRONMENT) or "text"
    os.environ[LEVEL_ENVIRONMENT] = level = level or os.environ.get(LEVEL_ENVIRONMENT) or "warning"
    handler = logging.StreamHandler()
    handler.addFilter(_Damper())
    handler.setFormatter(_JsonLines() if form == "json" else _Lines())
    logging.basicConfig(level=max(LEVELS[level], logging.WARNING), handlers=[handler])
    _log.setLevel(LEVELS[level])


class _Lines(logging.Formatter):
    """Makes each record a line of words, and indents what was raised: no message passes for another line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(name)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        """Return the line."""
        record.message = visible(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Return the traceback."""
        return indent(visible(super().formatException(ei), keep="\n"), "  ")


class _JsonLines(logging.Formatter):
    """Makes each record one line of JSON: time (UTC), level, logger, message, and what was raised, if anything was."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time_ = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {
            "time": time_.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class _Damper(logging.Filter):
    """Lets a message through, then none from the same place for a while; then says how many there were."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether to log a record."""
        message = record.getMessage()
        key = record.name, record.lineno, message.partition("\n")[0]
        now = time.monotonic()
        since, dropped = self._last.get(key, (-SAME_AGAIN_AFTER_S, 0))
        if now - since < SAME_AGAIN_AFTER_S:
            self._last[key] = since, dropped + 1
            return False
        if len(self._last) >= MESSAGES_MAX:
            self._last.clear()
        self._last[key] = now, 0
        if dropped:
            record.msg, record.args = f"{message} (and {dropped} times more before)", ()
        return True
