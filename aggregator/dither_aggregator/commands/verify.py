"""`dither verify`: a published site, computed again from its noisy counts."""

import argparse
import json
from pathlib import Path

from dither_shared.errors import ConfigurationError

EXAMPLE = "dither verify site/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("site", metavar="SITE", type=Path, help="the directory of a site")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Compute every figure again; return 1 for a file that is another than its documents make."""
    from dither_aggregator.publishing.site import verify

    if not args.site.is_dir():
        raise ConfigurationError(f"{args.site} is no directory: name the one that `dither publish --out` wrote")
    found = verify(args.site)
    if args.json:
        print(json.dumps({"findings": found}))
    else:
        print(*(found or [f"{args.site}: every file is what its noisy counts and facts make of it"]), sep="\n")
    return int(bool(found))
