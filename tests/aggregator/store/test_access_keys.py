"""Keys and the journal in stores of both kinds: made, revoked, used, and never to be read again."""

import math
import random
import secrets
from collections.abc import Callable, Mapping
from datetime import timedelta
from threading import Event, Thread, current_thread
from typing import Any

import pytest

from dither_aggregator.store import Store, StoreError
from dither_aggregator.store.document_kinds import KEYS_MAX, JournalEntry, Key, Keys, id_in, new_text, text_fault
from dither_aggregator.store.redis import redis_store as redis_data
from tests.support.keys import STRONG
from tests.support.stores import Place, RedisPlace


def test_several_keys_of_a_scope_are_found_by_their_texts_in_every_process(place: Place, store: Store) -> None:
    other = place.open()
    made = [store.create_key(scope, scope) for scope in ("write", "write", "read", "admin")]
    assert len({key.id for key, _ in made}) == len({text for _, text in made}) == 4
    other.refresh()
    for one in (store, other, place.open()):
        assert [one.keys.find(text.encode()) for _, text in made] == [key for key, _ in made]
        assert one.keys.find(b"wrong") is None
        assert [key.scope for key in one.keys.listed()] == ["write", "write", "read", "admin"]
    assert all(text.startswith(f"dither_{key.scope}_{key.id}_") for key, text in made)
    assert {key.made for key, _ in made} == {place.day()}


def test_a_refresh_takes_back_no_key_that_another_thread_makes_meanwhile(
    place: Place, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread has read the keys of before, and is slow to keep them."""
    place.open().create_key("read")
    begun, made, read = Event(), Event(), Key.from_document

    def slowly(document: Mapping[str, Any]) -> Key:
        if current_thread() is refreshing and not begun.is_set():
            begun.set()
            made.wait(0.5)  # the other thread is done by then, unless it waits for this one
        return read(document)

    monkeypatch.setattr(Key, "from_document", slowly)
    refreshing = Thread(target=store.refresh)
    refreshing.start()
    assert begun.wait(60)
    _, text = store.create_key("admin")
    made.set()
    refreshing.join(60)
    assert store.keys.find(text.encode())


def plain_content(place: Place) -> bytes:
    """Return everything that is kept, none of it compressed."""
    if not isinstance(place, RedisPlace):
        return place.content()
    place.configure("rdbcompression", "no")
    try:
        return place.content()
    finally:
        place.configure("rdbcompression", "yes")


def test_a_stores_bytes_hold_no_key(place: Place, store: Store) -> None:
    """A planted plain text is seen: the label is one."""
    texts = [store.create_key(scope, "an odd label")[1] for scope in ("write", "read", "admin")]
    store.register_key("write", STRONG)
    content = plain_content(place)
    assert b"an odd label" in content
    for text in (*texts, STRONG):
        assert text.encode() not in content
        assert text.rpartition("_")[2].encode() not in content


def test_a_key_of_one_store_is_none_of_another(store: Store) -> None:
    """The hash is keyed: equal texts have other hashes elsewhere."""
    ours = store.register_key("read", STRONG)
    theirs = Keys([], 0, secrets.token_bytes(32)).adding("read", STRONG, "", ours.made)[0]
    assert ours.digest != theirs.digest
    assert len(ours.digest) == 32


def test_160_bits_of_a_key_are_drawn() -> None:
    """200 draws of 32 letters miss 12 or more in less than one case of 10^9, and there are 32 places."""
    texts = [new_text("write").rpartition("_")[2] for _ in range(200)]
    assert {len(text) for text in texts} == {32}
    assert math.log2(32) * 32 == 160
    for place_ in range(32):
        assert len({text[place_] for text in texts}) > 20, place_
    assert id_in(new_text("read"))


def test_a_revoked_key_is_known_and_lets_nobody_in(place: Place, store: Store) -> None:
    key, text = store.create_key("read")
    other = place.open()
    assert other.keys.active(key.id, ["read"]) == key
    assert store.revoke_key(key.id).state == "revoked"
    other.refresh()
    for one in (store, other):
        found = one.keys.find(text.encode())
        assert found
        assert (found.state, one.keys.active(key.id, ["read"])) == ("revoked", None)
        assert one.keys.reading_needs_key  # revoking the last one opens nothing
    with pytest.raises(StoreError, match="known already"):
        store.register_key("read", text)


def test_a_write_key_may_wait_before_it_is_revoked(store: Store) -> None:
    key, _ = store.create_key("write")
    assert not store.keys.reading_needs_key
    assert store.revoke_key(key.id, wait=True).state == "waiting"
    assert store.revoke_key(key.id).state == "revoked"
    with pytest.raises(StoreError, match="was revoked before"):
        store.revoke_key(key.id, wait=True)
    reading, _ = store.create_key("read")
    with pytest.raises(StoreError, match="only a write key can"):
        store.revoke_key(reading.id, wait=True)
    with pytest.raises(StoreError, match="there is no key 'none'; `dither keys list` shows all"):
        store.revoke_key("none")


def test_the_last_use_is_a_day_and_is_written_once_a_day(place: Place, store: Store) -> None:
    key, _ = store.create_key("write")
    store.use_keys([key.id, "none"])
    version = store.keys.version
    for _ in range(3):
        store.use_keys([key.id])
    assert (store.keys.version, store.keys.by_id[key.id].last_used) == (version, place.day())
    place.travel(1)
    store.use_keys([key.id])
    assert store.keys.by_id[key.id].last_used == place.day(1)
    place.travel(-1)
    store.use_keys([key.id])  # the clock is set back: a later day is known
    assert (store.keys.version, place.open().keys.by_id[key.id].last_used) == (version + 1, place.day(1))


def test_who_revokes_and_who_uses_do_not_undo_each_other(place: Place, store: Store) -> None:
    key, _ = store.create_key("write")
    stale = place.open()
    store.revoke_key(key.id)
    stale.use_keys([key.id])
    store.refresh()
    assert (store.keys.by_id[key.id].state, store.keys.by_id[key.id].last_used) == ("revoked", place.day())


@pytest.mark.parametrize("label", ["x" * 101, "two\nlines", "a\x07bell"])
def test_a_label_is_one_short_line(store: Store, label: str) -> None:
    with pytest.raises(StoreError, match="a label must be one line of at most 100 characters"):
        store.create_key("read", label)
    assert store.keys.listed() == []


def test_a_text_says_its_scope_and_is_one_key(store: Store) -> None:
    with pytest.raises(StoreError, match="says that it is a write key, and a read key is wanted"):
        store.register_key("read", new_text("write"))
    text = new_text("read")
    assert store.register_key("read", text).id == id_in(text)
    with pytest.raises(StoreError, match=f"there is a key {id_in(text)} already"):
        store.register_key("read", text[:-32] + new_text("read")[-32:])


def test_a_store_knows_so_many_keys_and_no_more(store: Store) -> None:
    many = Keys([], 0, b"secret")
    for _ in range(KEYS_MAX):
        many = Keys(many.adding("write", new_text("write"), "", store.clock_day()), 0, b"secret")
    with pytest.raises(StoreError, match="at most 1,000 keys"):
        many.adding("write", new_text("write"), "", store.clock_day())


@pytest.mark.parametrize(
    "text",
    [
        *("", "secret", "x" * 200, "ab" * 40, "correct horse battery staple, and so on for ever", "k\xe9y" * 30),
        *("9f3c07b1e5d28a4660cf19e7b35d82a4f10c6e9", "AbCdEfGhIjKlMnOpQrStUvWxYz", "0123456789" * 5),
        *("9f3c07b1e5d28a46" * 4, "1" * 60 + "234567", "z" * 600),
    ],
)
def test_what_was_not_drawn_well_is_no_key(text: str) -> None:
    assert text_fault(text).startswith(("a key must be at most", "the key is too weak", "there is no key: "))


@pytest.mark.parametrize(
    "draw",
    [
        lambda: secrets.token_hex(20),
        lambda: secrets.token_hex(32).upper(),
        lambda: secrets.token_urlsafe(21),
        lambda: secrets.token_urlsafe(24),
        lambda: new_text("admin"),
    ],
)
def test_what_was_drawn_well_is_a_key(draw: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded: one of 5 million texts of 21 bytes has no capital, or none but these, and is taken for one of fewer."""
    monkeypatch.setattr(secrets, "token_bytes", random.Random(1).randbytes)  # the others draw by it
    assert {text_fault(draw()) for _ in range(2_000)} == {""}


# The journal.


def test_the_journal_says_who_what_and_when_in_order(place: Place, store: Store) -> None:
    store.note("command line", "mark add", "version 158 \N{SNOWMAN}")
    place.travel(1)
    store.note("3f9a01bc", "key revoke", "x" * 1_000)
    first, second = place.open().journal()
    assert (first.actor, first.action, first.what) == ("command line", "mark add", "version 158 \N{SNOWMAN}")
    assert (second.actor, second.what) == ("3f9a01bc", "x" * 500)
    assert first.at.date() == place.day()
    assert first.at.microsecond == 0
    assert timedelta(days=1) <= second.at - first.at <= timedelta(days=1, minutes=1)
    assert store.journal(1) == [second]
    assert JournalEntry.from_document(first.to_document()) == first


def test_the_journal_keeps_the_last_entries(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_data, "ADDED_ITEMS", 4)
    monkeypatch.setattr(JournalEntry, "most", 10)
    for number in range(25):
        store.note("command line", "mark add", str(number))
    assert [entry.what for entry in store.journal()] == [str(number) for number in range(15, 25)]
    assert [entry.what for entry in store.journal(5)] == [str(number) for number in range(20, 25)]
