"""`dither metrics check`: refuse a registry that cannot be used, and show what it may cost a device."""

import argparse
import json
from pathlib import Path

from dither_shared.exact import from_micro, to_micro
from dither_shared.registry import Metric, Registry, utc_today

SUMMARY = "refuse a registry that cannot be used, or that exceeds device_epsilon"
EXAMPLE = "dither metrics check metrics.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("registry", metavar="REGISTRY", type=Path, help="the app's metrics.toml")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Check the registry and show each metric's plan and cost."""
    registry = Registry.load(args.registry)
    registry.check_dates(utc_today(), str(args.registry))
    metrics = list(registry.metrics.values())
    reserved = from_micro(sum(metric.reservation for metric in metrics))
    if args.json:
        document = {
            "app": registry.app,
            "device_epsilon": from_micro(to_micro(registry.device_epsilon)),
            "reserved": reserved,
            "metrics": [_describe(metric) for metric in metrics],
        }
        print(json.dumps(document))
        return 0
    for metric in metrics:
        facts = _describe(metric)
        print(
            f"{metric.name}: {metric.asked.domain.summary} by {facts['mechanism']}, epsilon "
            f"{facts['epsilon_report']:g} a report and {facts['epsilon_lifetime']:g} for life, plan {facts['plan']}"
        )
    today = utc_today()
    for metric in metrics:
        if metric.expires <= today:
            print(f"note: {metric.name} expired on {metric.expires}: devices are silent about it")
    print(f"{args.registry} is sound: one device may be charged {reserved:g} of {registry.device_epsilon}")
    return 0


def _describe(metric: Metric) -> dict[str, object]:
    cells = metric.cells
    return {
        "metric": metric.name,
        "plan": metric.plan.digest,
        "values": metric.asked.domain.size,
        "mechanism": cells.name,
        "epsilon_report": from_micro(cells.charge),
        "epsilon_lifetime": from_micro(metric.reservation),
        "expires": metric.expires.isoformat(),
        "expired": metric.expires <= utc_today(),
    }
