"""Keys: who may upload, who may read, and who may change what the aggregator does.

A key's text is `dither_SCOPE_ID_SECRET`, with 160 random bits as its secret. Only a keyed hash of the text is stored:
nobody who reads a store, or a backup of it, learns a key. The text is looked up by that hash: how long that takes
depends on the hash alone, of which nobody without the store's secret knows anything.
"""

import hashlib
import re
import secrets
from base64 import b32encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from math import ceil
from typing import Any, Self

from dither_aggregator.operations.scopes import READING, SCOPES, WRITE
from dither_aggregator.store.document_kinds import Document, is_one_line
from dither_aggregator.store.records import StoreError

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
