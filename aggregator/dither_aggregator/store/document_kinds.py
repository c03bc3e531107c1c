"""Kinds of documents: what a registry and operators say. `documents.py` lists them, and has plans."""

import hashlib
import json
import re
import secrets
import unicodedata
from abc import ABC
from base64 import b32encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from math import ceil
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import msgspec

from dither_aggregator.store.records import StoreError
from dither_shared.domains import NONE, OTHER, Buckets
from dither_shared.errors import ConfigurationError
from dither_shared.files import parse_toml, read_text
from dither_shared.plan import Plan

# The names of what keys may do. Loads no store.


WRITE, READ, ADMIN = SCOPES = ("write", "read", "admin")
"""A write key uploads and does nothing else. An admin key may also do what a read key may."""
READING = (READ, ADMIN)


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
CLAIMED_FOR_S = 3_600
"""So long nobody else sends what somebody began to send: far longer than a mail server that is slow may take."""


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
    claimed_s: int | None = None
    """When somebody began to send it who has not said how that ended, in seconds since 1970 by the store's clock."""

    @property
    def document_id(self) -> str:
        """The receiver: each has one."""
        return self.receiver

    @property
    def fault(self) -> str:
        """Why it cannot be what somebody was told."""
        return "" if self.first <= self.last else f"a week must not end before it begins, got {self.first}, {self.last}"

    def claim_ended(self, now_s: int) -> bool:
        """Tell whether a claim is over; one from a time that has not come yet is, too."""
        return self.claimed_s is None or not 0 <= now_s - self.claimed_s < CLAIMED_FOR_S


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


# The dashboard: an operator's file beside the registry, which changes without a release of the app.
#
#     [group.browser]                            # names for sets of a metric's values: a list, or patterns with * and ?
#     "Chrome" = "Chrome *"
#     "Old" = ["Internet Explorer *", "Opera Mini"]
#
#     [group.load_time]                          # and for numbers between two edges
#     "slow" = { from = 3, below = 10 }
#
#     [metric.browser]
#     tags = ["web"]
#
#     [question]
#     "Chrome by week" = 'share(browser in "Chrome *") by week'
#
# Nothing that is counted, and no plan's digest, depends on it. The store keeps it, so that all processes read the same.


FILE_NAME = "dashboard.toml"
FILE_BYTES_MAX = 256 * 1024
NAME_CHARACTERS_MAX = 80
_NAMES = re.compile("[a-z][a-z0-9_]*")
ENTRIES_MAX = 1_000
"""The most groups, tags of all metrics, and questions: a page reads them all."""


@dataclass(frozen=True)
class ValueGroup:
    """A name for some values of a metric, or for the numbers between two edges."""

    metric: str
    name: str
    patterns: tuple[str, ...] = ()
    lower: Decimal | None = None
    """For numbers: the least, in the metric's unit; None without one."""
    below: Decimal | None = None
    """All numbers of the group are below it; None without one."""
    late: bool = False
    """Whether it was written when the metric had reports: so it may have been made because of what these showed."""

    def has(self, value: str) -> bool:
        """Tell whether a value is one of it. No pattern means "other" or "none": they have to be named."""
        return value in self.patterns or (
            value not in (OTHER, NONE) and any(fnmatchcase(value, pattern) for pattern in self.patterns)
        )

    def places(self, plan: Plan) -> Sequence[int]:
        """Return which values of a plan it has, or which ranges, by number; raise ConfigurationError where none can be.

        The first range is that below the first edge.
        """
        where = f"group.{self.metric}.{self.name}"
        if isinstance(plan.domain, Buckets):
            if self.patterns:
                raise ConfigurationError(f"{where}: {self.metric} is of numbers: write {{ from = 3, below = 10 }}")
            edges = [Decimal(edge).scaleb(-plan.domain.decimals) for edge in plan.domain.edges]
            for end in (self.lower, self.below):
                if end is not None and end not in edges:
                    raise ConfigurationError(f"{where}: {end} is no edge of {self.metric}: {_listed(map(str, edges))}")
            first = 0 if self.lower is None else edges.index(self.lower) + 1
            return range(first, len(edges) + 1 if self.below is None else edges.index(self.below) + 1)
        if not (plan.values and self.patterns):
            raise ConfigurationError(f"{where}: {self.metric} has no {'list of values' if self.patterns else 'ranges'}")
        places = [place for place, value in enumerate(plan.values) if self.has(value)]
        if not places:
            raise ConfigurationError(f"{where}: {self.metric} has no such value, only {_listed(plan.values)}")
        return places


@dataclass(frozen=True)
class Dashboard(Document):
    """All that the file says."""

    kind = "dashboard"
    most = 1
    public = True
    groups: tuple[ValueGroup, ...] = ()
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The tags of metrics, by name."""
    questions: Mapping[str, str] = field(default_factory=dict)
    """Saved questions, by title."""
    fixed: tuple[str, ...] = ()
    """Questions that were ever written before the first report of what they name; those that are gone count, too."""
    written: Mapping[str, int] = field(default_factory=dict)
    """How many groups a metric ever had that were written before its first report: those that are gone count, too."""

    @classmethod
    def load(cls, path: Path) -> "Dashboard":
        """Read the file; raise ConfigurationError, which names the place, for one that is wrong."""
        try:
            return cls.parse(read_text(path, FILE_BYTES_MAX))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{path}: {error}") from None

    @classmethod
    def parse(cls, text: str) -> "Dashboard":
        """Read its text; raise ConfigurationError, which names the place."""
        document = parse_toml(text)
        for name in document:
            if name not in ("group", "metric", "question"):
                raise ConfigurationError(f"there is no table {name}, only group, metric and question")
        groups = tuple(
            _group(metric, name, value)
            for metric, named in _table(document, "group").items()
            for name, value in _table(named, f"group.{metric}", whole=True).items()
        )
        tags = {
            metric: _texts(_only(keys, f"metric.{metric}", "tags").get("tags", []), f"metric.{metric}.tags")
            for metric, keys in _table(document, "metric").items()
        }
        questions = {
            _named(title, "question"): _texts(text, f"question.{title}", characters=2_000)[0]
            for title, text in _table(document, "question").items()
        }
        for what, number in (
            ("groups", len(groups)),
            ("tags", sum(map(len, tags.values()))),
            ("questions", len(questions)),
        ):
            if number > ENTRIES_MAX:
                raise ConfigurationError(f"there may be {ENTRIES_MAX:,} {what} at most, got {number:,}")
        return cls(groups, tags, questions)

    def following(self, before: "Dashboard", with_reports: Sequence[str], asked: Sequence[str] = ()) -> "Dashboard":
        """Return it as it is kept after another one, where some metrics have reports: which groups came late.

        `asked` are names of which a question may know something: those of metrics with reports, and of their columns.
        """
        known = {replace(each, late=False): each for each in before.groups}
        groups = tuple(known.get(each, replace(each, late=each.metric in with_reports)) for each in self.groups)
        written = dict(before.written)
        for each in groups:
            if not each.late and each not in before.groups:
                written[each.metric] = written.get(each.metric, 0) + 1
        known_names = {*with_reports, *asked}
        early = [text for text in self.questions.values() if known_names.isdisjoint(_NAMES.findall(text))]
        fixed = tuple(dict.fromkeys([*before.fixed, *early]))
        return replace(self, groups=groups, written=written, fixed=fixed)

    def groups_of(self, metric: str) -> Sequence[ValueGroup]:
        """Return the groups of a metric, in the order of the file."""
        return [each for each in self.groups if each.metric == metric]

    def check(self, plans: Mapping[str, Plan]) -> None:
        """Raise ConfigurationError for a name that is no metric's, and for a group that has nothing of its metric."""
        for metric in [*(each.metric for each in self.groups), *self.tags]:
            if metric not in plans:
                raise ConfigurationError(f"the registry has no metric {metric}, only {_listed(plans)}")
        for each in self.groups:
            each.places(plans[each.metric])


def _listed(names: Iterable[str], most: int = 8) -> str:
    given = list(names)
    return ", ".join(given[:most]) + f" and {len(given) - most:,} more" * (len(given) > most)


def _table(document: Any, name: str, *, whole: bool = False) -> Mapping[str, Any]:
    found = document if whole else document.get(name, {})
    if not isinstance(found, dict):
        raise ConfigurationError(f"{name} must be a table, [{name}]")
    return found


def _only(document: Any, name: str, *keys: str) -> Mapping[str, Any]:
    found = _table(document, name, whole=True)
    for key in found:
        if key not in keys:
            raise ConfigurationError(f"{name}: there is no key {key}, only {' and '.join(keys)}")
    return found


def _named(name: str, where: str) -> str:
    if not (name.strip() and len(name) <= NAME_CHARACTERS_MAX and is_one_line(name)):
        raise ConfigurationError(
            f"{where}: a name must have 1 to {NAME_CHARACTERS_MAX} characters of one line, got {name!r}"
        )
    return name


def _texts(value: Any, where: str, characters: int = 200) -> tuple[str, ...]:
    """Return one text, or those of a list."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(each, str) and 0 < len(each) <= characters for each in texts):
        raise ConfigurationError(f"{where} must be texts of 1 to {characters:,} characters")
    return tuple(texts)


def _group(metric: str, name: str, value: Any) -> ValueGroup:
    where = f"group.{metric}.{_named(name, f'group.{metric}')}"
    if isinstance(value, dict):
        keys = _only(value, where, "from", "below")
        ends = [_edge(keys.get(key), f"{where}.{key}") for key in ("from", "below")]
        lower, below = ends
        if lower is None and below is None:
            raise ConfigurationError(f"{where} needs from, below, or both")
        if lower is not None and below is not None and lower >= below:
            raise ConfigurationError(f"{where}: from must be less than below, got {lower} and {below}")
        return ValueGroup(metric, name, (), lower, below)
    patterns = _texts(value, where)
    if not patterns:
        raise ConfigurationError(f"{where} must have a value or a pattern")
    return ValueGroup(metric, name, patterns)


def _edge(value: Any, where: str) -> Decimal | None:
    if value is None or (
        isinstance(value, Decimal | int) and not isinstance(value, bool) and Decimal(value).is_finite()
    ):
        return None if value is None else Decimal(value)
    raise ConfigurationError(f"{where} must be a number")


# Keys: who may upload, who may read, and who may change what the aggregator does.
#
# A key's text is `dither_SCOPE_ID_SECRET`, with 160 random bits as its secret. Only a keyed hash of the text is stored:
# nobody who reads a store, or a backup of it, learns a key. The text is looked up by that hash: how long that takes
# depends on the hash alone, of which nobody without the store's secret knows anything.


ACTIVE, WAITING, REVOKED = STATES = ("active", "waiting", "revoked")
"""A key's states. An app that uploads with a waiting one is told to come again later."""

SECRET_BITS = 160
ID_BYTES = 4
LABEL_CHARACTERS_MAX = 100
KEYS_MAX = 1_000
"""How many keys a store knows, the revoked ones with them: every process holds all of them."""
TEXT_BYTES_MAX = 512
DISTINCT_MIN = 8
"""Different characters of a strong key: 40 random hexadecimal digits have fewer in less than one case of a billion."""

_OURS = re.compile(r"dither_(write|read|admin)_([0-9a-f]{8})_[a-z2-7]{32}")
_ALPHABETS = ((r"[0-9]+", 3), (r"[0-9a-fA-F]+", 4), (r"[0-9a-z]+|[0-9A-Z]+", 5), (r"[!-~]+", 6))
"""The alphabets of random texts, and how many bits a character of each is worth at most."""


@dataclass(frozen=True)
class Key(Document):
    """A key as a store knows it: without its text."""

    kind = "keys"
    most = KEYS_MAX
    id: str
    scope: str
    digest: bytes
    """The keyed hash of its text."""
    label: str
    made: date
    last_used: date | None = None
    """The last day on which it was shown. No more is kept of who shows it."""
    state: str = ACTIVE

    @property
    def document_id(self) -> str:
        """Its id, which its text has, too."""
        return self.id

    def without_digest(self) -> dict[str, str | None]:
        """Return what an operator is told of it: everything but the hash."""
        last_used = self.last_used.isoformat() if self.last_used else None
        named = {"id": self.id, "scope": self.scope, "label": self.label, "state": self.state}
        return {**named, "made": self.made.isoformat(), "last_used": last_used}

    def to_document(self) -> dict[str, str | None]:
        """Return all of it by name."""
        return {**self.without_digest(), "digest": self.digest.hex()}

    @classmethod
    def _of(cls, fields: Mapping[str, Any]) -> Self:
        last_used = fields["last_used"]
        key = cls(
            fields["id"],
            fields["scope"],
            bytes.fromhex(fields["digest"]),
            fields["label"],
            date.fromisoformat(fields["made"]),
            None if last_used is None else date.fromisoformat(last_used),
            fields["state"],
        )
        if not (key.scope in SCOPES and key.state in STATES and isinstance(key.id, str) and isinstance(key.label, str)):
            raise ValueError("it has no scope, state, id and label that are known")
        return key


class Keys:
    """All the keys of a store at one version."""

    def __init__(self, keys: Iterable[Key], version: int, secret: bytes) -> None:
        self.version = version
        self.by_id = {key.id: key for key in keys}
        self._by_digest = {key.digest: key for key in self.by_id.values()}
        self._secret = secret
        self.reading_needs_key = any(key.scope in READING for key in self.by_id.values())
        """Whether a read or admin key was ever made. A revoked one counts: revoking the last opens nothing."""

    def find(self, text: bytes) -> Key | None:
        """Return the key with this text, in whatever state; None where there is none."""
        return self._by_digest.get(digest_of(self._secret, text))

    def active(self, id_: str, scopes: Sequence[str]) -> Key | None:
        """Return an active key of one of some scopes by its id."""
        key = self.by_id.get(id_)
        return key if key and key.state == ACTIVE and key.scope in scopes else None

    def listed(self) -> list[Key]:
        """Return all keys, by scope and day."""
        return sorted(self.by_id.values(), key=lambda key: (SCOPES.index(key.scope), key.made, key.id))

    # Changes: each returns the keys that are to be stored in place of these.

    def adding(self, scope: str, text: str, label: str, today: date) -> list[Key]:
        """Return these keys with a new one behind them. Raises StoreError for one that cannot be taken."""
        if fault := label_fault(label) or text_fault(text):
            raise StoreError(fault)
        if self.find(text.encode()):
            raise StoreError("this key is known already, and one text cannot be two keys")
        if len(self.by_id) >= KEYS_MAX:
            raise StoreError(f"a store knows at most {KEYS_MAX:,} keys, and this one does")
        ours = _OURS.fullmatch(text)
        if ours and ours[1] != scope:
            raise StoreError(f"the text says that it is a {ours[1]} key, and a {scope} key is wanted")
        id_ = id_in(text) or secrets.token_hex(ID_BYTES)
        if id_ in self.by_id:
            raise StoreError(f"there is a key {id_} already")
        return [*self.by_id.values(), Key(id_, scope, digest_of(self._secret, text.encode()), label, today)]

    def revoking(self, id_: str, wait: bool) -> list[Key]:
        """Return these keys with one of them revoked, or waiting. Raises StoreError where that cannot be."""
        key = self.by_id.get(id_)
        if key is None:
            raise StoreError(f"there is no key {id_!r}; `dither keys list` shows all")
        if wait and key.scope != WRITE:
            raise StoreError(f"{id_} is a {key.scope} key: only uploads can wait, so only a write key can")
        if wait and key.state == REVOKED:
            raise StoreError(f"{id_} was revoked before: devices that were refused do not come again by themselves")
        state = WAITING if wait else REVOKED
        return [replace(each, state=state) if each is key else each for each in self.by_id.values()]

    def used(self, ids: Iterable[str], day: date) -> list[Key]:
        """Return those of some keys that were not yet known to be used on a day, as used on it."""
        known = [self.by_id[id_] for id_ in ids if id_ in self.by_id]
        return [replace(key, last_used=day) for key in known if key.last_used is None or key.last_used < day]

    def not_after(self, day: date) -> list[Key]:
        """Return those that were made or used after a day, as made and used on it at the latest."""
        bounded = [
            replace(key, made=min(key.made, day), last_used=key.last_used and min(key.last_used, day))
            for key in self.by_id.values()
        ]
        return [key for key in bounded if key != self.by_id[key.id]]


def asked_id(text: str) -> str:
    """Return the id that somebody names, also by a whole key. Raises StoreError, which does not repeat the text."""
    found = re.fullmatch(r"[0-9a-f]{8}", text)
    if id_ := found[0] if found else id_in(text):
        return id_
    raise StoreError("a key's id has 8 hexadecimal digits, as `dither keys list` prints it")


def masked(text: str) -> str:
    """Return a text in which keys are told by their ids alone."""
    return _OURS.sub(lambda found: f"the key {found[2]}", text)


def digest_of(secret: bytes, text: bytes) -> bytes:
    """Return the keyed hash of a key's text: 32 bytes."""
    return hashlib.blake2b(text, key=secret, digest_size=32, person=b"dither key").digest()


def new_text(scope: str) -> str:
    """Return the text of a new key."""
    secret = b32encode(secrets.token_bytes(SECRET_BITS // 8)).decode("ascii").lower()
    return f"dither_{scope}_{secrets.token_hex(ID_BYTES)}_{secret}"


def id_in(text: str) -> str:
    """Return the id that a key's text has in it; "" for a text that was not made here."""
    ours = _OURS.fullmatch(text)
    return ours[2] if ours else ""


def first_key(text: str, secret: bytes, today: date) -> Key:
    """Return the one key of a store that was made before keys had scopes, as a write key."""
    (key,) = Keys([], 0, secret).adding(WRITE, text, "made with the store", today)
    return key


def text_fault(text: str) -> str:
    """Return why a text is too weak to be a key, as a sentence; "" for one that may have 160 random bits.

    Nobody can tell by a text how it was drawn: a refused one cannot have been drawn well.
    """
    if not text:
        return "there is no key: `openssl rand -hex 20` makes one"
    if not text.isascii() or not text.isprintable() or " " in text or len(text) > TEXT_BYTES_MAX:
        return f"a key must be at most {TEXT_BYTES_MAX} printable ASCII characters without spaces"
    bits = next((bits for alphabet, bits in _ALPHABETS if re.fullmatch(alphabet, text)), 0)
    repeats = text in (text + text)[1:-1]
    if len(text) * bits < SECRET_BITS or len(set(text)) < DISTINCT_MIN or repeats:
        needed = f"{ceil(SECRET_BITS / 4)} hexadecimal digits or {ceil(SECRET_BITS / 6)} characters of base64"
        return (
            f"the key is too weak: it must have {SECRET_BITS} random bits, which are {needed}; "
            "`openssl rand -hex 20` makes one"
        )
    return ""


def label_fault(label: str) -> str:
    """Return why a text cannot be a key's label, as a sentence; "" for one that can."""
    if len(label) > LABEL_CHARACTERS_MAX or not is_one_line(label):
        return f"a label must be one line of at most {LABEL_CHARACTERS_MAX} characters without control characters"
    return ""
