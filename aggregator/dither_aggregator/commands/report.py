"""`dither report`: the week's answers and what moved, of all metrics, as text, as HTML, by mail or to a webhook.

They are the sentences of the first page, with verdicts that count that all metrics are looked at. A print is a look at
the last seven closed days. The store keeps what is sent, and a receiver is told of no day twice. So the verdicts' error
rate holds for each week that they get, however often the command runs, also at once.
"""

import argparse
import json
import smtplib
import ssl
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import parseaddr
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from dither.sending.connection import post
from dither_aggregator.arguments.settings import LOOPBACK, add_data_argument, add_settings, opened
from dither_aggregator.store.document_kinds import CLAIMED_FOR_S
from dither_shared.errors import ConfigurationError, DitherError

if TYPE_CHECKING:
    from dither_aggregator.store import Store
    from dither_aggregator.store.documents import MovesClaim
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
    parser.add_argument(
        "--again",
        action="store_true",
        help="send also what another command began to send and has not said how that ended: it may arrive twice",
    )
    parser.add_argument("--sender", metavar="ADDRESS", help="the mail's From; needed with --to")
    parser.add_argument("--url", metavar="URL", default="", help="where the pages are, for links")
    add_data_argument(parser)
    add_settings(parser, "smtp")


def run(args: argparse.Namespace) -> int:
    """Print the report, or send it."""
    if args.to and not (args.sender and args.smtp):
        raise ConfigurationError("--to needs --sender, and --smtp or DITHER_SMTP: the mail server")
    if args.again and not (args.to or args.webhook):
        raise ConfigurationError("--again goes with --to or --webhook: it sends")
    if args.webhook:
        _check_webhook(args.webhook)
    from dither_aggregator.web.pages.report import weekly

    looks = not (args.to or args.webhook or args.prometheus)
    with opened(args, read_only=looks) as store:
        report = weekly(store, args.url.rstrip("/"))
        if looks:
            print(report.html if args.html else report.text, end="")
        faults: list[str] = []
        over = True
        if args.to:
            with _noted(faults):
                over &= _tell_by_mail(store, report, args)
        if args.webhook:
            with _noted(faults):
                over &= _tell_webhook(store, report, args)
        if args.prometheus:
            print(_for_prometheus(store, report), end="")
    if faults:
        raise ConfigurationError("; ".join(faults))
    return 0 if over else 1


@contextmanager
def _noted(faults: list[str]) -> Iterator[None]:
    """Keep a failure for the end: all others are told first."""
    try:
        yield
    except ConfigurationError as error:
        faults.append(str(error))


# A receiver who was told of one of these days is told nothing. A claim is kept before anything is sent, so of several
# commands at once one sends. It becomes what was told, or is removed where nothing arrived. A command that ends in
# between leaves it behind: nobody knows then whether it arrived, and a webhook knows it by `id` if it comes again.


def _tell_by_mail(store: "Store", report: "WeeklyReport", args: argparse.Namespace) -> bool:
    names = {store.receiver(f"mail {_address(each).lower()}"): each for each in args.to}
    claims: dict[str, MovesClaim] = {}
    with _given_back_on_fault(store, claims):
        for name, each in names.items():
            claims[each] = _claim(store, report, name, each, again=args.again)
        new = {each: claim.own for each, claim in claims.items() if claim.own}
        refused = _send(mail(report, args.sender, list(new)), args.smtp) if new else ()
    if new:
        sent = [each for each in new if _address(each) not in refused]
        for each, own in new.items():
            if each in sent:
                store.tell(replace(own, claimed_s=None))
            else:
                _give_back(store, claims[each])
        print(f"sent to {', '.join(sent)}")
        if refused:
            raise ConfigurationError(f"the mail was not sent to {', '.join(refused)}: the server refused them")
    return all(map(_is_over, claims.values()))


def _address(to: str) -> str:
    """Return the address alone, without a name."""
    return parseaddr(to)[1] or to


def _tell_webhook(store: "Store", report: "WeeklyReport", args: argparse.Namespace) -> bool:
    name, document = store.receiver(f"webhook {args.webhook}"), report.moved
    claim = _claim(store, report, name, "the webhook", again=args.again)
    if claim.own:
        if document["moved"]:
            with _given_back_on_fault(store, {"": claim}):
                _post(args.webhook, json.dumps(document).encode("utf-8"))
        # also that nothing moved: another look at the same days would be another chance
        store.tell(replace(claim.own, claimed_s=None))
        print("posted what moved" if document["moved"] else "nothing moved, so nothing is posted")
    return _is_over(claim)


def _for_prometheus(store: "Store", report: "WeeklyReport") -> str:
    """Return the gauges of the week that is told at the moment: they stay for seven days."""
    from dither_aggregator.web.pages.report import gauges

    name = store.receiver("prometheus")
    told = store.told(name, report.window.first, report.window.last)
    if told is None:
        told = report.told(name)
        store.tell(told)
    return gauges(store.app, told)


def _claim(store: "Store", report: "WeeklyReport", receiver: str, whom: str, *, again: bool) -> "MovesClaim":
    """Claim to tell a receiver; say, of `whom`, why nothing is sent to them, or why it may be sent twice."""
    claim = store.claim(report.told(receiver), again=again)
    if not (before := claim.before):
        return claim
    days = f"{before.first} to {before.last}"
    if before.claimed_s is None:
        print(f"{whom} was told of {days}: the next week that shares no day with it is sent")
        return claim
    began, ends = (
        datetime.fromtimestamp(before.claimed_s + more, UTC).strftime("%Y-%m-%d %H:%M") for more in (0, CLAIMED_FOR_S)
    )
    left = f"a command that began at {began} UTC to send {days} has not said how that ended"
    if claim.own:
        print(f"{whom}: {left}, so this may arrive twice")
    else:
        print(f"{whom}: {left}, so nothing is sent before {ends} UTC; --again sends it now")
    return claim


def _is_over(claim: "MovesClaim") -> bool:
    """Tell whether a receiver was told, by this command or before."""
    return claim.own is not None or claim.before is None or claim.before.claimed_s is None


@contextmanager
def _given_back_on_fault(store: "Store", claims: "Mapping[str, MovesClaim]") -> Iterator[None]:
    """Give claims back where nothing arrived, so that the next command sends it."""
    try:
        yield
    except DitherError:
        for each in claims.values():
            _give_back(store, each)
        raise


def _give_back(store: "Store", claim: "MovesClaim") -> None:
    """Give a claim back, to a command before that has not said how it ended, if there was one."""
    if claim.own and store.remove(claim.own) and claim.before:
        store.put(claim.before)


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
    except (OSError, smtplib.SMTPException, UnicodeError) as error:  # the last: of a host that can have no such name
        raise ConfigurationError(f"the mail was not sent: {host}: {error}") from None
