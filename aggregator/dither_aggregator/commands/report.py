"""`dither report`: the week's answers and what moved, of all metrics, as text, as HTML, or by mail.

They are the sentences of the first page, with verdicts that count that all metrics are looked at.
"""

import argparse
import smtplib
import ssl
from contextlib import ExitStack
from email.message import EmailMessage
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from dither_aggregator.arguments.data import add_data_argument, opened
from dither_aggregator.arguments.sources import add_settings
from dither_aggregator.arguments.values import LOOPBACK
from dither_shared.errors import ConfigurationError

if TYPE_CHECKING:
    from dither_aggregator.web.pages.report import WeeklyReport

EXAMPLE = "dither report --weekly --data /var/lib/dither"
SEND_WITHIN_S = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument(
        "--weekly", action="store_true", required=True, help="the last seven closed days, beside the seven before"
    )
    parser.add_argument("--html", action="store_true", help="print HTML, not text")
    parser.add_argument(
        "--to", action="append", default=[], metavar="ADDRESS", help="mail it, with both forms; may be repeated"
    )
    parser.add_argument("--sender", metavar="ADDRESS", help="the mail's From; needed with --to")
    parser.add_argument("--url", metavar="URL", default="", help="where the pages are, for links")
    add_data_argument(parser)
    add_settings(parser, "smtp")


def run(args: argparse.Namespace) -> int:
    """Print the report, or send it."""
    if args.to and not (args.sender and args.smtp):
        raise ConfigurationError("--to needs --sender, and --smtp or DITHER_SMTP: the mail server")
    from dither_aggregator.web.pages.report import weekly

    with opened(args, read_only=True) as store:
        report = weekly(store, args.url.rstrip("/"))
    if args.to:
        _send(mail(report, args.sender, args.to), args.smtp)
        print(f"sent to {', '.join(args.to)}")
    else:
        print(report.html if args.html else report.text, end="")
    return 0


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


def _send(message: EmailMessage, server: str) -> None:
    """Hand a mail over. Nothing but a server on this machine gets it, or a password, without TLS."""
    place = urlsplit(server)
    host, whole = place.hostname or "", place.scheme == "smtps"
    tls = ssl.create_default_context()
    try:
        with ExitStack() as stack:
            if whole:
                smtp: smtplib.SMTP = smtplib.SMTP_SSL(host, place.port or 465, timeout=SEND_WITHIN_S, context=tls)
            else:
                smtp = smtplib.SMTP(host, place.port or 25, timeout=SEND_WITHIN_S)
            stack.enter_context(smtp)
            if not (whole or host in (LOOPBACK, "localhost", "::1")):
                smtp.starttls(context=tls)
            if place.username:
                smtp.login(unquote(place.username), unquote(place.password or ""))
            smtp.send_message(message)
    except (OSError, smtplib.SMTPException) as error:
        raise ConfigurationError(f"the mail was not sent: {host}: {error}") from None
