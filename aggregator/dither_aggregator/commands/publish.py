"""`dither publish`: noisy totals of each metric's last closed window, as a static site."""

import argparse
import json
import sys
from pathlib import Path

from dither_aggregator.arguments.settings import add_data_argument, opened
from dither_shared.registry import Registry

EXAMPLE = "dither publish metrics.toml --data /var/lib/dither --out site/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument(
        "registry", metavar="REGISTRY", type=Path, help="the app's metrics.toml, which says what to publish"
    )
    parser.add_argument("--out", metavar="DIRECTORY", type=Path, required=True, help="where the site is, or will be")
    parser.add_argument(
        "--url",
        metavar="URL",
        type=_url,
        help="the address at which the site is shown, for its feed and the source of its pictures; the site keeps it",
    )
    parser.add_argument(
        "--audit", metavar="FILE", type=Path, help="the page that `dither audit --html` wrote; the site keeps it"
    )
    add_data_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _url(text: str) -> str:
    """Return an address that ends with a slash."""
    if not text.startswith(("https://", "http://")) or not text.isascii() or set(text) & set(" \"'<>?#"):
        raise argparse.ArgumentTypeError(f"must be as https://example.org/telemetry/, got {text!r}")
    return text.removesuffix("/") + "/"


def run(args: argparse.Namespace) -> int:
    """Publish what is not published yet, and write the site of all that is; return 1 if a window is not published."""
    registry = Registry.load(args.registry)
    from dither_aggregator.publishing.site import publish_to

    with opened(args) as store:
        releases, refused = publish_to(args.out, store, registry, args.url, args.audit)
    if args.json:
        names = [release.document_id for release in releases]
        print(json.dumps({"app": registry.app, "releases": names, "not_published": refused}))
    else:
        for release in releases:
            print(f"{release.document_id}: epsilon {release.epsilon:g}")
        for reason in refused:
            print(reason, file=sys.stderr)
        print(f"{args.out / 'index.html'} has {len(releases)} releases")
    return int(bool(refused))
