"""The form of the login page, which everybody may send, read on the thread that takes uploads."""

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dither_aggregator.store import SQLiteStore
from dither_aggregator.store.document_kinds import READ
from dither_aggregator.web.authentication import FORM, FORM_BYTES_MAX, Login
from dither_aggregator.web.http_messages import headers_of
from dither_aggregator.web.http_server import BODY_BYTES_MAX
from dither_shared.wire.reading import Problem
from tests.support.bounding import bounded
from tests.support.keys import STRONG
from tests.support.soaking import scaled

HEADERS = {b"content-type": FORM}
PARTS = (
    b"key=", b"next=", b"&", b"=", b";", b"%", b"%41", b"%F0%9F%98%80", b"%ED%A0%80", b"%00", b"+", b"/", b"//",
    b"\xe9", b"a", b"\r\n", STRONG.encode(),
)  # fmt: skip


def drawn(number: int) -> Iterator[bytes]:
    """Yield forms: some parts of one, and each part over and over, as long as a form and as a body may be."""
    rng = random.Random("forms")
    for _ in range(number):
        yield b"".join(rng.choices(PARTS, k=rng.randrange(12)))
    for length in (FORM_BYTES_MAX, BODY_BYTES_MAX):
        for part in PARTS:
            yield b"key=" + part * (length // len(part) - 4)


def entered(login: Login, body: bytes) -> bytes | Problem:
    """Return where a form without a right key leads, or why it is refused."""
    try:
        key, answer = login.enter(HEADERS, body, "")
    except Problem as problem:
        return problem
    assert key is None
    return dict(answer.headers)[b"location"]


def test_any_form_is_read_or_refused_at_once(tmp_path: Path) -> None:
    """Two megabytes of escapes took half a second, and 150 MB."""
    read = 0
    with closing(SQLiteStore.create(tmp_path, "example")) as store:
        login = Login(store)
        for body in drawn(scaled(1_000, 100_000)):
            with bounded(256 * FORM_BYTES_MAX):
                answer = entered(login, body)
            if isinstance(answer, Problem):
                assert answer.slug == ("too-large" if len(body) > FORM_BYTES_MAX else "malformed")
                continue
            assert answer.startswith(b"/login?wrong=yes&next=%2F")
            read += 1
    assert read > 100


def test_the_longest_address_fits_into_a_form(tmp_path: Path) -> None:
    place = "/?" + "\N{PERCENT SIGN}" * 1_999
    body = f"key={STRONG}&next={place.replace('%', '%25').replace('/', '%2F')}".encode()
    assert len(body) < FORM_BYTES_MAX
    with closing(SQLiteStore.create(tmp_path, "example")) as store:
        _, answer = Login(store).enter(HEADERS, body, "")
    assert dict(answer.headers)[b"location"].endswith(b"%25" * 1_999)


@pytest.mark.parametrize("over", [0, 1])
def test_a_form_may_have_so_many_bytes_and_no_more(tmp_path: Path, over: int) -> None:
    body = b"key=" + b"a" * (FORM_BYTES_MAX - 4 + over)
    with closing(SQLiteStore.create(tmp_path, "example")) as store:
        if over:
            with pytest.raises(Problem, match=f"at most {FORM_BYTES_MAX} bytes"):
                Login(store).enter(HEADERS, body, "")
        else:
            assert Login(store).enter(HEADERS, body, "")[0] is None


def test_a_session_is_found_among_cookies_that_came_in_pieces(tmp_path: Path) -> None:
    """HTTP/2 cuts a Cookie into its pairs, and a proxy may hand on several."""
    with closing(SQLiteStore.create(tmp_path, "example")) as store:
        key = store.create_key(READ, "of the tests")[1]
        login = Login(store)
        _, answer = login.enter(HEADERS, b"key=" + key.encode(), "")
        pair = dict(answer.headers)[b"set-cookie"].partition(b";")[0]
        for cookies in ([pair], [b"a=b", pair], [pair, b"a=b"], [b"a=b; c=d", pair + b"; e=f"]):
            headers = headers_of({"headers": [(b"cookie", cookie) for cookie in cookies]})
            assert login.session(headers)


@pytest.mark.parametrize(
    ("origin", "host", "fine"),
    [
        (b"https://a.example", b"a.example", True),
        (b"https://a.example", b"A.example:443", True),
        (b"http://a.example", b"a.example:80", True),
        (b"http://a.example:8080", b"a.example:8080", True),
        (b"https://a.example", b"a.example:80", False),
        (b"https://a.example:444", b"a.example", False),
        (b"https://b.example", b"a.example", False),
        (b"null", b"a.example", False),
    ],
)
def test_a_form_is_from_here_if_its_origin_is_this_host(origin: bytes, host: bytes, fine: bool, tmp_path: Path) -> None:
    """An origin leaves out its scheme's own port, and a host may say it."""
    with closing(SQLiteStore.create(tmp_path, "example")) as store:
        headers = {**HEADERS, b"origin": origin, b"host": host}
        if fine:
            Login(store).enter(headers, b"key=x", "")
        else:
            with pytest.raises(Problem, match="not sent from a page"):
                Login(store).enter(headers, b"key=x", "")


@pytest.mark.parametrize("said", [b"https", b"HTTPS", b"https, http", b" https ,http"])
def test_a_cookie_over_tls_is_secure_however_many_proxies_say_so(said: bytes, tmp_path: Path) -> None:
    with closing(SQLiteStore.create(tmp_path, "example")) as store:
        headers = {**HEADERS, b"host": b"localhost", b"x-forwarded-proto": said}
        answer = Login(store).leave(headers, "")
        assert b"; Secure" in dict(answer.headers)[b"set-cookie"]
