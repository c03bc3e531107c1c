"""`dither metrics check`: refuse a registry that cannot be used, and show what it may cost a device."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

from dither.commands import add_installs, installs_of
from dither.commands.metrics.compiling import check_web, document_of
from dither_shared.accounting import (
    EVEN,
    NEARLY_CERTAIN,
    ONE_IN_TEN,
    SURE_OF_REPORT_MAX,
    hundredths,
    millionths_above,
    percent_above,
    percent_exactly,
    sure,
)
from dither_shared.errors import refusal_of
from dither_shared.exact import exp_of_micro, from_micro, to_micro
from dither_shared.measures import MEASURES
from dither_shared.mechanisms import DEVICES, PureMechanism
from dither_shared.registry import Metric, Registry, utc_today
from dither_shared.terms import AWAY_DAYS, HIDES, Evictions
from dither_shared.toml_tables import Mistakes

SUMMARY = "refuse a registry that cannot be used, exceeds device_epsilon or tells devices apart"
EXAMPLE = "dither metrics check metrics.toml"
ODDS_SHOWN_MAX = 1_000_000
"""Odds beyond that are not written out."""


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
        "--strict",
        action="store_true",
        help="for CI: exit 1, too, if a guess may become nearly certain and the registry does not say that it is known",
    )
    parser.add_argument(
        "--web",
        action="store_true",
        help="for pages in browsers, too: what a person may be charged where a browser deletes what a page has kept",
    )
    parser.add_argument(
        "--public",
        action="store_true",
        help="for a published site: refuse a registry that publishes nothing, or a metric without the issue behind it",
    )
    add_installs(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _days(text: str) -> timedelta:
    """Return a number of days, written as a registry writes a period."""
    if not re.fullmatch(r"[1-9][0-9]{0,3}d", text):
        raise argparse.ArgumentTypeError(f"must be 1d to 9999d, got {text!r}")
    return timedelta(days=int(text[:-1]))


def run(args: argparse.Namespace) -> int:
    """Check the registry and show each metric's plan and cost; return 1 for a finding."""
    crowd = installs_of(args)
    registry, today = _sound(args.registry), utc_today()
    most = check_web(registry, str(args.registry)) if args.web else None
    if args.public:
        _check_public(registry, str(args.registry))
    metrics = list(registry.metrics.values())
    expired = [metric for metric in metrics if metric.expires <= today]
    soon = [metric for metric in metrics if args.expires_within and metric.expires <= today + args.expires_within]
    notes = list(_certainties(registry))
    found = bool(expired or soon or (args.strict and notes and not registry.nearly_certain))
    if args.json:
        document = _document(registry, notes)
        if args.expires_within:
            document["expires_soon"] = [metric.name for metric in soon]
        if crowd:
            document["installs"] = crowd.documents(registry, metrics)
        if most:
            document["web"] = {"epsilon": from_micro(most.micro), "devices": most.devices, "days": most.days}
        print(json.dumps(document))
        return int(found)
    for metric in metrics:
        _print_metric(metric)
    print(f"one device: after all reports about all questions {_sure_of(to_micro(registry.device_epsilon))}")
    for metric in metrics:
        if metric in expired:
            print(f"expired: {metric.name} on {metric.expires}: devices are silent about it")
        elif metric in soon:
            print(f"expires soon: {metric.name} on {metric.expires}, in {(metric.expires - today).days} days")
    for name in registry.unused:
        print(f"note: nothing names the list [values.{name}]")
    if registry.linked is not None:
        print(
            f"note: R({DEVICES}) of all its metrics is {hundredths(registry.linked)}: the share of {DEVICES} devices "
            f"with the same answers whose reports can be joined over time"
        )
    for note in (*_dropped(registry), *notes):
        print(f"note: {note}")
    if notes:
        print(_KNOWN if registry.nearly_certain else _UNKNOWN)
    if most:
        _print_web(registry, most)
    if crowd:
        print(*crowd.lines(registry, metrics), sep="\n")
    if registry.published:
        from dither_shared.releases import release_lines

        print(*release_lines(registry), sep="\n")
    reserved = from_micro(sum(metric.reservation for metric in metrics))
    print(f"{args.registry} is sound: one device may be charged {reserved:g} of {registry.device_epsilon}")
    if expired:
        names = ", ".join(metric.name for metric in expired)
        print(f"of {names} nothing arrives any more: ship a later date, to which people agree anew, or leave it out")
    if soon:
        print(
            f"within {args.expires_within.days} days {', '.join(metric.name for metric in soon)} will have expired: "
            f"ship a later date, to which people agree anew, or leave it out"
        )
    return int(found)


_KNOWN = "that a guess can become so sure is known: the registry says nearly_certain = true"
_UNKNOWN = (
    "ask fewer reports or a smaller epsilon; or, where it is known and meant, say nearly_certain = true under "
    "[registry]: until then --strict exits with 1"
)


def _sound(path: Path) -> Registry:
    """Return the registry, or raise RegistryError with all its mistakes."""
    registry, mistakes = Registry.load(path), Mistakes()
    with mistakes.noted():
        registry.check_dates(utc_today(), str(path))
    with mistakes.noted():
        registry.check_linked(str(path))
    mistakes.check()
    return registry


def _print_metric(metric: Metric) -> None:
    facts = _describe(metric)
    answers = "1 answer" if metric.charges == 1 else f"{metric.charges} different answers"
    memos = f", {from_micro(metric.charge):g} an answer, however often it is repeated," * metric.memoized
    print(
        f"{metric.name}: {metric.asked.domain.summary} by {facts['mechanism']}, epsilon "
        f"{facts['epsilon_report']:g} a report{memos} and {facts['epsilon_lifetime']:g} for life"
        f"{f' of {answers}' * metric.memoized}, plan {facts['plan']}"
    )
    if metric.hidden:
        print(f"  {HIDES}")
    if metric.measures:
        print(f"  the device itself works out {MEASURES[metric.measures].words}: the app records nothing")
    elif metric.memoized and metric.charges == 1:
        print("  answers = 1: a device repeats its first answer for ever, also where it has changed; 2 tell one change")
    print(f"  after one report {_sure_of(metric.cells.charge)}")
    if metric.memoized:
        print(f"  after all reports of one answer {_sure_of(metric.charge)}")
    print(f"  after all reports about it {_sure_of(metric.reservation)}")


def _dropped(registry: Registry) -> Iterator[str]:
    """Yield what of the answers is dropped, so that shares would be wrong, or nothing arrives."""
    for metric in registry.metrics.values():
        ticks = PureMechanism.of(metric.mechanism).ticks if metric.kind.several else None
        if ticks and ticks < len(metric.values):
            yield (
                f"{metric.name}: an answer with more than {ticks} values keeps those listed first: the shares of "
                f"values listed last are then too low, and their intervals do not say so"
            )
    once = [
        each.name
        for each in registry.metrics.values()
        if each.schedule == "early" and each.charges == 1 and not each.measures  # a later day's use answers these
    ]
    if once and registry.quiet_days:
        days = "first day" if registry.quiet_days == 1 else f"first {registry.quiet_days} days"
        yield (
            f"{', '.join(once)}: quiet_days = {registry.quiet_days} drops what is recorded on a device's {days}; "
            f"record it on a later day, too, or take quiet_days = 0 where it happens once, such as a page on first use"
        )


def _sure_of(micro: int) -> str:
    """Say what a guess may become, as the terms do."""
    even, tenth = (percent_above(sure(exp_of_micro(micro), prior)) for prior in (EVEN, ONE_IN_TEN))
    return f"a guess of one in two is at most {even} % sure, one of one in ten {tenth} %"


def _certainties(registry: Registry) -> Iterator[str]:
    """Yield the arithmetic of each guess that may become surer than is usual."""
    for metric in registry.metrics.values():
        report, charge = (from_micro(micro) for micro in (metric.cells.charge, metric.charge))
        charges = "different answers x epsilon_permanent" if metric.memoized else "reports x epsilon"
        life = f"{metric.charges} {charges} {charge:g} = {from_micro(metric.reservation):g}"
        for after, micro, most, arithmetic in (
            ("one report", metric.cells.charge, SURE_OF_REPORT_MAX, f"epsilon {report:g}"),
            ("all reports about it", metric.reservation, NEARLY_CERTAIN, life),
        ):
            yield from _certainty(metric.name, after, micro, most, arithmetic)
    whole = f"device_epsilon {registry.device_epsilon}"
    after = "all reports about all questions"
    yield from _certainty("one device", after, to_micro(registry.device_epsilon), NEARLY_CERTAIN, whole)


def _certainty(whose: str, after: str, micro: int, most: Fraction, arithmetic: str) -> Iterator[str]:
    odds = exp_of_micro(micro)
    shown = "more than a million" if odds > ODDS_SHOWN_MAX else f"{float(odds):,.0f}"
    if (probability := sure(odds)) > most:
        yield (
            f"{whose}: after {after} an even guess may be {percent_exactly(probability)} % sure, above {100 * most} %: "
            f"{arithmetic}, and e^{from_micro(micro):g} is {shown} : 1"
        )


def _document(registry: Registry, notes: list[str]) -> dict[str, object]:
    metrics = registry.metrics.values()
    whole = to_micro(registry.device_epsilon)
    return {
        "app": registry.app,
        "device_epsilon": from_micro(whole),
        "reserved": from_micro(sum(metric.reservation for metric in metrics)),
        "sure_device": _millionths(whole, EVEN),
        "sure_device_of_one_in_ten": _millionths(whole, ONE_IN_TEN),
        "certainties": notes,
        "nearly_certain": registry.nearly_certain,
        f"linked_of_{DEVICES}": registry.linked,
        "linkable": registry.linkable,
        "unused_lists": list(registry.unused),
        "publish_epsilon_year": _year_of_releases(registry),
        "metrics": [_describe(metric) for metric in metrics],
        "compiled": document_of(registry),
    }


def _millionths(micro: int, prior: Fraction) -> float:
    return millionths_above(sure(exp_of_micro(micro), prior))


def _check_public(registry: Registry, source: str) -> None:
    """Refuse a registry whose releases a site could not explain."""
    if not registry.published:
        raise refusal_of(source, "registry: no metric says publish, so there is nothing that a site could show")
    from dither_shared.releases import prove_issues  # which the aggregator brings, as it does what reads `publish`

    prove_issues(registry.published, source)


def _year_of_releases(registry: Registry) -> float:
    """Return what a year of releases costs a device at most."""
    if not registry.published:
        return 0.0
    from dither_shared.releases import micro_year

    return from_micro(micro_year(registry))


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
        "sure_report": _millionths(cells.charge, EVEN),
        "sure_report_of_one_in_ten": _millionths(cells.charge, ONE_IN_TEN),
        "sure_lifetime": _millionths(metric.reservation, EVEN),
        "sure_lifetime_of_one_in_ten": _millionths(metric.reservation, ONE_IN_TEN),
        "expires": metric.expires.isoformat(),
        "expired": metric.expires <= utc_today(),
    }
