"""Links for other sites: what they show, to whom, until when, and that nothing else is let in by them."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import requests

from dither_aggregator.ingest.service import Service
from dither_aggregator.store import StoreError
from dither_aggregator.web.embed_links import DAYS_MAX, EmbedLink
from tests.support.aggregators import dither, http_server, sqlite_store, web_app
from tests.support.clocks import Clock
from tests.support.number_pages import words
from tests.support.registries import registry
from tests.support.sites import EXPIRES, Site, site, zipf


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path, 12) as made:
        for back in range(15):
            made.put((zipf(12) * 3_000).astype(np.int64), np.random.default_rng(back), back)
        yield made


def link(one: Site, metric: str = "color", until: int = 30, days: int = 7) -> tuple[str, str]:
    """Return the path of a link and the id of its key."""
    key = one.store.create_key("read")[0].id
    return EmbedLink(metric, one.day(-until), days).path(one.store, key), key


def refusal(one: Site, path: str) -> str:
    answer = one.client.get(path)
    assert answer.status_code == 403, answer.text
    assert "frame-ancestors *" in answer.headers["Content-Security-Policy"]
    return words(answer.text)


def test_a_link_shows_the_answer_of_the_metrics_page_as_a_card_and_as_a_picture(one: Site) -> None:
    path, _ = link(one)
    told = one.page().headline
    card, picture = one.client.get(path), one.client.get(f"{path}.svg")
    assert told in words(card.text)
    assert " reports · " in words(card.text)
    assert "<script" not in card.text
    assert "href=" not in re.sub(r"<link [^>]*>", "", card.text)
    root = ElementTree.fromstring(picture.data)  # of our own
    said = " ".join("".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text"))
    assert told in said.replace("\N{NO-BREAK SPACE}", " ")
    assert picture.content_type == "image/svg+xml"
    assert link(one, "dark")[0] != path
    assert "color" not in words(one.client.get(link(one, "dark")[0]).text)


def test_other_sites_may_show_what_a_link_leads_to_and_no_other_page(one: Site) -> None:
    path, _ = link(one)
    for each in (path, f"{path}.svg"):
        headers = one.client.get(each).headers
        assert "frame-ancestors *" in headers["Content-Security-Policy"]
        assert "script" not in headers["Content-Security-Policy"]
        assert headers["Cross-Origin-Resource-Policy"] == "cross-origin"
        assert "X-Frame-Options" not in headers
    for each in ("/", "/metrics/color", "/embedded"):
        headers = one.client.get(each).headers
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["X-Frame-Options"] == "DENY"


def test_a_link_that_was_changed_in_any_character_is_refused(one: Site) -> None:
    path, key = link(one)
    signed = path.rpartition("/")[2]
    for place in range(len(signed)):
        other = signed[:place] + ("A" if signed[place] != "A" else "B") + signed[place + 1 :]
        assert "this link was changed" in refusal(one, f"/embed/{other}"), other
    for wrong in ("x", key, f"{key}.", f"{key}.2026-01-01.color.7", "." * 9, signed + ".svg.svg", f"{signed}A"):
        assert "this link was changed" in refusal(one, f"/embed/{wrong}"), wrong
    admin = one.store.create_key("admin")[0].id
    with pytest.raises(StoreError, match="no read key"):
        EmbedLink("color", one.day(-1), 7).path(one.store, admin)


def test_a_link_ends_with_its_day_and_with_its_key(tmp_path: Path) -> None:
    clock = Clock()
    with sqlite_store(registry(expires=EXPIRES), tmp_path, clock) as store, Service(store) as service:
        reader, admin = (store.create_key(scope) for scope in ("read", "admin"))
        end = store.today()
        path = EmbedLink("color", end, 7).path(store, reader[0].id)
        server = http_server(web_app(service))
        with server.in_background():
            url = server.url
            assert requests.get(url + path, timeout=30).status_code == 200
            answer = requests.get(url + path, timeout=30, headers={"Authorization": f"Bearer {admin[1]}"})
            assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
            for other in ("/v1/metrics", "/metrics/color", "/"):  # by a link nobody is let in elsewhere
                answer = requests.get(url + other, timeout=30, allow_redirects=False)
                assert answer.status_code in (303, 401), other
            assert requests.post(url + path, timeout=30).status_code in (401, 405)
            clock.travel(1)
            answer = requests.get(url + path, timeout=30)
            assert (answer.status_code, f"this link ended on {end}" in answer.text) == (403, True)
            path = EmbedLink("color", store.today(), 7).path(store, reader[0].id)
            assert requests.get(url + path, timeout=30).status_code == 200
            store.revoke_key(reader[0].id)
            answer = requests.get(url + path, timeout=30)
            assert (answer.status_code, "the key behind it was revoked" in answer.text) == (403, True)


def test_a_link_sees_what_a_read_key_sees(tmp_path: Path) -> None:
    """A day of a few reports is no figure of its own; the operator's page on loopback has it."""
    with site(tmp_path, 12) as one:
        one.put((zipf(12) * 60).astype(np.int64), np.random.default_rng(1))
        path, _ = link(one, days=1)
        assert "Too few reports to be told with a read key" in words(one.client.get(path).text)
        assert "reports" in one.page().html


def test_any_question_is_text_in_a_card_and_in_a_picture(one: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "<i>&\x0c" + "long " * 80
    monkeypatch.setattr(type(one.store.plans("color")[0]), "question", hostile, raising=False)
    path, _ = link(one)
    assert "<i>" not in one.client.get(path).text
    ElementTree.fromstring(one.client.get(f"{path}.svg").data)


def test_the_command_prints_both_addresses_and_a_frame(tmp_path: Path) -> None:
    with sqlite_store(registry(), tmp_path) as store:
        key, end = store.create_key("read")[0].id, store.today()
    made = dither(
        *("embed", "color", "--key", key, "--until", end, "--url", "https://example.org/t/", "--data", tmp_path)
    )
    card, picture, frame = made.stdout.splitlines()
    assert card.startswith(f"https://example.org/t/embed/{key}.{end}.color.7.")
    assert picture == f"{card}.svg"
    assert f'<iframe src="{card}"' in unescape(frame)
    for wrong, says in (
        (("--until", "2999-01-01"), f"at most {DAYS_MAX}|between today and {DAYS_MAX} days"),
        (("--key", "00000000"), "no read key"),
    ):
        done = dither("embed", "color", "--key", key, "--until", end, "--data", tmp_path, *wrong)
        assert (done.returncode, bool(re.search(says, done.stderr))) == (2, True), done.stderr


# The form.


def test_the_form_makes_the_commands_link_for_a_read_key(one: Site) -> None:
    none = one.client.get("/metrics/color/share").text
    assert "There is no read key yet" in none
    assert "<form" not in none.partition("<main")[2]
    path, key = link(one, until=90)
    write = one.store.create_key("write")[0].id
    shown = one.client.get("/metrics/color/share").text
    assert (key in shown, write in shown) == (True, False)
    made = one.client.get(
        f"/metrics/color/share?key={key}&until={one.day(-90)}&window=7", base_url="https://example.org"
    )
    assert f'<a href="{path}">a card</a>' in made.text
    assert f'<iframe src="https://example.org{path}" title="color"' in unescape(made.text)
    assert one.client.get(path).status_code == 200
    assert f'"http://localhost{path}"' in unescape(one.client.get(f"/metrics/color/share?key={key}").text)
    assert 'href="/metrics/color/share"' in one.page().html


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("key={key}&until=2999-01-01", f"a link ends between today and {DAYS_MAX} days from now"),
        ("key={key}&until=2020-01-01", "a link ends between today and"),
        ("key=00000000", "00000000 is no read key that is in use"),
        ("key={write}", "is no read key that is in use"),
        ("key={key}&window=9", "window must be 7 or 28 or 1"),
    ],
)
def test_what_can_be_no_link_is_refused_in_words(one: Site, query: str, says: str) -> None:
    key, write = (one.store.create_key(scope)[0].id for scope in ("read", "write"))
    answer = one.client.get("/metrics/color/share?" + query.format(key=key, write=write))
    assert (answer.status_code, says in unescape(answer.text)) == (400, True), answer.text
    assert one.client.get("/metrics/none/share").status_code == 404


def test_only_an_admin_key_makes_links(tmp_path: Path) -> None:
    """A read key is told neither of keys nor of the form, and nothing that is posted makes a link."""
    with sqlite_store(registry(expires=EXPIRES), tmp_path, Clock()) as store, Service(store) as service:
        (reader, read), (_, admin) = (store.create_key(scope) for scope in ("read", "admin"))
        server = http_server(web_app(service))
        with server.in_background():
            asked = f"{server.url}/metrics/color/share?key={reader.id}"
            told = {
                name: requests.get(asked, timeout=30, headers={"Authorization": f"Bearer {text}"})
                for name, text in (("read", read), ("admin", admin))
            }
            assert (told["read"].status_code, "an admin key is needed" in told["read"].text) == (403, True)
            assert told["admin"].status_code == 200
            assert f'<iframe src="{server.url}/embed/' in unescape(told["admin"].text)
            assert told["admin"].headers["Cache-Control"] == "no-store"
            page = requests.get(f"{server.url}/metrics/color", timeout=30, headers={"Authorization": f"Bearer {read}"})
            assert (page.status_code, "/share" in page.text) == (200, False)
            assert requests.get(asked, timeout=30, allow_redirects=False).status_code == 303
            posted = requests.post(asked, timeout=30, headers={"Authorization": f"Bearer {admin}"})
            assert posted.status_code == 405
