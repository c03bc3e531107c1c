"""`dither settings`: every setting, its value, and who says so."""

import argparse
import json

from dither_aggregator.arguments.settings import SETTINGS, add_settings

EXAMPLE = "dither settings --settings /etc/dither/dither.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line: every setting may be tried here."""
    add_settings(parser, *SETTINGS)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    rows = [
        {
            "setting": setting.name,
            "value": args.in_force[setting.name].text,
            "from": args.in_force[setting.name].source,
            "flag": setting.flag,
            "variable": setting.variable,
            "default": setting.shown_default,
            "what": setting.what,
        }
        for setting in SETTINGS.values()
    ]
    if args.json:
        print(json.dumps({"settings": rows}))
        return 0
    for row in rows:
        print(f"{row['setting']:<18} {row['value']:<28}  {row['from']}")
    return 0
