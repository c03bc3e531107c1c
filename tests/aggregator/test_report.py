"""The weekly report: the first page's sentences as text, as HTML and as a mail, by TLS beyond this machine."""

import json
import re
import shutil
import smtplib
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from email.message import EmailMessage
from html import unescape
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytest

from dither.cli import main
from dither_aggregator.analysis.reading import Window
from dither_aggregator.commands import report as report_command
from dither_aggregator.store.document_kinds import CLAIMED_FOR_S, ToldMoves
from dither_aggregator.web.pages.report import WeeklyReport, weekly
from tests.support.aggregators import dither, sqlite_store, start
from tests.support.clocks import Clock
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
    assert report.headline == "1 of 2 metrics moved: “Which colour do people choose?” 1 could not be compared."
    assert report.title == f"example, {one.day(7)} to {one.day(1)}"
    assert 'href="https://example.org/telemetry/metrics/color"' in report.html
    assert "https://example.org/telemetry/metrics/color" in report.text
    assert "at most 5 % of the answers are wrong" in report.text


def test_a_young_store_names_the_days_that_were_compared(tmp_path: Path) -> None:
    with site(tmp_path, 12) as young:
        for back in range(1, 7):
            counts = np.array([1_200, *[300] * 11]) if back <= 3 else np.full(12, 300)
            young.put(counts, np.random.default_rng(back), back)
        report = weekly(young.store)
        moved, told = report.moved, report.told("a")
        days = [str(young.day(back)) for back in (6, 4, 3, 1)]
        assert [moved[name] for name in ("base_from", "base_to", "from", "to")] == days
        assert f"two windows: {days[0]} to {days[1]}, 3 days; and {days[2]} to {days[3]}, 3 days." in report.text
        assert f"{moved['text']}".startswith(f"example, {days[2]} to {days[3]}, 3 days: ")
        assert (told.first, told.last) == (young.day(7), young.day(1))


def test_a_question_is_text_in_html(tmp_path: Path) -> None:
    with site(tmp_path, 12) as made:
        stored = made.store.plans("color")[0]
        with patch.object(type(stored), "question", "<b>&", create=True):
            assert "<b>" not in weekly(made.store).html


class Server:
    """A mail server that keeps what it is given, for all but those it refuses."""

    acts: ClassVar[list[Any]] = []
    refuses: ClassVar[set[str]] = set()
    quits: ClassVar[bool] = True

    def __init__(self, host: str, port: int, **how: Any) -> None:
        self.acts[:] = [(host, port)]

    def quit(self) -> None:
        self.acts.append("quit")
        if not self.quits:
            raise smtplib.SMTPResponseException(421, "closing")

    def close(self) -> None:
        self.acts.append("close")

    def starttls(self, **how: Any) -> None:
        self.acts.append("tls")

    def login(self, user: str, password: str) -> None:
        self.acts.append((user, password))

    def send_message(self, message: EmailMessage) -> dict[str, tuple[int, bytes]]:
        self.acts.append(message)
        return {each: (550, b"no such user") for each in self.refuses if each in message["To"]}


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
    *acts, message, quit_, closed = Server.acts
    assert (acts, quit_, closed) == (before, "quit", "close")
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


# Moves, told to a webhook and to Prometheus.


@pytest.fixture
def moved(one: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Let the command report of a store in which a value rose."""
    monkeypatch.setattr("dither_aggregator.web.pages.report.weekly", lambda _, url="": weekly(one.store, url))
    monkeypatch.setattr(report_command, "PAUSES_S", (0.0, 0.0))
    return one


@contextmanager
def webhook(*statuses: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve a webhook that answers so, one after the other; yield its address and what it was told."""
    told: list[dict[str, Any]] = []
    answers = iter(statuses)

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.headers["Content-Type"] == "application/json"
            assert "Authorization" not in self.headers
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(next(answers))
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/secret", told
        finally:
            server.shutdown()
            thread.join()


def run_report(tmp_path: Path, *arguments: str) -> int:
    with sqlite_store(registry(), tmp_path / "empty"):
        pass
    return main(["report", "--weekly", "--data", str(tmp_path / "empty"), *arguments])


def test_a_webhook_is_told_what_moved_by_the_verdicts_of_all_metrics(
    moved: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with webhook(204) as (url, told):
        assert run_report(tmp_path, "--webhook", url, "--url", "https://example.org") == 0
    assert capsys.readouterr().out == "posted what moved\n"
    (document,) = told
    rows = moved.client.get("/v1/changes").get_json()["rows"]
    (one,) = document["moved"]
    assert (one["metric"], one["url"]) == ("color", "https://example.org/metrics/color")
    assert one["moves"][0].startswith(f"{rows[0]['value']} {rows[0]['verdict']} by ")
    assert (document["from"], document["to"]) == (str(moved.day(7)), str(moved.day(1)))
    assert document["metrics"] == 2
    assert one["moves"][0] in document["text"]
    assert weekly(moved.store, "https://example.org").moved["id"] == document["id"]


@pytest.mark.parametrize(
    ("statuses", "fails", "posts"),
    [
        ((500, 429, 200), None, 3),
        ((500, 500, 500), "it answered 500", 3),
        ((404,), "it answered 404", 1),
        ((302,), "it answered 302", 1),
    ],
)
def test_a_webhook_is_tried_again_a_few_times_and_never_elsewhere(
    statuses: tuple[int, ...],
    fails: str | None,
    posts: int,
    moved: Site,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with webhook(*statuses) as (url, told):
        assert run_report(tmp_path, "--webhook", url) == (2 if fails else 0)
    assert (len(told), len({each["id"] for each in told})) == (posts, 1)
    said = capsys.readouterr().err
    assert (fails or "") in said
    assert "secret" not in said  # the address of a webhook is often its key


def test_a_webhook_is_left_alone_where_nothing_moved_and_refused_in_plain_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with webhook() as (url, told):
        assert run_report(tmp_path, "--webhook", url) == 0
    assert (told, capsys.readouterr().out) == ([], "nothing moved, so nothing is posted\n")
    for wrong in ("http://example.org/x", "ftp://example.org", "https://", "example.org", "https://é.org"):
        assert main(["report", "--weekly", "--data", str(tmp_path / "empty"), "--webhook", wrong]) == 2, wrong
        assert "--webhook must be https://" in capsys.readouterr().err


def test_prometheus_is_told_of_each_metric_whether_it_moved(
    moved: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_report(tmp_path, "--prometheus") == 0
    said = capsys.readouterr().out
    assert 'dither_metric_moved{app="example",metric="color"} 1.0\n' in said
    assert 'dither_metric_moved{app="example",metric="dark"} 0.0\n' in said
    end = re.search(r'dither_moves_end_timestamp_seconds\{app="example"\} (\S+)', said)
    assert end
    assert datetime.fromtimestamp(float(end[1]), UTC).date() == moved.store.today()


# The store keeps what was sent: nobody is told of a day twice.


def later(one: Site, days: int, url: str = "") -> WeeklyReport:
    """Return the report as it would be so many days later."""
    report = weekly(one.store, url)
    window = Window.ending(report.window.last + timedelta(days=days), 7)
    return replace(report, window=window, after=window)


def test_a_webhook_is_told_of_no_day_twice_however_often_the_command_runs(
    moved: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with webhook(*[204] * 9) as (url, told), webhook(*[204] * 9) as (other, _):
        for day in range(16):
            monkeypatch.setattr("dither_aggregator.web.pages.report.weekly", lambda _, url="": later(moved, day, url))  # noqa: B023
            assert run_report(tmp_path, "--webhook", url) == 0
            said = capsys.readouterr().out
            assert said.startswith("posted" if day in (0, 7, 14) else "the webhook was told of "), (day, said)
        assert run_report(tmp_path, "--webhook", other) == 0  # somebody else
        assert capsys.readouterr().out == "posted what moved\n"
    ends = [(date.fromisoformat(each["from"]), date.fromisoformat(each["to"])) for each in told]
    assert all(before[1] < after[0] for before, after in pairwise(ends))


def test_a_look_at_a_week_in_which_nothing_moved_counts_too(
    one: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else somebody who runs it each day until something moves finds more than one week's share of noise."""
    still = later(one, 0)
    still = replace(still, entries=[(line, ()) for line, _ in still.entries])
    with webhook(204) as (url, told):
        for report, says in ((still, "nothing moved"), (later(one, 1), "was told of"), (later(one, 7), "posted")):
            monkeypatch.setattr("dither_aggregator.web.pages.report.weekly", lambda _, url="": report)  # noqa: B023
            assert run_report(tmp_path, "--webhook", url) == 0
            assert says in capsys.readouterr().out
    assert len(told) == 1


def test_what_did_not_arrive_is_sent_by_the_next_run(moved: Site, tmp_path: Path) -> None:
    with webhook(500, 500, 500, 204) as (url, told):
        assert [run_report(tmp_path, "--webhook", url) for _ in range(3)] == [2, 0, 0]
    assert (len(told), len({each["id"] for each in told})) == (4, 1)


def test_a_mail_goes_to_those_who_were_not_told(
    moved: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smtplib, "SMTP", Server)
    by = ("--sender", "dither@example.org", "--smtp", "smtp://127.0.0.1:2525")
    assert run_report(tmp_path, "--to", "a@example.org", *by) == 0
    assert run_report(tmp_path, "--to", "a@example.org", "--to", "b@example.org", *by) == 0
    assert Server.acts[-3]["To"] == "b@example.org"
    Server.acts.clear()
    assert run_report(tmp_path, "--to", "B@example.org", "--to", "A <a@Example.org>", *by) == 0
    assert Server.acts == []
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "sent to a@example.org"
    assert lines[1].startswith("a@example.org was told of ")
    assert lines[2] == "sent to b@example.org"
    assert [each.split(" was ")[0] for each in lines[3:]] == ["B@example.org", "A <a@Example.org>"]
    for kept in (tmp_path / "empty").rglob("*"):
        content = kept.read_bytes() if kept.is_file() else b""
        assert not any(address in content for address in (b"a@example.org", b"b@example.org")), kept


def test_a_mail_is_sent_to_those_whom_the_server_takes_and_the_others_are_named(
    moved: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is sullen once it has taken the mail changes nothing: it would be sent twice."""
    monkeypatch.setattr(smtplib, "SMTP", Server)
    monkeypatch.setattr(Server, "refuses", {"b@example.org"})
    monkeypatch.setattr(Server, "quits", False)
    by = (
        *("--to", "a@example.org", "--to", "B <b@example.org>"),
        "--sender",
        "d@example.org",
        "--smtp",
        "smtp://[::1]:2525",
    )
    assert run_report(tmp_path, *by) == 2
    said = capsys.readouterr()
    assert said.out == "sent to a@example.org\n"
    assert "the mail was not sent to b@example.org: the server refused" in said.err
    monkeypatch.setattr(Server, "refuses", set())
    assert run_report(tmp_path, *by) == 0
    assert capsys.readouterr().out.endswith("sent to B <b@example.org>\n")


def test_a_mail_that_fails_holds_up_no_webhook(moved: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mail = ("--to", "a@example.org", "--sender", "d@example.org", "--smtp", "smtp://127.0.0.1:1")
    with webhook(204) as (url, told):
        assert run_report(tmp_path, *mail, "--webhook", url, "--prometheus") == 2
    said = capsys.readouterr()
    assert len(told) == 1
    assert "posted what moved" in said.out
    assert "dither_metric_moved" in said.out
    assert "the mail was not sent: 127.0.0.1" in said.err


def test_prometheus_is_told_the_same_for_a_week(
    moved: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for day in (0, 1, 6, 7):
        monkeypatch.setattr("dither_aggregator.web.pages.report.weekly", lambda _, url="": later(moved, day, url))  # noqa: B023
        assert run_report(tmp_path, "--prometheus") == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == said[2] != said[3]


def test_a_print_is_a_look_that_is_kept_nowhere(tmp_path: Path) -> None:
    with sqlite_store(registry(), tmp_path) as store:
        for form in ((), ("--html",)):
            assert main(["report", "--weekly", "--data", str(tmp_path), *form]) == 0
        assert store.documents(ToldMoves) == []


def test_weeks_of_a_time_that_was_false_and_of_long_ago_hold_nobody_up(tmp_path: Path) -> None:
    clock = Clock()
    with sqlite_store(registry(), tmp_path, clock) as store:
        day = date(2026, 11, 20)
        store.tell(ToldMoves("a", day + timedelta(days=400), day + timedelta(days=406), {}))
        assert store.told("a", day - timedelta(days=6), day) is None
        store.tell(ToldMoves("b", day - timedelta(days=6), day, {}))
        store.tell(ToldMoves("c", day + timedelta(days=55), day + timedelta(days=61), {}))
        assert {each.receiver for each in store.documents(ToldMoves)} == {"a", "b", "c"}  # c's days are false
        clock.travel(61)
        store.tell(ToldMoves("c", day + timedelta(days=55), day + timedelta(days=61), {}))
        assert {each.receiver for each in store.documents(ToldMoves)} == {"a", "c"}


# Several commands at once: one sends.


class Mailbox(socketserver.ThreadingTCPServer):
    """A mail server that takes the text of a mail when it is let."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _MailSession)
        self.mails = 0
        self.came, self.let = threading.Event(), threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """A command that is killed hangs up."""


class _MailSession(socketserver.StreamRequestHandler):
    server: Mailbox

    def handle(self) -> None:
        self._say("220 here")
        while words := self.rfile.readline().split():
            if words[0].upper() == b"DATA":
                self._say("354 go on")
                while self.rfile.readline() not in (b".\r\n", b""):
                    pass
                self.server.mails += 1
                self.server.came.set()
                self.server.let.wait(LONG_S)
            self._say("250 so be it")

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with Mailbox() as box:
        thread = threading.Thread(target=box.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield box
        finally:
            box.let.set()
            box.shutdown()
            thread.join()


LONG_S = 120
"""Nothing here takes so long unless it hangs."""


def sending(tmp_path: Path, box: Mailbox) -> list[str]:
    """Return the arguments by which a store that is empty is reported of by mail."""
    with sqlite_store(registry(), tmp_path / "empty"):
        pass
    server = f"smtp://127.0.0.1:{box.server_address[1]}"
    by = ["--to", "a@example.org", "--sender", "d@example.org", "--smtp", server]
    return ["report", "--weekly", "--data", str(tmp_path / "empty"), *by]


def test_of_two_commands_at_once_one_sends(tmp_path: Path, mailbox: Mailbox) -> None:
    """The mail server lets none of them end before the other one has, or sends too."""
    arguments = sending(tmp_path, mailbox)
    running = [start(*arguments) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        ends = {pool.submit(each.communicate, timeout=LONG_S): each for each in running}
        first = next(as_completed(ends))
        mailbox.let.set()
        (late,) = (each for each in ends if each is not first)
        assert (ends[first].returncode, first.result()[1]) == (1, "")
        assert re.fullmatch(
            r"a@example.org: a command that began at [-0-9: ]{16} UTC to send .* has not said how that ended, "
            r"so nothing is sent before [-0-9: ]{16} UTC; --again sends it now\n",
            first.result()[0],
        )
        assert late.result() == ("sent to a@example.org\n", "")
        assert ends[late].returncode == 0
    assert mailbox.mails == 1


BAD_SERVERS = ("smtp://127.0.0.1:9", "smtp://a..b:25")


def by_server(arguments: list[str], server: str) -> list[str]:
    """Return the arguments of a command with another mail server."""
    return [server if each.startswith("smtp://") else each for each in arguments]


def test_a_command_that_was_killed_while_it_sent_is_told_of(
    tmp_path: Path, mailbox: Mailbox, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is sent again where somebody asks for that, or an hour later; a takeover that fails leaves the doubt."""
    arguments = sending(tmp_path, mailbox)
    killed = start(*arguments)
    assert mailbox.came.wait(LONG_S)
    killed.kill()
    killed.communicate()
    mailbox.let.set()

    def is_in_doubt() -> bool:
        said = main(arguments), "has not said how that ended, so nothing is sent before" in capsys.readouterr().out
        return said == (1, True)

    assert is_in_doubt()
    for server in BAD_SERVERS:
        assert main([*by_server(arguments, server), "--again"]) == 2
        assert "the mail was not sent" in capsys.readouterr().err
        assert is_in_doubt()
    assert mailbox.mails == 1
    shutil.copytree(tmp_path / "empty", tmp_path / "later")
    with sqlite_store(registry(), tmp_path / "later") as store:
        (left,) = store.documents(ToldMoves)
        assert left.claimed_s
        store.put(replace(left, claimed_s=left.claimed_s - CLAIMED_FOR_S))
    later = [each.replace(str(tmp_path / "empty"), str(tmp_path / "later")) for each in arguments]
    for mails, each in enumerate(([*arguments, "--again"], later), 2):
        assert main(each) == 0
        said = capsys.readouterr().out.splitlines()
        assert said[0].endswith("has not said how that ended, so this may arrive twice")
        assert said[1] == "sent to a@example.org"
        assert main(each) == 0  # `--again` repeats nothing that was told
        assert capsys.readouterr().out.startswith("a@example.org was told of ")
        assert mailbox.mails == mails


@pytest.mark.parametrize("server", BAD_SERVERS)
def test_no_claim_stays_where_nothing_was_sent(
    server: str, tmp_path: Path, mailbox: Mailbox, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = sending(tmp_path, mailbox)
    assert main(by_server(arguments, server)) == 2
    with patch.object(ToldMoves, "most", 1):  # there is room for one of two
        assert main([*arguments, "--to", "b@example.org"]) == 2
    mailbox.let.set()
    assert mailbox.mails == 0
    assert main(arguments) == 0
    assert capsys.readouterr().out == "sent to a@example.org\n"


def test_a_claim_that_failed_leaves_alone_what_others_told_meanwhile(tmp_path: Path) -> None:
    with sqlite_store(registry(), tmp_path) as store:
        told = ToldMoves("a", date(2026, 11, 14), date(2026, 11, 20), {"color": ["it rose"]})
        first, second = store.claim(told), store.claim(told, again=True)
        assert first.own
        assert second.own
        store.tell(told)
        assert not store.remove(first.own)
        assert store.claim(told) == store.claim(told, again=True) == (None, told)
        assert store.told("a", told.first, told.last) == told


def test_again_is_of_something_that_is_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_report(tmp_path, "--again") == 2
    assert "--again goes with --to or --webhook" in capsys.readouterr().err
