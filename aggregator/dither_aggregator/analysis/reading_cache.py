"""Kept readings: what is read of sealed days is read once, by a process that nobody waits for, and kept in the store.

    key       a digest of all that a reading depends on: estimator version, store and who is told, plan, candidates,
              the days with the digests of their tallies, and the view
    content   MessagePack in zlib behind a keyed digest: plain values, arrays, and records of classes that are listed
              here or by an estimand. A damaged entry counts as not kept, and a reading of another class is not kept

A process has one of three ways to go about it, by the `keeper` of its store:

    none      everything is read here and now, and nothing kept: tests, trials, the command line
    Kept      requests: what is slow is taken from the store or raises NotReady, and all else is read at once; a page
              of many readings that comes `promptly` reads as long as its time allows, and then raises NotReady, too
    Computing the one process that makes and keeps what is missing
"""

import hashlib
import hmac
import logging
import time
import traceback
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import date, timedelta
from functools import cache
from time import monotonic
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
from cachetools import LRUCache

from dither_aggregator.counting import BadTally, TallyGone
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.store.contract import READING_BYTES_MAX
from dither_aggregator.store.records import KeptReading
from dither_shared.errors import DitherError

ESTIMATOR_VERSION = 7
"""To be raised with every change that gives other figures of the same counts: what was kept before is then not read."""
REMEMBERED_MAX = 250_000
"""Rows of kept readings that a process has unpacked."""
UNPACKED_BYTES_MAX = 16 * READING_BYTES_MAX
BEGUN_FOR_S = 60.0
"""How long a reading counts as being made after that was last said: its process may be gone."""
PROMPT_S = 0.75
"""After so many seconds of processor time a prompt page makes no reading: what is left of one is for writing it."""
PROMPT_LEAST = 100
"""A prompt page makes so many readings however slow the machine is: that of a few metrics comes whole."""
TRIES_MAX = 8
RETRY_S = 60.0
"""After a reading could not be made twice; about twice as long each time. After the first time it is tried at once."""
RETRY_MAX_S = 86_400.0
_DIGEST_BYTES = 16
REASON_CHARACTERS_MAX = 120

_log = logging.getLogger("dither_aggregator")

T = TypeVar("T")
Days = Sequence[tuple[date, str]]
"""Days with reports, each with the digest of its final tally; "" where it is not final yet."""


class NotReady(DitherError):
    """A reading that is not there; its words follow the name of a metric."""

    def __init__(self, words: str, done: int = 0, of: int = 1, *, failed: bool = False) -> None:
        super().__init__(words)
        self.words, self.done, self.of, self.failed = words, done, of, failed

    @classmethod
    def of_several(cls, missing: Sequence["NotReady"], of: int, noun: str) -> "NotReady":
        """Return what is told of several readings, of which some are missing."""
        if failed := next((each for each in missing if each.failed), None):
            return failed
        done = of - len(missing)
        return cls(f"being computed: {done} of {of} {noun} done", done, of)


class Elsewhere(DitherError):
    """A reading that takes seconds and is not kept: it is made by a process that nobody else waits for."""


class OpenReading(msgspec.Struct, frozen=True):
    """The content of an entry in whose place no reading is yet."""

    at: float
    words: str
    """How far it is, or why it could not be made."""
    metric: str
    tries: int = 0
    """How often it could not be made."""
    retry_at: float = 0.0
    damaged: bool = False
    """Whether that is because its counts are those of no reports."""

    @property
    def failed(self) -> bool:
        """Whether it could not be made."""
        return bool(self.tries)


@dataclass(frozen=True)
class AskedReading:
    """A reading that is asked for."""

    key: str
    stored: StoredPlan
    first: date
    """The earliest day that it is of."""
    codec: "Codec"
    slow: bool
    """Whether no request makes it."""
    noun: str
    """The work on it, in words."""
    whole: str = ""
    """The key of the reading of all counts. It is the same one where nothing is left out."""


class Keeper(ABC):
    """The way of a process to kept readings. For one thread."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.wanted = False
        """Whether something was asked for that is not there, since this was last set."""
        self._remembered: LRUCache[str, Any] = LRUCache(REMEMBERED_MAX, getsizeof=_size)

    def once(self, asked: AskedReading, make: Callable[[], T]) -> T:
        """Return a reading: kept, or made now. Raises NotReady, and BadTally as `make` does."""
        if asked.key in self._remembered:
            return cast("T", self._remembered[asked.key])
        entry = self.store.kept_reading(asked.key)
        if entry and not entry.open:
            try:
                return self._remember(asked.key, cast("T", asked.codec.unpack(entry.content, self._secret(asked.key))))
            except DamagedReading:
                pass
        return self._missing(asked, make, state_of(entry) if entry and entry.open else None)

    @abstractmethod
    def _missing(self, asked: AskedReading, make: Callable[[], T], state: OpenReading | None) -> T: ...

    def _remember(self, key: str, value: T) -> T:
        if _size(value) <= REMEMBERED_MAX:
            self._remembered[key] = value
        return value

    def _secret(self, key: str) -> bytes:
        return self.store.signing_secret(b"reading " + key.encode())


class Kept(Keeper):
    """Requests: what is slow is read out of the store, or not at all."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._until: float | None = None
        self._least = 0

    @contextmanager
    def promptly(self) -> Iterator[None]:
        """Within this, raise NotReady for all further readings once so many had to be made that PROMPT_S are over."""
        self._until, self._least = time.process_time() + PROMPT_S, PROMPT_LEAST
        try:
            yield
        finally:
            self._until = None

    def refuse_late(self) -> None:
        """Raise NotReady where the time of a prompt page is over."""
        if self._until is not None and self._least <= 0 and time.process_time() > self._until:
            self.wanted = True
            raise NotReady("being computed")

    def _missing(self, asked: AskedReading, make: Callable[[], T], state: OpenReading | None) -> T:
        if not asked.slow:
            self._least -= 1
            return self._remember(asked.key, make())
        if state and state.failed:
            self.wanted |= state.tries < TRIES_MAX and state.retry_at <= time.time()
            raise _failure(state)
        self.wanted = True
        begun = state and time.time() - state.at < BEGUN_FOR_S
        raise NotReady(f"being computed: {state.words}" if state and begun else "being computed")


class Computing(Keeper):
    """Makes what is missing, and hands each over as soon as it is made."""

    def __init__(self, store: Store, keep: Callable[[KeptReading], None], *, alone: bool) -> None:
        super().__init__(store)
        self._keep = keep
        self._alone = alone
        """Whether no other process computes for this store: what seems begun was left by one that is gone."""

    def _missing(self, asked: AskedReading, make: Callable[[], T], state: OpenReading | None) -> T:
        tries, now, metric = state.tries if state else 0, time.time(), asked.stored.plan.metric
        if state and state.failed and (tries >= TRIES_MAX or now < state.retry_at):
            raise _failure(state)
        if state and not state.failed and not self._alone and now - state.at < BEGUN_FOR_S:
            raise NotReady(f"being computed: {state.words}")
        outer = _COMPUTING.get()
        if asked.slow or outer is None:
            say = _Saying(lambda words: self._keep(_open(asked, OpenReading(time.time(), words, metric, tries))))
            say.begin(asked.noun)
        else:  # a part of another reading, which says how far it is
            say = outer[2]
        before = _COMPUTING.set((self, asked, say))
        try:
            value = make()
        except (TallyGone, NotReady):
            raise
        except BadTally as error:
            self._failed(asked, f"{error}", tries, damaged=True)
            raise
        except Exception as error:  # the others go on: what nobody foresaw of one metric is no other's
            if outer and say is outer[2]:
                raise  # it is the failure of the whole reading
            _log.error("a reading of %s failed with %s:\n%s", metric, type(error).__name__, _frames(error))
            self._failed(asked, _describe_error(error), tries)
            raise NotReady(f"it could not be computed: {_describe_error(error)}", failed=True) from error
        finally:
            _COMPUTING.reset(before)
        self._keep_made(asked, value, tries)
        return self._remember(asked.key, value)

    def keep_figure(self, name: str, value: int) -> None:
        """Keep a figure of the last sealed day."""
        day = self.store.sealed()
        self._keep(KeptReading(_figure_key(name, day), day, False, b"%d" % value))

    def _keep_made(self, asked: AskedReading, value: object, tries: int) -> None:
        whole = asked.whole if getattr(value, "left_out", None) == 0 else ""
        for key in dict.fromkeys(filter(None, (asked.key, whole))):
            content = asked.codec.pack(value, self._secret(key))
            if content is not None and len(content) <= READING_BYTES_MAX:
                self._keep(KeptReading(key, asked.first, False, content))
            elif asked.slow:
                self._failed(asked, "it is too long to be kept", tries)

    def _failed(self, asked: AskedReading, reason: str, tries: int, *, damaged: bool = False) -> None:
        if asked.slow:
            self._keep(
                failed(_open(asked, OpenReading(0.0, "", asked.stored.plan.metric, tries)), reason, damaged=damaged)
            )


_COMPUTING: ContextVar[tuple[Computing, AskedReading, "_Saying"] | None] = ContextVar("computing", default=None)


class _Saying:
    """Says how far a reading is, once a second at most."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._at, self.noun = say, 0.0, ""

    def begin(self, noun: str) -> None:
        """Say that it was begun."""
        self.noun = noun
        self.say(noun)

    def say(self, words: str) -> None:
        """Say how far it is."""
        if self.noun and monotonic() - self._at >= 1.0:
            self._at = monotonic()
            self._say(words)


def tell_progress(words: str) -> None:
    """Say how far the reading is that is being made, if any is."""
    if computing := _COMPUTING.get():
        computing[2].say(words)


def part_once(what: str, of: Sequence[str], make: Callable[[], T], records: Iterable[type]) -> T:
    """Return a part that several readings of the same counts have, made once: kept where readings are."""
    computing = _COMPUTING.get()
    if computing is None:
        return make()
    keeper, asked, _ = computing
    key = _digest(ESTIMATOR_VERSION, keeper.store.generation, what, *of)
    return keeper.once(replace(asked, key=key, codec=Codec(records, asked.stored), slow=False, whole=""), make)


def once(
    store: Store, stored: StoredPlan, what: str, days: Days, view: Sequence[object], make: Callable[[], T],
    codec: "Codec", *, slow: bool, noun: str = "",
) -> T:  # fmt: skip
    """Return what is read of some sealed days of a plan, or raise NotReady.

    `view` is all else that it depends on. A read key's reading that leaves nothing out is everybody's.
    """
    keeper = keeper_of(store)
    if keeper is None or not days:
        return make()
    plan = stored.plan
    same = (what, plan.metric, plan.digest, stored.reservation, stored.period_days, stored.candidates, days, view)
    key, whole = (_digest(ESTIMATOR_VERSION, who, *same) for who in (store.generation, keeper.store.generation))
    return keeper.once(AskedReading(key, stored, min(days)[0], codec, slow, noun, whole), make)


def keeper_of(store: Store | None) -> Keeper | None:
    """Return the keeper of this process; None where everything is read here and now."""
    return cast("Keeper | None", getattr(store, "keeper", None))


def promptly(store: Store) -> AbstractContextManager[None]:
    """Let a page have what can be read soon, where somebody waits for it: all else raises NotReady."""
    keeper = keeper_of(store)
    return keeper.promptly() if isinstance(keeper, Kept) else nullcontext()


def refuse_late(store: Store) -> None:
    """Raise NotReady where a page that is to come promptly has read for long enough. It comes again for the rest."""
    if isinstance(keeper := keeper_of(store), Kept):
        keeper.refuse_late()


def keep_figure(store: Store, name: str, value: int) -> None:
    """Keep a figure of the last sealed day for monitors, if this process computes; else nobody waits for it."""
    if isinstance(keeper := keeper_of(store), Computing):
        keeper.keep_figure(name, value)


def kept_figure(store: Store, name: str) -> int | None:
    """Return a figure of the last sealed day, or of the one before while that is not computed; None without one."""
    sealed = store.sealed()
    entries = (store.kept_reading(_figure_key(name, sealed - timedelta(days=back))) for back in (0, 1))
    entry = next(filter(None, entries), None)
    return int(entry.content) if entry and entry.content.isdigit() else None


def _figure_key(name: str, day: date) -> str:
    return f"figure {name} {day}"


def refuse_slow(store: Store, *, slow: bool) -> None:
    """Raise Elsewhere where something slow that is not kept would be read by a process that others wait for."""
    if slow and isinstance(keeper_of(store), Kept):
        raise Elsewhere


# Readings that are not there.


def _open(asked: AskedReading, state: OpenReading) -> KeptReading:
    return KeptReading(asked.key, asked.first, True, msgspec.msgpack.encode(state))


def state_of(entry: KeptReading) -> OpenReading | None:
    """Return what an open entry says; None where it is damaged."""
    try:
        return msgspec.msgpack.decode(entry.content, type=OpenReading)
    except msgspec.MsgspecError:
        return None


def failed(entry: KeptReading, reason: str, *, damaged: bool = False) -> KeptReading:
    """Return the entry of a reading that could not be made, in the place of the one that says that it was begun."""
    state = state_of(entry) or OpenReading(0.0, "", "")
    retry_at = time.time() + min(RETRY_S * (2**state.tries - 1), RETRY_MAX_S)
    state_now = OpenReading(
        time.time(), reason[:REASON_CHARACTERS_MAX], state.metric, state.tries + 1, retry_at, damaged
    )
    return entry._replace(content=msgspec.msgpack.encode(state_now))


def _failure(state: OpenReading) -> NotReady | BadTally:
    if state.damaged:
        return BadTally(state.words)
    when = time.strftime("%H:%M", time.gmtime(state.retry_at))
    then = "it is not tried again" if state.tries >= TRIES_MAX else f"it is tried again after {when} UTC"
    return NotReady(f"it could not be computed: {state.words}; {then}", failed=True)


def _frames(error: BaseException) -> str:
    """Return where it was raised, without its own words: they may hold what was sent."""
    return "".join(traceback.format_tb(error.__traceback__)).rstrip()


def _describe_error(error: BaseException) -> str:
    return (
        "it takes more memory than is allowed"
        if isinstance(error, MemoryError)
        else f"it failed with {type(error).__name__}"
    )


# Keys and contents.


def _digest(*parts: object) -> str:
    return hashlib.blake2b(msgspec.msgpack.encode(parts, enc_hook=_plain), digest_size=20).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, date):
        return value.isoformat()
    if is_dataclass(value):
        return [getattr(value, each.name) for each in fields(value)]
    raise TypeError(f"a key has no place for a {type(value).__name__}")


class DamagedReading(Exception):
    """The content of an entry is not what was kept."""


class Codec:
    """Packs values: None, numbers, texts, bytes, days, tuples, lists, mappings, arrays, and records of listed classes.

    A mechanism is kept as its place in the plan.
    """

    def __init__(self, records: Iterable[type], stored: StoredPlan) -> None:
        self._records = {record.__name__: record for record in records}
        self._stored = stored
        self._mechanisms = [part.mechanism for part in stored.plan.cells.parts]

    def pack(self, value: object, secret: bytes) -> bytes | None:
        """Return a value's bytes; None where it has something of a class that is not listed."""
        try:
            packed = zlib.compress(msgspec.msgpack.encode(self._encode(value)), 1)
        except TypeError:
            return None
        return _mac(packed, secret) + packed

    def unpack(self, content: bytes, secret: bytes) -> Any:
        """Return the value; raise DamagedReading."""
        mac, packed = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if not hmac.compare_digest(mac, _mac(packed, secret)):
            raise DamagedReading
        inflater = zlib.decompressobj()
        try:
            encoded = msgspec.msgpack.decode(inflater.decompress(packed, UNPACKED_BYTES_MAX))
            return self._decode(encoded)
        except (msgspec.MsgspecError, zlib.error, TypeError, ValueError, KeyError, IndexError) as error:
            raise DamagedReading from error

    def _encode(self, value: Any) -> Any:
        if value is None or type(value) in (bool, str, bytes, float):
            return value
        if type(value) is int:
            return value if -(2**63) <= value < 2**64 else ["int", str(value)]
        if isinstance(value, np.generic):
            return self._encode(value.item())
        if isinstance(value, np.ndarray):
            return ["array", value.dtype.str, list(value.shape), value.tobytes()]
        if isinstance(value, date):
            return ["day", value.isoformat()]
        if isinstance(value, dict):
            return ["dict", [[self._encode(key), self._encode(each)] for key, each in value.items()]]
        if value is self._stored:
            return ["stored"]
        if type(value) in (tuple, list):
            return self._encode_sequence(value)
        return self._encode_record(value)

    def _encode_sequence(self, values: Sequence[Any]) -> Any:
        """Records of one class are kept by column."""
        name = "tuple" if isinstance(values, tuple) else "list"
        kinds: set[type] = {type(each) for each in values}
        if len(kinds) == 1 and (kind := kinds.pop()) in self._records.values():
            columns = [[self._encode(getattr(each, field)) for each in values] for field in _fields(kind)]
            return ["rows", name, kind.__name__, len(values), columns]
        return [name, [self._encode(each) for each in values]]

    def _encode_record(self, value: Any) -> Any:
        record: type = type(value)
        if record in self._records.values():
            return ["of", record.__name__, [self._encode(getattr(value, field)) for field in _fields(record)]]
        return ["mechanism", self._mechanisms.index(value)] if value in self._mechanisms else self._refuse(value)

    def _refuse(self, value: object) -> Any:
        raise TypeError(f"a {type(value).__name__} is not kept")

    def _decode(self, encoded: Any) -> Any:
        if type(encoded) is not list:
            return encoded
        match encoded:
            case ["array", dtype, shape, data]:
                return np.frombuffer(data, np.dtype(dtype)).reshape(shape).copy()
            case ["tuple", values]:
                return tuple(map(self._decode, values))
            case ["rows", name, kind, number, columns]:
                return self._decode_rows(name, kind, number, columns)
            case ["of", kind, values]:
                record = self._records[kind]
                return record(**dict(zip(_fields(record), map(self._decode, values), strict=True)))
            case ["list", values]:
                return list(map(self._decode, values))
            case ["day", text]:
                return date.fromisoformat(text)
            case ["dict", items]:
                return {self._decode(key): self._decode(each) for key, each in items}
            case ["int", text]:
                return int(text)
            case ["stored"]:
                return self._stored
            case ["mechanism", place]:
                return self._mechanisms[place]
        return self._refuse(encoded)

    def _decode_rows(self, name: str, kind: str, number: int, columns: list[Any]) -> Any:
        record, names = self._records[kind], _fields(self._records[kind])
        plain = ([self._decode(each) if type(each) is list else each for each in column] for column in columns)
        cells = zip(*plain, strict=True)
        rows = [record(**dict(zip(names, each, strict=True))) for each in cells]
        if len(rows) != number:
            raise ValueError("rows are missing")
        return tuple(rows) if name == "tuple" else rows


@cache
def _fields(record: type) -> tuple[str, ...]:
    """Return the names of what a record is made of; what begins with an underscore is found again when it is asked."""
    if is_dataclass(record):
        return tuple(each.name for each in fields(record) if each.init and not each.name.startswith("_"))
    return tuple(cast("Any", record)._fields)


def _mac(packed: bytes, secret: bytes) -> bytes:
    return hashlib.blake2b(packed, key=secret, digest_size=_DIGEST_BYTES).digest()


def _size(value: Any) -> int:
    return 1 + len(getattr(value, "rows", ()) or ())
