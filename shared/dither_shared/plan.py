"""The plan: what a metric compiles to, and the digest that travels with every report."""

import json
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

from dither_shared.frozen import frozen
from dither_shared.mechanisms import Mechanism, PureMechanism, from_parameters


def canonical_json(document: object) -> bytes:
    """Return the one byte string that stands for a document: sorted keys, no spaces, ASCII."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def _sha256(document: object) -> str:
    import hashlib  # loads OpenSSL, which takes longer than all of this module: only where something is said

    return hashlib.sha256(canonical_json(document)).hexdigest()


@lru_cache(maxsize=64)
def _digest_of_values(values: tuple[str, ...]) -> str:
    return _sha256(values)  # of many metrics the same: yes and no


@frozen
class Plan:
    """A metric's mechanism with its integers, its values in order, its presence and its rev.

    Two plans are the same exactly when their digests are; series do not join across plans.
    """

    metric: str
    rev: int
    presence: str
    values: tuple[str, ...]
    mechanism: Mechanism

    @property
    def pure(self) -> PureMechanism:
        """The mechanism, of a metric whose values are listed: its reports support them."""
        if not isinstance(self.mechanism, PureMechanism):
            raise TypeError(f"the values of {self.metric} are not listed")
        return self.mechanism

    @cached_property
    def digest(self) -> str:
        """64 bits of SHA-256 as 16 hex digits, over all that decides what a report means but the metric's name."""
        document = {
            "mechanism": self.mechanism.name,
            "parameters": self.mechanism.parameters(),
            "presence": self.presence,
            "rev": self.rev,
            "values": self._values_digest,
        }
        return _sha256(document)[:16]

    @cached_property
    def memo_key(self) -> str:
        """SHA-256, in hex, of what a memo depends on besides the device and the answer; "" where nothing is memoized.

        The metric's name, the integers of the permanent part and, of RAPPOR, those that give a text its bits, the
        values. So a new rev, or another epsilon of one report, redraws no memo.
        """
        if not self.mechanism.memoized:
            return ""
        return _sha256(
            {
                "mechanism": self.mechanism.name,
                "metric": self.metric,
                "parameters": self.mechanism.memo_parameters(),
                "values": self._values_digest,
            }
        )

    @cached_property
    def _values_digest(self) -> str:
        return _digest_of_values(self.values)

    def to_document(self) -> dict[str, object]:
        """Return what `from_document` needs to make this plan again, for a store."""
        return {
            "metric": self.metric,
            "rev": self.rev,
            "presence": self.presence,
            "values": list(self.values),
            "mechanism": self.mechanism.name,
            "parameters": self.mechanism.parameters(),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Plan":
        """Make the plan of a stored document, as written by `to_document`."""
        return cls(
            document["metric"],
            document["rev"],
            document["presence"],
            tuple(document["values"]),
            from_parameters(document["mechanism"], document["parameters"]),
        )
