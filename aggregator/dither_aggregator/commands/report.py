"""`dither report`: the week's answers and what moved, of all metrics, as text, as HTML, by mail or to a webhook.

They are the sentences of the first page, with verdicts that count that all metrics are looked at. A print is a look at
the last seven closed days. The store keeps what is sent, and a receiver is told of no day twice. So the verdicts' error
rate holds for each week that they get, however often the command runs.
"""

import argparse
import json
import smtplib
import ssl
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from email.message import EmailMessage
from email.utils import parseaddr
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from dither.sending.connection import post
from dither_aggregator.arguments.data import add_data_argument, opened
from dither_aggregator.arguments.settings import LOOPBACK, add_settings
from dither_shared.errors import ConfigurationError

if TYPE_CHECKING:
    from dither_aggregator.store import Store
    from dither_aggregator.web.pages.report import WeeklyReport

EXAMPLE = "dither report --weekly --data /var/lib/dither"
SEND_WITHIN_S = 30
POST_WITHIN_S = 10
"""For one attempt, from the connection to the answer's last byte."""
PAUSES_S = (2.0, 10.0)
"""Seconds before each further attempt."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument(
        "--weekly", action="store_true", required=True, help="the last seven closed days, beside the seven before"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--html", action="store_true", help="print HTML, not text")
    form.add_argument(
        "--prometheus", action="store_true", help="print whether each metric moved, for node_exporter's text files"
    )
    parser.add_argument(
        "--to", action="append", default=[], metavar="ADDRESS", help="mail it, with both forms; may be repeated"
    )
    parser.add_argument(
        "--webhook", metavar="URL", help="post what moved to an https address, as JSON; nothing where nothing moved"
    )
    parser.add_argument("--sender", metavar="ADDRESS", help="the mail's From; needed with --to")
    parser.add_argument("--url", metavar="URL", default="", help="where the pages are, for links")
    add_data_argument(parser)
    add_settings(parser, "smtp")


def run(args: argparse.Namespace) -> int:
    """Print the report, or send it."""
    if args.to and not (args.sender and args.smtp):
        raise ConfigurationError("--to needs --sender, and --smtp or DITHER_SMTP: the mail server")
    if args.webhook:
        _check_webhook(args.webhook)
    from dither_aggregator.web.pages.report import weekly

    looks = not (args.to or args.webhook or args.prometheus)
    with opened(args, read_only=looks) as store:
        report = weekly(store, args.url.rstrip("/"))
        if looks:
            print(report.html if args.html else report.text, end="")
        faults: list[str] = []
        if args.to:
            with _noted(faults):
                _tell_by_mail(store, report, args)
        if args.webhook:
            with _noted(faults):
                _tell_webhook(store, report, args.webhook)
        if args.prometheus:
            print(_for_prometheus(store, report), end="")
    if faults:
        raise ConfigurationError("; ".join(faults))
    return 0


@contextmanager
def _noted(faults: list[str]) -> Iterator[None]:
    """Keep a failure for the end: all others are told first."""
    try:
        yield
    except ConfigurationError as error:
        faults.append(str(error))


# A receiver who was told of one of these days is told nothing. They count as told once the sending is over: a command
# that ends in between sends again, as do two at once, which a webhook knows by `id`.


def _tell_by_mail(store: "Store", report: "WeeklyReport", args: argparse.Namespace) -> None:
    names = {store.receiver(f"mail {_address(each).lower()}"): each for each in args.to}
    new = {each: name for name, each in names.items() if not _told(store, report, name, each)}
    if new:
        refused = _send(mail(report, args.sender, list(new)), args.smtp)
        sent = [each for each in new if _address(each) not in refused]
        for each in sent:
            store.tell(report.told(new[each]))
        print(f"sent to {', '.join(sent)}")
        if refused:
            raise ConfigurationError(f"the mail was not sent to {', '.join(refused)}: the server refused them")


def _address(to: str) -> str:
    """Return the address alone, without a name."""
    return parseaddr(to)[1] or to


def _tell_webhook(store: "Store", report: "WeeklyReport", url: str) -> None:
    name, document = store.receiver(f"webhook {url}"), report.moved
    if _told(store, report, name, "the webhook"):
        return
    if document["moved"]:
        _post(url, json.dumps(document).encode("utf-8"))
    store.tell(report.told(name))  # also that nothing moved: another look at the same days would be another chance
    print("posted what moved" if document["moved"] else "nothing moved, so nothing is posted")


def _for_prometheus(store: "Store", report: "WeeklyReport") -> str:
    """Return the gauges of the week that is told at the moment: they stay for seven days."""
    from dither_aggregator.web.pages.report import gauges

    name = store.receiver("prometheus")
    told = store.told(name, report.window.first, report.window.last)
    if told is None:
        told = report.told(name)
        store.tell(told)
    return gauges(store.app, told)


def _told(store: "Store", report: "WeeklyReport", name: str, whom: str) -> bool:
    """Say to whom nothing is sent, because they were told of one of these days before."""
    told = store.told(name, report.window.first, report.window.last)
    if told:
        print(f"{whom} was told of {told.first} to {told.last}: the next week that shares no day with it is sent")
    return told is not None


def _check_webhook(url: str) -> None:
    """Refuse an address to which verdicts would go in plain text; its own words may be a secret, so none is told."""
    place = urlsplit(url)
    here = place.scheme == "http" and place.hostname in (LOOPBACK, "localhost", "::1")
    if not (place.hostname and url.isascii() and url.isprintable() and (place.scheme == "https" or here)):
        raise ConfigurationError("--webhook must be https://..., or http:// on this machine")


def _post(url: str, body: bytes) -> None:
    """Post a document, again after a pause where it did not arrive or is to come later; no redirect is followed."""
    headers = {"Content-Type": "application/json"}
    for pause in (*PAUSES_S, None):
        try:
            status = post(url, body, headers, POST_WITHIN_S)
            if status < 300:
                return
            fault = f"it answered {status}"
            again = status == 429 or status >= 500
        except Exception as error:  # whatever answers there says what it likes
            fault, again = f"no answer ({type(error).__name__})", True
        if pause is None or not again:
            raise ConfigurationError(f"the webhook was not told what moved: {fault}")
        time.sleep(pause)


def mail(report: "WeeklyReport", sender: str, to: list[str]) -> EmailMessage:
    """Return the mail of a report: its text, and as HTML."""
    message = EmailMessage()
    try:
        message["Subject"], message["From"], message["To"] = report.title, sender, ", ".join(to)
    except ValueError as error:
        raise ConfigurationError(f"--sender and --to must be addresses: {error}") from None
    message.set_content(report.text)
    message.add_alternative(report.html, subtype="html")
    return message


def _send(message: EmailMessage, server: str) -> Collection[str]:
    """Hand a mail over; return the addresses that the server refused while it took it for others.

    Nothing but a server on this machine gets it, or a password, without TLS.
    """
    place = urlsplit(server)
    host, whole = place.hostname or "", place.scheme == "smtps"
    tls = ssl.create_default_context()
    try:
        with ExitStack() as stack:
            if whole:
                smtp: smtplib.SMTP = smtplib.SMTP_SSL(host, place.port or 465, timeout=SEND_WITHIN_S, context=tls)
            else:
                smtp = smtplib.SMTP(host, place.port or 25, timeout=SEND_WITHIN_S)
            stack.callback(smtp.close)
            if not (whole or host in (LOOPBACK, "localhost", "::1")):
                smtp.starttls(context=tls)
            if place.username:
                smtp.login(unquote(place.username), unquote(place.password or ""))
            refused = smtp.send_message(message)
            with suppress(OSError, smtplib.SMTPException):  # the mail is theirs: whatever they say to the farewell
                smtp.quit()
            return refused
    except (OSError, smtplib.SMTPException) as error:
        raise ConfigurationError(f"the mail was not sent: {host}: {error}") from None
