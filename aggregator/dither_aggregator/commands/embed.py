"""`dither embed`: a signed link by which another site shows a metric's answer, as a card or as a picture."""

import argparse
from html import escape

from dither_aggregator.analysis.reading import WINDOWS
from dither_aggregator.arguments.settings import add_data_argument, day, opened
from dither_aggregator.store.document_kinds import asked_id
from dither_aggregator.web.embed_links import DAYS_MAX, FRAME, EmbedLink

EXAMPLE = "dither embed browser --key 1a2b3c4d --until 2027-01-31 --url https://example.org --data /var/lib/dither"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("metric", metavar="METRIC", help="the metric that is shown")
    parser.add_argument(
        "--key", required=True, metavar="ID", help="the read key behind the link: once it is revoked, the link ends"
    )
    parser.add_argument(
        "--until", required=True, type=day, metavar="DAY", help=f"the last day (UTC), at most {DAYS_MAX} days from now"
    )
    parser.add_argument(
        "--window", type=int, choices=WINDOWS, default=WINDOWS[0], help="days to the last sealed one; 7 unless given"
    )
    parser.add_argument("--url", metavar="URL", default="", help="where the pages are")
    add_data_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print the address of the card, that of the picture, and a line of HTML."""
    with opened(args, read_only=True) as store:
        path = EmbedLink(args.metric, args.until, args.window).path(store, asked_id(args.key))
    address = args.url.rstrip("/") + path
    print(address)
    print(f"{address}.svg")
    print(FRAME.format(escape(address), escape(args.metric)))
    return 0
