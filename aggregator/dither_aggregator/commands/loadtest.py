"""`dither loadtest`: how many uploads a second a server takes, and how long each waits.

Its reports are real ones, and are counted for good. So it is for a server of its own, before devices come: one that has
reports already is left alone unless told otherwise, and one beyond this machine is left alone unless told twice.
"""

import argparse
import json
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dither.sending.route import check_endpoint, is_loopback
from dither.sending.transport import check_key
from dither_aggregator.simulate.load import WARM_S, Driven, Load, LoadFailed, address_of, device_groups, template
from dither_shared.errors import DitherError
from dither_shared.files import read_text
from dither_shared.registry import Registry
from dither_shared.rng import Rng
from dither_shared.wire import PATH
from dither_shared.wire.writing import encode_upload, new_upload_id

EXAMPLE = "dither loadtest http://127.0.0.1:8080 --key-file write.key --metrics metrics.toml --seconds 30"
SECONDS_MAX = 600
DEVICES_MAX = 10_000_000
CONNECTIONS_MAX = 256
TEMPLATES = 64
KEY_FILE_BYTES_MAX = 4_096
DAY_S = 86_400
PEAK = 3
"""How much more than on average comes in the busiest hour, where devices are used by day."""
ASK_WITHIN_S = 30
SAY_EVERY_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("url", metavar="URL", help="where devices would upload, without /v1/reports")
    parser.add_argument("--key-file", metavar="FILE", type=Path, required=True, help="the key for devices, in a file")
    parser.add_argument(
        "--metrics", metavar="FILE", type=Path, required=True, help="the registry that the server was started with"
    )
    parser.add_argument(
        "--seconds", type=_number(SECONDS_MAX), default=10, help=f"for how long, {SECONDS_MAX} at most (%(default)s)"
    )
    parser.add_argument(
        "--devices", metavar="N", type=_number(DEVICES_MAX), help="end after so many uploads, one a device"
    )
    parser.add_argument(
        "--connections", metavar="N", type=_number(CONNECTIONS_MAX), default=32, help="at a time (%(default)s)"
    )
    parser.add_argument(
        "--beside-others", action="store_true", help="go on where the store has reports already: all are counted"
    )
    parser.add_argument(
        "--beyond-loopback", action="store_true", help="go on where the server is another machine; with --yes-i-own"
    )
    parser.add_argument("--yes-i-own", metavar="HOST", help="the host of URL once more, where it is not this machine")
    parser.add_argument("--json", action="store_true", help="print one JSON document; progress goes to stderr")


def _number(most: int) -> Any:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be a number from 1 to {most}, got {text!r}")
        return int(text)

    return read


def _read_key(path: Path) -> str:
    try:
        return check_key(read_text(path, KEY_FILE_BYTES_MAX).strip())
    except ValueError as error:
        raise DitherError(f"{path} must hold a key: {error}") from None


def run(args: argparse.Namespace) -> int:
    """Measure; return 1 where an upload was not accepted, and 130 where Ctrl-C ended it early."""
    url = check_endpoint(args.url).removesuffix(PATH)
    _check_owned(args, str(urlsplit(url).hostname))
    key = _read_key(args.key_file)
    registry = Registry.load(args.metrics)
    plans = [metric.plan for metric in registry.metrics.values()]
    rng = Rng(secrets.randbits)
    _check_store(url, registry.app, beside_others=args.beside_others)
    _check_taken(url, key, encode_upload(new_upload_id(secrets.randbits), device_groups(plans, rng)))
    templates = [template(url, key, device_groups(plans, rng)) for _ in range(TEMPLATES)]
    load = Load(url, templates, args.connections, strict=False)
    with _stopped_by_ctrl_c(load) as stopped:
        try:
            warm_s = 0.0 if args.devices else WARM_S
            driven = load.run(args.seconds, uploads=args.devices, warm_s=warm_s, watch=_Progress(load).say)
        except (LoadFailed, OSError) as error:
            raise DitherError(f"the server did not last: {error}; after {load.answered:,} uploads") from None
    document = _document(driven, args.connections)
    print(json.dumps(document) if args.json else _table(document))
    return 130 if stopped else int(document["accepted"] < document["uploads"])


# The servers that may be loaded.


def _check_owned(args: argparse.Namespace, host: str) -> None:
    """Refuse a server beyond this machine, unless told twice that it is one's own."""
    if is_loopback(host):
        return
    if not args.beyond_loopback or args.yes_i_own != host:
        raise DitherError(
            f"{host} is another machine, and loading somebody else's is an attack. If it is yours, and so is all "
            f"that stands before it: --beyond-loopback --yes-i-own {host}"
        )


def _asked(url: str, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
    """Return the status and the document of an answer, over a connection of its own and no proxy."""
    connecting = HTTPSConnection if url.startswith("https:") else HTTPConnection
    try:
        with closing(connecting(*address_of(url), timeout=ASK_WITHIN_S)) as connection:
            connection.request(method, urlsplit(url).path + path, body, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
    except (OSError, HTTPException, ValueError) as error:
        raise DitherError(f"{url} does not answer as a dither does ({error}): does the server run there?") from None


def _check_store(url: str, app: str, *, beside_others: bool) -> None:
    """Refuse a store of another app, and one with reports; say so where nobody can tell."""
    status, document = _asked(url, "GET", "/v1/metrics")
    if status != 200 and not beside_others:
        raise DitherError(
            "nobody can tell without a read key whether the store has reports already, and those of a test would be "
            "counted with them, for good. Test a server of an empty store, or go on with --beside-others"
        )
    if status != 200:
        return
    if document["meta"]["app"] != app:
        raise DitherError(f"the server takes reports of {document['meta']['app']!r}, and --metrics is of {app!r}")
    if any(row["days"] for row in document["rows"]) and not beside_others:
        raise DitherError(
            "the store has reports already, and those of a test would be counted with them, for good. Test a server of "
            "an empty store, or go on with --beside-others"
        )


def _check_taken(url: str, key: str, body: bytes) -> None:
    """Send one upload; raise DitherError unless every group of it is taken."""
    status, document = _asked(url, "POST", PATH, body, Authorization=f"Bearer {key}")
    if status in (401, 403):
        raise DitherError("the server does not know the key in --key-file")
    if rejected := document.get("rejected"):
        reasons = ", ".join(sorted({str(group["reason"]) for group in rejected}))
        raise DitherError(
            f"the server does not take all of --metrics ({reasons}): `dither metrics load` it there, or name the one "
            "that the server has"
        )
    if status != 202:
        raise DitherError(f"the server answered the first upload with {status}")


# While it runs.


@contextmanager
def _stopped_by_ctrl_c(load: Load) -> Iterator[list[int]]:
    """Stop sending at the first Ctrl-C, and end at the second; yield what will hold the first."""
    heard: list[int] = []

    def hear(number: int, _frame: object) -> None:
        heard.append(number)
        load.stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield heard
    finally:
        signal.signal(signal.SIGINT, before)


class _Progress:
    """Says every second how far the load is."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._began = self._said = time.monotonic()

    def say(self) -> None:
        now = time.monotonic()
        if now - self._said >= SAY_EVERY_S:
            self._said = now
            _say(f"{now - self._began:3.0f} s: {self._load.answered:,} uploads answered")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# The output.


def _document(driven: Driven, connections: int) -> dict[str, Any]:
    latencies = {
        name: round(1_000 * driven.percentile_s(percent), 2) if driven.latencies_s else None
        for name, percent in (("p50_ms", 50), ("p99_ms", 99), ("max_ms", 100))
    }
    return {
        "uploads": sum(driven.statuses.values()),
        "accepted": driven.statuses[202],
        "statuses": {str(status): number for status, number in sorted(driven.statuses.items())},
        "reports": driven.acknowledged,
        "connections": connections,
        "uploads_per_s": round(driven.rate, 1),
        **latencies,
        "load_share": round(driven.load_share, 2),
        "devices_a_day": int(driven.rate * DAY_S / PEAK),
    }


def _table(document: dict[str, Any]) -> str:
    answered = ", ".join(f"{number:,} with {status}" for status, number in document["statuses"].items())
    lines = [
        f"{document['uploads']:,} uploads, {document['accepted']:,} accepted with {document['reports']:,} reports",
        f"answered {answered}, on {document['connections']} connections",
    ]
    if document["p50_ms"] is None:
        return "\n".join([*lines, "too few were accepted to tell more"])
    return "\n".join(
        [
            *lines,
            f"{document['uploads_per_s']:,.0f} uploads a second; half waited {document['p50_ms']:g} ms at most, "
            f"99 % {document['p99_ms']:g} ms, all {document['max_ms']:g} ms",
            f"so about {document['devices_a_day']:,} devices that upload once a day, with {PEAK} times the average in "
            "the busiest hour",
            f"the load itself took {100 * document['load_share']:.0f} % of a CPU: on the server's own machine it takes "
            "that from it",
        ]
    )
