"""The weekly report: the first page's sentences as text, as HTML and as a mail, by TLS beyond this machine."""

import re
import smtplib
from collections.abc import Iterator
from email.message import EmailMessage
from html import unescape
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytest

from dither_aggregator.web.pages.report import weekly
from tests.support.aggregators import dither, sqlite_store
from tests.support.number_pages import words
from tests.support.registries import registry
from tests.support.sites import Site, site

MAIL = ("report", "--weekly", "--to", "a@example.org", "--to", "b@example.org", "--sender", "dither@example.org")


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Site]:
    """Two weeks, in the later of which a value rose."""
    with site(tmp_path, 12) as made:
        before, after = np.full(12, 300), np.array([1_200, *[300] * 11])
        for back in range(1, 15):
            made.put(after if back <= 7 else before, np.random.default_rng(back), back)
        yield made


def test_a_report_says_what_the_first_page_says(one: Site) -> None:
    report = weekly(one.store, "https://example.org/telemetry")
    cards = re.findall(r'<p class="(?:answer|move)">(.*?)</p>', one.client.get("/").text)
    assert len(cards) == 5  # two answers and three moves
    for said in map(unescape, cards):
        assert f"  {said}\n" in report.text
        assert said in unescape(report.html)
    assert report.headline == "2 metrics, 1 of which moved."
    assert report.title == f"example, {one.day(7)} to {one.day(1)}"
    assert 'href="https://example.org/telemetry/metrics/color"' in report.html
    assert "https://example.org/telemetry/metrics/color" in report.text
    assert "At most 5 % of these sentences are wrong" in report.text


def test_a_question_is_text_in_html(tmp_path: Path) -> None:
    with site(tmp_path, 12) as made:
        stored = made.store.plans("color")[0]
        with patch.object(type(stored), "question", "<b>&", create=True):
            assert "<b>" not in weekly(made.store).html


class Server:
    """A mail server that keeps what it is given."""

    acts: ClassVar[list[Any]] = []

    def __init__(self, host: str, port: int, **how: Any) -> None:
        self.acts[:] = [(host, port)]

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.acts.append("quit")

    def starttls(self, **how: Any) -> None:
        self.acts.append("tls")

    def login(self, user: str, password: str) -> None:
        self.acts.append((user, password))

    def send_message(self, message: EmailMessage) -> None:
        self.acts.append(message)


@pytest.mark.parametrize(
    ("server", "before"),
    [
        ("smtp://mail.example.org", [("mail.example.org", 25), "tls"]),
        ("smtp://me:p%40ss@mail.example.org:587", [("mail.example.org", 587), "tls", ("me", "p@ss")]),
        ("smtp://127.0.0.1:2525", [("127.0.0.1", 2525)]),
        ("smtps://me:x@mail.example.org", [("mail.example.org", 465), ("me", "x")]),
    ],
)
def test_a_mail_has_both_forms_and_goes_by_tls(server: str, before: list[object], tmp_path: Path) -> None:
    with sqlite_store(registry(), tmp_path):
        pass
    with patch.object(smtplib, "SMTP", Server), patch.object(smtplib, "SMTP_SSL", Server):
        done = dither(*MAIL, "--data", tmp_path, DITHER_SMTP=server)
    assert done.returncode == 0, done
    assert done.stdout == "sent to a@example.org, b@example.org\n"
    *acts, message, last = Server.acts
    assert (acts, last) == (before, "quit")
    assert message["To"] == "a@example.org, b@example.org"
    text, html = (part.get_content() for part in message.iter_parts())
    assert text.startswith(message["Subject"])
    assert "2 metrics" in text
    assert "2 metrics" in words(html)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--to", "a@example.org"), "--to needs --sender, and --smtp"),
        ((*MAIL[2:], "--smtp", "mail.example.org:25"), "must be smtp://"),
        ((*MAIL[2:], "--smtp", "smtp://127.0.0.1:1"), "the mail was not sent: 127.0.0.1: "),
        (
            ("--to", "a@example.org\nBcc: x@y", "--sender", "d@example.org", "--smtp", "smtp://127.0.0.1:1"),
            "must be addresses",
        ),
    ],
)
def test_a_mail_that_cannot_be_sent_is_said(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    with sqlite_store(registry(), tmp_path):
        pass
    done = dither("report", "--weekly", "--data", tmp_path, *arguments)
    assert done.returncode == 2
    assert says in done.stderr


def test_text_and_html_are_printed(tmp_path: Path) -> None:
    with sqlite_store(registry(), tmp_path):
        pass
    text = dither("report", "--weekly", "--data", tmp_path).stdout
    html = dither("report", "--weekly", "--data", tmp_path, "--html").stdout
    assert text.startswith("example, ")
    assert html.startswith("<!doctype html>")
