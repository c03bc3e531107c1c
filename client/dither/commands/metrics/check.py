"""`dither metrics check`: refuse a registry that cannot be used, and show what it may cost a device."""

import argparse
import json
import re
from datetime import timedelta
from pathlib import Path

from dither.commands.metrics.compiling import document_of
from dither_shared.accounting.linking import hundredths
from dither_shared.errors import refusal_of
from dither_shared.exact import from_micro, to_micro
from dither_shared.mechanisms import DEVICES
from dither_shared.registry import Metric, Registry, utc_today
from dither_shared.terms import AWAY_DAYS, Evictions, evictions

SUMMARY = "refuse a registry that cannot be used, exceeds device_epsilon or tells devices apart"
EXAMPLE = "dither metrics check metrics.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("registry", metavar="REGISTRY", type=Path, help="the app's metrics.toml")
    parser.add_argument(
        "--expires-within",
        metavar="DAYS",
        type=_days,
        help='such as "60d": exit 1 and name each metric that expires within so many days, or has expired',
    )
    parser.add_argument(
        "--web",
        action="store_true",
        help="for pages in browsers, too: what a person may be charged where a browser deletes what a page has kept",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _days(text: str) -> timedelta:
    """Return a number of days, written as a registry writes a period."""
    if not re.fullmatch(r"[1-9][0-9]{0,3}d", text):
        raise argparse.ArgumentTypeError(f"must be 1d to 9999d, got {text!r}")
    return timedelta(days=int(text[:-1]))


def run(args: argparse.Namespace) -> int:
    """Check the registry and show each metric's plan and cost; return 1 where one expires too soon."""
    registry = Registry.load(args.registry)
    registry.check_dates(utc_today(), str(args.registry))
    registry.check_linked(str(args.registry))
    most = _check_web(registry, str(args.registry)) if args.web else None
    metrics = list(registry.metrics.values())
    reserved = from_micro(sum(metric.reservation for metric in metrics))
    today = utc_today()
    soon = [metric for metric in metrics if args.expires_within and metric.expires <= today + args.expires_within]
    if args.json:
        document = {
            "app": registry.app,
            "device_epsilon": from_micro(to_micro(registry.device_epsilon)),
            "reserved": reserved,
            f"linked_of_{DEVICES}": registry.linked,
            "linkable": registry.linkable,
            "unused_lists": list(registry.unused),
            "metrics": [_describe(metric) for metric in metrics],
            "compiled": document_of(registry),
        }
        if args.expires_within:
            document["expires_soon"] = [metric.name for metric in soon]
        if most:
            document["web"] = {"epsilon": from_micro(most.micro), "devices": most.devices, "days": most.days}
        print(json.dumps(document))
        return int(bool(soon))
    for metric in metrics:
        facts = _describe(metric)
        print(
            f"{metric.name}: {metric.asked.domain.summary} by {facts['mechanism']}, epsilon "
            f"{facts['epsilon_report']:g} a report and {facts['epsilon_lifetime']:g} for life, plan {facts['plan']}"
        )
    for metric in metrics:
        if metric.expires <= today:
            print(f"note: {metric.name} expired on {metric.expires}: devices are silent about it")
        elif metric in soon:
            print(f"expires soon: {metric.name} on {metric.expires}, in {(metric.expires - today).days} days")
    for name in registry.unused:
        print(f"note: nothing names the list [values.{name}]")
    if registry.linked is not None:
        print(
            f"note: R({DEVICES}) of all its metrics is {hundredths(registry.linked)}: the share of {DEVICES} devices "
            f"with the same answers whose reports can be joined over time"
        )
    if most:
        _print_web(registry, most)
    print(f"{args.registry} is sound: one device may be charged {reserved:g} of {registry.device_epsilon}")
    if soon:
        print(
            f"within {args.expires_within.days} days {', '.join(metric.name for metric in soon)} will have expired: "
            f"ship a later date, to which people agree anew, or leave it out"
        )
        return 1
    return 0


def _check_web(registry: Registry, source: str) -> Evictions:
    """Return what a year of evictions costs; refuse more than `device_epsilon` unless reviewers know."""
    most = evictions(registry)
    if most.micro > to_micro(registry.device_epsilon) and not registry.evicted:
        raise refusal_of(
            source,
            f"registry: in a browser device_epsilon must be at least what a person may be charged in a year in which "
            f"it deletes what the page has kept, {from_micro(most.micro):g} as {most.devices} devices, "
            f"got {registry.device_epsilon}; ask less, or say evicted = true, which people are told",
        )
    return most


def _print_web(registry: Registry, most: Evictions) -> None:
    print(
        f"note: in a browser a person may be charged {from_micro(most.micro):g} in a year, as {most.devices} devices: "
        f"visits on {most.days} days, then {AWAY_DAYS} days away, after which Safari deletes what the page has kept"
    )
    hidden = ", ".join(name for name, metric in registry.metrics.items() if metric.hidden)
    if hidden:
        print(
            f"note: in a browser {hidden} says none or an answer only for periods with a visit, and sends it at a "
            f"visit after the period: that somebody came is not hidden"
        )
    if not registry.quiet_days:
        print("note: without quiet_days every visit in a private window, and of a crawler, is a device that reports")


def _describe(metric: Metric) -> dict[str, object]:
    cells = metric.cells
    return {
        "metric": metric.name,
        "plan": metric.plan.digest,
        "document": metric.plan.to_document(),
        "values": metric.asked.domain.size,
        "mechanism": cells.name,
        "epsilon_report": from_micro(cells.charge),
        "epsilon_lifetime": from_micro(metric.reservation),
        "expires": metric.expires.isoformat(),
        "expired": metric.expires <= utc_today(),
    }
