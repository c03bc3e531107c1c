"""The arguments that say which metric, plan and days a command reads."""

import argparse
from datetime import date

from dither_aggregator.analysis.estimands import estimand_of, tally_of
from dither_aggregator.analysis.reading import Window, default_window
from dither_aggregator.counting.folding import TallyGone
from dither_aggregator.store import Store, StoredPlan, Tally
from dither_aggregator.web.query_parameters import DAYS_MAX
from dither_shared.errors import ConfigurationError


def add_window_arguments(action: argparse.ArgumentParser, kind: str) -> None:
    """Add the metric, --from, --to and --plan."""
    action.add_argument("metric", metavar="METRIC", help=f"a metric of the kind {kind}")
    action.add_argument("--from", dest="first", type=_day, metavar="DAY", help="the first day (UTC); goes with --to")
    action.add_argument("--to", dest="last", type=_day, metavar="DAY", help="the last day (default: the last 7 sealed)")
    action.add_argument("--plan", metavar="DIGEST", help="under which plan (default: the registry's)")


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a day such as 2026-11-20, got {text!r}") from None


def check_window(args: argparse.Namespace) -> None:
    """Raise ConfigurationError for days that are no window."""
    if (args.first is None) != (args.last is None):
        raise ConfigurationError("--from and --to go together")
    if args.first and not 1 <= Window(args.first, args.last).days <= DAYS_MAX:
        raise ConfigurationError(f"--from must not be after --to, and a window has at most {DAYS_MAX} days")


def asked_plan(store: Store, args: argparse.Namespace, estimand: str, kind: str) -> StoredPlan:
    """Return the plan that is asked for; raise ConfigurationError where there is none, or of another estimand."""
    plans = [stored for stored in store.plans(args.metric) if args.plan in (None, stored.plan.digest)]
    if not plans:
        plan = f" with a plan {args.plan!r}" if args.plan else ""
        raise ConfigurationError(f"there is no metric {args.metric!r}{plan}")
    if estimand_of(plans[0].plan).name != estimand:
        raise ConfigurationError(f"{args.metric} must be of kind {kind}, got {plans[0].plan.kind.name}")
    return plans[0]


def asked_tally(store: Store, stored: StoredPlan, args: argparse.Namespace) -> tuple[Window, Tally]:
    """Return the window and its counts; raise ConfigurationError where they are no longer kept."""
    window = Window(args.first, args.last) if args.first else default_window(store, stored)
    try:
        return window, tally_of(store, stored, window)
    except TallyGone as gone:
        raise ConfigurationError(f"{gone}: choose later days") from None
