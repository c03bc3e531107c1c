"""`dither uploads`: write the bodies of uploads, one a line, for a load generator.

Their reports are real ones, noise and all, of an answer that nobody gave. A server counts them for good: use a store
that is thrown away. Each body has an id of its own: it counts once, however often it is sent.
"""

import argparse
import secrets
from collections.abc import Sequence
from pathlib import Path

from dither_aggregator.arguments import number
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.rng import Rng
from dither_shared.wire import GROUPS_MAX, WireGroup, encode_upload, new_upload_id

EXAMPLE = "dither uploads metrics.toml --number 100000 > uploads"
NUMBER_MAX = 10_000_000
DEVICES = 64
"""So many devices answer; the uploads are theirs in turn."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("registry", metavar="REGISTRY", type=Path, help="the registry that the server was started with")
    parser.add_argument(
        "--number", metavar="N", type=number(1, NUMBER_MAX), default=100_000, help="how many (%(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Write them."""
    plans = [metric.plan for metric in Registry.load(args.registry).metrics.values()]
    rng = Rng(secrets.randbits)
    devices = [device_groups(plans, rng) for _ in range(min(DEVICES, args.number))]
    for place in range(args.number):
        print(encode_upload(new_upload_id(secrets.randbits), devices[place % DEVICES]).decode("ascii"))
    return 0


def device_groups(plans: Sequence[Plan], rng: Rng) -> list[WireGroup]:
    """Return what a device uploads at once: a report of each plan, noise and all, of an answer that nobody gave."""
    groups: list[WireGroup] = []
    for plan in plans[:GROUPS_MAX]:
        cell = plan.cells.draw(rng)
        mechanism = plan.cells.mechanism_of(cell)
        report = mechanism.shape.to_wire(mechanism.randomize(0, rng))
        groups.append((plan.metric, plan.digest, [report], cell if plan.cells.several else None))
    return groups
