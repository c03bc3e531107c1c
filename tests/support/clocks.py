"""A clock that tests move."""

from dataclasses import dataclass

DAY_S = 86_400.0


@dataclass
class Clock:
    """Seconds since 1970, as time.time, standing still until moved. Starts at noon, so that a day is whole."""

    now: float = 20_777 * DAY_S + DAY_S / 2  # 2026-11-20

    def __call__(self) -> float:
        return self.now

    def travel(self, days: float) -> None:
        self.now += days * DAY_S
