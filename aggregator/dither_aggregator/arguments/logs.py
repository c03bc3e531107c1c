"""What a command that runs for long says, and how often: a line that a client can cause must not fill the disk."""

import logging
import time

SAME_AGAIN_AFTER_S = 60.0
PLACES_MAX = 1_000


def set_up_logging() -> None:
    """Log warnings and errors to stderr, the same one at most once a minute."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(_Damper())


class _Damper(logging.Filter):
    """Lets a message through, then none from the same place for a while; then says how many there were."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether to log a record."""
        message = record.getMessage()
        key = record.name, record.lineno, message
        now = time.monotonic()
        since, dropped = self._said.get(key, (-SAME_AGAIN_AFTER_S, 0))
        if now - since < SAME_AGAIN_AFTER_S:
            self._said[key] = since, dropped + 1
            return False
        if len(self._said) >= PLACES_MAX:
            self._said.clear()
        self._said[key] = now, 0
        if dropped:
            record.msg, record.args = f"{message} (and {dropped} times more before)", ()
        return True
