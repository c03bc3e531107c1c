"""Kinds of documents: what a registry and operators say, beside what is counted. `documents.py` lists them."""

import json
import unicodedata
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, ClassVar, Self

import msgspec

from dither_aggregator.store.records import StoreError

MARK_CHARACTERS_MAX = 80
UNSHOWABLE = ("Cc", "Cs", "Zl", "Zp")
"""Unicode's categories of what a line of text cannot hold: controls, halves of characters, ends of lines."""

COMMAND_LINE = "command line"
"""The actor of a change for which no key was shown."""


class Document(ABC):
    """A text of JSON that a store keeps under an id, in the collection of its kind.

    A new kind is one class, which `documents.KINDS` lists. It says the name and the bounds of its collection, the id
    and the fields of a document, and what cannot be one. No store, dump, restore, copy or check asks which kind it is.
    """

    kind: ClassVar[str]
    """The name of the collection, in the store, in a backup and for people."""
    most: ClassVar[int | None] = None
    """How many documents a store keeps; None without a bound."""
    room: ClassVar[str] = ""
    """How an operator makes room for more, as the end of a sentence."""
    makes_room: ClassVar[bool] = False
    """Whether a store that has no room left takes one all the same, because it makes room."""
    public: ClassVar[bool] = False
    """Whether a read key is told them."""
    numbered: ClassVar[bool] = False
    """Whether a store numbers them in their order, changes none, and lets the oldest go."""

    @property
    def document_id(self) -> str | int:
        """Its id among those of its kind. One that is numbered, or the only one of its kind, needs none."""
        return ""

    @property
    def fault(self) -> str:
        """Why it cannot be stored, as a sentence; "" where it can."""
        return ""

    def to_document(self) -> Mapping[str, Any]:
        """Return the fields of which `from_document` makes this again."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document

    @classmethod
    def from_document(cls, fields: Mapping[str, Any]) -> Self:
        """Make a document of its fields; raise StoreError for damaged ones."""
        try:
            return cls._of(fields)
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
            why = f"is damaged, or of a later dither: {error!r}"
            raise StoreError(f"a document of the store ({cls.kind}) {why}") from None

    @classmethod
    def _of(cls, fields: Mapping[str, Any]) -> Self:
        """Make it of its fields; raise any of these errors for damaged ones."""
        return msgspec.convert(fields, cls)

    def to_text(self) -> str:
        """Return what a store keeps."""
        return json.dumps(self.to_document())

    @classmethod
    def read(cls, text: str | bytes) -> Self:
        """Make the document that a store keeps; raise StoreError for a damaged one."""
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise StoreError(f"a document of the store ({cls.kind}) is damaged: {error}") from None
        return cls.from_document(fields)

    @classmethod
    def faults(cls, kept: Sequence[Self]) -> Iterator[str]:
        """Yield what is wrong with those that a store keeps, in sentences."""
        yield from (one.fault for one in kept if one.fault)


KEPT_DAYS_MAX = 100_000


@dataclass(frozen=True)
class Retention(Document):
    """For how many days after an epoch its tally and its snapshot are kept; None for ever."""

    kind = "retention"
    most = 1
    makes_room = True
    tallies_days: int | None = None
    snapshots_days: int | None = None

    @classmethod
    def _of(cls, fields: Mapping[str, Any]) -> Self:
        if not all(days is None or (type(days) is int and 0 <= days <= KEPT_DAYS_MAX) for days in fields.values()):
            raise ValueError(f"tallies and snapshots are kept for at most {KEPT_DAYS_MAX:,} days, or for ever")
        return cls(**fields)


@dataclass(frozen=True)
class LastBackup(Document):
    """The latest backup that became whole. Nothing that is counted depends on it."""

    kind = "backups"
    most = 1
    made_s: int
    """When, in seconds since 1970 by the store's clock."""
    size: int
    """The bytes of its file."""


def is_one_line(text: str) -> bool:
    """Whether a text can be shown as one line."""
    return not any(unicodedata.category(character) in UNSHOWABLE for character in text)


MARKS_MAX = 1_000
"""How many marks a store keeps: every reader of a metric's days reads them all."""


@dataclass(frozen=True, order=True)
class DayMark(Document):
    """A release or another event that the operator named, and a metric's days are shown with.

    Nothing that is counted depends on it.
    """

    kind = "marks"
    most = MARKS_MAX
    room = "; `dither mark remove DAY` makes room"
    public = True
    day: date
    """The epoch (UTC) on which it happened, or will."""
    text: str

    @property
    def document_id(self) -> str:
        """Day and text: there is one mark of each."""
        return f"{self.day} {self.text}"

    @property
    def fault(self) -> str:
        """Why the text cannot be a mark's: it must have 1 to MARK_CHARACTERS_MAX characters of one line."""
        number = len(self.text)
        if not self.text.strip() or number > MARK_CHARACTERS_MAX:
            return f"a mark's text must have 1 to {MARK_CHARACTERS_MAX} characters, not spaces alone, got {number}"
        if not is_one_line(self.text):
            return f"a mark's text must be one line without control characters, got {self.text!r}"
        return ""

    @classmethod
    def _of(cls, fields: Mapping[str, Any]) -> Self:
        mark = super()._of(fields)
        mark.text.encode()  # half a character has no bytes
        return mark

    @classmethod
    def faults(cls, kept: Sequence[Self]) -> Iterator[str]:
        """Yield those of the texts with their days, by which an operator removes them."""
        yield from (f"{one.day}: {one.fault}" for one in kept if one.fault)


TOLD_MAX = 1_000
TOLD_KEPT_DAYS = 60
"""A week that ended before so many days shares no day with any week to come."""


@dataclass(frozen=True)
class ToldMoves(Document):
    """The verdicts that somebody was told last: the receiver of a mail, a webhook, or Prometheus.

    The next that they are told share no day with these. So a day's reports are judged once for each of them, however
    often somebody looks, and the error rate of one week's verdicts holds.
    """

    kind = "told"
    most = TOLD_MAX
    receiver: str
    """A keyed digest of the address."""
    first: date
    """The first day of the week that was told."""
    last: date
    """The last."""
    moves: Mapping[str, Sequence[str]]
    """The sentences on what moved, by metric: none where nothing did."""

    @property
    def document_id(self) -> str:
        """The receiver: each has one."""
        return self.receiver

    @property
    def fault(self) -> str:
        """Why it cannot be what somebody was told."""
        return "" if self.first <= self.last else f"a week must not end before it begins, got {self.first}, {self.last}"


JOURNAL_MAX = 100_000
"""How many entries of the journal are kept: about 15 MB."""


@dataclass(frozen=True)
class JournalEntry(Document):
    """A change that somebody asked for."""

    kind = "journal"
    most = JOURNAL_MAX
    numbered = True
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    """The time in UTC, to the second, by the store's clock."""
    actor: str
    """The id of the key that asked, or COMMAND_LINE. Never an address."""
    action: str
    """The act, in two or three words."""
    what: str
    """The object of the act."""
