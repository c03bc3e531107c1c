"""`dither metrics load`: the plans of a registry, and the dashboard beside it, into a store. Light until it is run."""

import argparse
import json
from pathlib import Path

from dither_aggregator.arguments.settings import add_data_argument, opened
from dither_shared.registry import Registry, utc_today

SUMMARY = "load a registry into an aggregator's store: deploy it there before the app ships it"
EXAMPLE = "dither metrics load metrics.toml --data redis://10.0.0.5:6379/0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("registry", metavar="REGISTRY", type=Path, help="the app's metrics.toml")
    add_data_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Load it; running processes take it up within seconds."""
    registry = Registry.load(args.registry)
    registry.check_dates(utc_today(), str(args.registry))
    from dither_aggregator.operations.administration import Administration

    with opened(args) as store:
        new = [stored.plan for stored in Administration(store).load(registry)]
        dashboard = Administration(store).show_beside(args.registry)
        older = sum(not stored.current for stored in store.plans())
    if args.json:
        added = [{"metric": plan.metric, "rev": plan.rev, "plan": plan.digest} for plan in new]
        print(json.dumps({"app": registry.app, "metrics": len(registry.metrics), "new": added, "older": older}))
        return 0
    for plan in new:
        print(f"new: {plan.metric} rev {plan.rev}, plan {plan.digest}")
    metrics, plans = f"metric{'s' * (len(registry.metrics) != 1)}", f"new plan{'s' * (len(new) != 1)}"
    beside = f"{older} older one{'s' * (older != 1)} beside them"
    print(f"{len(registry.metrics)} {metrics} of {registry.app}, {len(new)} {plans}, {beside}")
    if dashboard:
        print(f"dashboard: {len(dashboard.groups)} groups, {len(dashboard.questions)} questions")
    return 0
