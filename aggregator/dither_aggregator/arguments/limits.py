"""How much may come, and how much capacity a store must keep."""

import argparse

from dither_aggregator.arguments.sources import add_settings
from dither_aggregator.health.capacity import Capacity
from dither_aggregator.ingest.limits import Limits


def add_limit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --limit-address, --limit-key, --backlog-max and --disk-floor."""
    add_settings(parser, "limit_address", "limit_key", "backlog_max", "disk_floor")


def limits(args: argparse.Namespace) -> Limits:
    """Return how often uploads may come."""
    by_address, this_machine = args.limit_address
    return Limits(args.limit_key, by_address, this_machine, tuple(args.trusted_proxy), tuple(args.allow_origin))


def capacity(args: argparse.Namespace) -> Capacity:
    """Return what the store must have left."""
    return Capacity(args.backlog_max, args.disk_floor)
