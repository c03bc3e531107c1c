"""`dither doctor`: everything that an operator would look at, in one table."""

import argparse
import json
from collections.abc import Sequence

from dither_aggregator.arguments.settings import add_data_argument, add_settings, place
from dither_aggregator.health.checks import HealthFinding
from dither_aggregator.health.diagnosis import examine

EXAMPLE = "dither doctor --data /var/lib/dither --health 8081"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_data_argument(parser)
    add_settings(
        parser,
        "health",
        read=_url,
        what="where to ask a running server: its [HOST:]PORT for monitors, or an URL",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _url(text: str) -> str:
    if text.startswith(("http://", "https://")):
        return text
    host, port = place(text)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(args: argparse.Namespace) -> int:
    """Print what was found; return 1 where something needs a look."""
    found = list(examine(args.data, args.health))
    well = all(check.well for check in found)
    if args.json:
        print(json.dumps({"ok": well, "checks": [check.to_document() for check in found]}))
    else:
        _print_table(found)
    return 0 if well else 1


def _print_table(found: Sequence[HealthFinding]) -> None:
    """Print a line a check, and below those that are not well what to do."""
    what, value = (max(len(getattr(check, column)) for check in found) for column in ("what", "value"))
    value = min(value, 60)
    print(f"{'check':{what}}  {'ok':3}  {'value':{value}}  limit")
    for check in found:
        shown = check.value.replace("`", "")
        print(f"{check.what:{what}}  {'yes' if check.well else 'NO':3}  {shown:{value}}  {check.limit}")
        if not check.well:
            print(f"{'':{what}}       {check.hint.replace('`', '')}")
    ill = sum(not check.well for check in found)
    print(f"{len(found)} checks: " + (f"{ill} need{'s' * (ill == 1)} a look" if ill else "all is well"))
