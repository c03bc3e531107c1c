"""The outcome of an attack, beside the aims of `attacks.py`."""

import math
from collections import Counter
from dataclasses import dataclass, field

from tests.benchmarks.steady import Waits
from tests.benchmarks.watching import Spent

WAIT_MIN_S = 0.05
WAIT_RATIO = 3
"""Good uploads' p99 may be so many times the base's, or WAIT_MIN_S."""
APART_WAIT_RATIO = 2
"""Beside attackers whose bodies a process of its own reads, without that least."""
MEMORY_MAX_MIB = 512
"""The most for all of the server's processes. Shared pages are counted once."""
LOG_BYTES_MAX = 16 * 1024
BACK_WITHIN_S = 5.0
RECOVERY_S = 30.0
"""How long it is given to come back."""


@dataclass
class Outcome:
    """The figures of one attack."""

    base: Waits
    attacked: Waits
    health: Waits
    memory_mib: float
    log_bytes: int
    back_s: float
    """From the attackers' end until good uploads are as fast as the base; infinite if they are not in RECOVERY_S."""
    settled: bool
    """Whether every good upload was acknowledged in the end, sent again if need be."""
    uploads: int
    """Good ones, each with an id of its own."""
    counted: int
    """The number of them in the ledger."""
    done: Counter[str] = field(default_factory=Counter)
    """By the attackers."""
    apart: bool = False
    """Whether a process of its own reads what they send: good uploads hardly wait for those."""
    spent: Spent = field(default_factory=Spent)
    """Beside the attack."""

    @property
    def limit_s(self) -> float:
        """How long good uploads may wait."""
        return APART_WAIT_RATIO * self.base.percentile_s(99) if self.apart else wait_max_s(self.base)

    def missed(self) -> list[str]:
        """Return which aims were missed, in words: those of a whole attack."""
        wrong = self.unsound()
        if (p99_s := self.attacked.percentile_s(99)) > self.limit_s:
            wrong.insert(0, f"good uploads' p99 is {p99_s * 1e3:.1f} ms, more than {self.limit_s * 1e3:.1f}")
        if self.back_s > BACK_WITHIN_S:
            wrong.append(f"it was back after {self.back_s:.1f} s, not within {BACK_WITHIN_S:g}")
        return wrong

    def unsound(self) -> list[str]:
        """Return which aims were missed that no slow machine excuses."""
        wrong = []
        if self.attacked.acknowledged < self.attacked.tried / 2:
            wrong.append(f"of {self.attacked.tried} good uploads {self.attacked.acknowledged} were acknowledged")
        if self.memory_mib > MEMORY_MAX_MIB:
            wrong.append(f"it took {self.memory_mib:.0f} MiB, more than {MEMORY_MAX_MIB}")
        if self.log_bytes > LOG_BYTES_MAX:
            wrong.append(f"it logged {self.log_bytes} bytes, more than {LOG_BYTES_MAX}")
        if self.health.failures:
            wrong.append(f"of {self.health.tried} questions for its health failed {dict(self.health.failures)}")
        if math.isinf(self.back_s):
            wrong.append(f"it did not come back within {RECOVERY_S:g} s")
        if not self.settled:
            wrong.append("not every good upload was acknowledged afterwards")
        elif self.counted != self.uploads:
            wrong.append(f"the ledger has {self.counted} of {self.uploads} good uploads")
        return wrong


def wait_max_s(base: Waits) -> float:
    """Return how long good uploads may wait beside an attack."""
    return max(WAIT_RATIO * base.percentile_s(99), WAIT_MIN_S)
