"""The plan: what a metric compiles to, and the digest that travels with every report."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from dither_shared import domains
from dither_shared.domains import Domain
from dither_shared.errors import InvalidParameter
from dither_shared.frozen import derived, frozen, sha256
from dither_shared.kinds import KINDS, Kind
from dither_shared.light_typing import Any
from dither_shared.mechanisms import Cells, Mechanism

DIGEST_CHARACTERS = 16


@frozen
class Plan:
    """A metric's kind, domain and cells with their integers, its presence, its rev, and how often a device sends it.

    Two plans are the same exactly when their digests are; series do not join across plans.
    """

    metric: str
    rev: int
    presence: str
    kind: Kind[Any, Any]
    domain: Domain
    cells: Cells
    once_a_day: bool = False
    """Whether a device sends at most one report of it on a UTC day. Not so in plans of before 0.1.0."""
    digest: str = derived()
    """64 bits of SHA-256 as 16 hex digits, over all that decides what a report means but the metric's name."""

    def __post_init__(self) -> None:
        document = {
            "cells": self.cells.to_document(),
            "domain": self.domain.digest,
            "kind": self.kind.name,
            "presence": self.presence,
            "rev": self.rev,
            **self._how_often,
        }
        object.__setattr__(self, "digest", sha256(document)[:DIGEST_CHARACTERS])

    def __hash__(self) -> int:
        """Return that of its name and digest: those of all cells would take longer than most lookups by plan save."""
        return hash((self.metric, self.digest))

    @property
    def values(self) -> tuple[str, ...]:
        """The listed values, in order; none of a text."""
        return self.domain.values

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism, where all cells have the same one."""
        return self.cells.mechanism

    @cached_property
    def memo_key(self) -> str:
        """SHA-256, in hex, of what a memo depends on besides the device and the answer; "" where nothing is memoized.

        The metric's name, the domain, the number of cells, which decides what a cell makes of an answer, and the
        integers of the permanent part. So a new rev redraws no memo. Neither does another epsilon of one report, unless
        the automatic choice then takes another permanent part.
        """
        if not self.cells.memoized:
            return ""
        return sha256(
            {
                "cells": [
                    [part.mechanism.name, part.mechanism.memo_parameters(), part.cells] for part in self.cells.parts
                ],
                "domain": self.domain.digest,
                "metric": self.metric,
            }
        )

    def to_document(self) -> dict[str, object]:
        """Return what `from_document` needs to make this plan again, for a store."""
        return {
            "metric": self.metric,
            "rev": self.rev,
            "presence": self.presence,
            "kind": self.kind.name,
            "domain": self.domain.to_document(),
            "cells": self.cells.to_document(),
            **self._how_often,
        }

    @property
    def _how_often(self) -> dict[str, object]:
        return {"once_a_day": True} if self.once_a_day else {}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Plan:
        """Make the plan of a stored document, as written by `to_document`."""
        if document["kind"] not in KINDS:
            raise InvalidParameter(f"the kind must be one of {', '.join(KINDS)}, got {document['kind']!r}")
        return cls(
            document["metric"],
            document["rev"],
            document["presence"],
            KINDS[document["kind"]],
            domains.from_document(document["domain"]),
            Cells.from_document(document["cells"]),
            document.get("once_a_day", False) is True,
        )
