"""`--installs`: what the reports of so many installs show, for `privacy`, `metrics new` and `metrics check`.

The latter two are of the package dither, and find this by name where it is installed (`dither/commands/__init__.py`).
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dither_aggregator.analysis.installs import (
    INSTALLS_MAX,
    YEAR_DAYS,
    Installs,
    Outlook,
    Reread,
    Shown,
    changes,
    outlook_of,
    shown_in,
)
from dither_shared.errors import ConfigurationError
from dither_shared.registry import Metric, Registry

_MEANING = """\
reports are averages, if every install's app runs each day and records each metric. The detectable share stands out from
noise four times in five. Intervals are those of 95 %: of a mean as a part of its range, of a rate of one half in a
group that is a tenth of all. A year is its reports read as one. --on says in how many installs telemetry is on, --stay
how many of them are there a month later"""
_NOBODY_COMES = "; of an early metric, without --stay, the first week of all installs: then it is silent"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "--installs", metavar="N", type=_count, help="so many active installs: what their reports would show"
    )
    parser.add_argument("--on", metavar="PERCENT", type=_part, help="of them: in how many telemetry is on (100)")
    parser.add_argument("--stay", metavar="PERCENT", type=_part, help="of them: how many are there a month later")


def asked(args: argparse.Namespace) -> "AskedInstalls | None":
    """Return the installs that are asked for; raise ConfigurationError if only their options are."""
    for option in ("on", "stay"):
        if args.installs is None and getattr(args, option) is not None:
            raise ConfigurationError(f"--{option} is of installs: add --installs 5000")
    if args.installs is None:
        return None
    return AskedInstalls(Installs(args.installs, 1.0 if args.on is None else args.on, args.stay), args.registry)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= INSTALLS_MAX and len(text) < 12):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {INSTALLS_MAX}, got {text!r}")
    return int(text)


def _part(text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise argparse.ArgumentTypeError(f"must be a percentage above 0 and at most 100, got {text!r}")
    return percent / 100


@dataclass(frozen=True)
class AskedInstalls:
    """The installs that were asked for, beside the registry's file."""

    installs: Installs
    path: Path

    def lines(self, registry: Registry, metrics: Sequence[Metric]) -> Iterator[str]:
        """Yield the lines that show what their reports tell, with those for what other keys would change."""
        yield f"with {_in_words(self.installs)}:"
        for now in self._outlooks(registry, metrics):
            told = now.year.told
            figures = f"; {told.what}: {now.week} in a week, {now.year} in a year" if told else ""
            yield (
                f"{now.metric.name}: {now.week.reports:,.0f} reports a week, {now.year.reports:,.0f} a year{figures}"
            )
            yield f"  {now.verdict}"
            if 0 < (left := (now.metric.expires - datetime.now(UTC).date()).days) < YEAR_DAYS:
                until = shown_in(now.metric, self.installs, registry.quiet_days, left)
                other = '; schedule = "early" does not spread them over a year' * (now.metric.schedule == "spread")
                yield f"  it expires in {left} days: {until.reports:,.0f} reports until then show {until}{other}"
            others = list(changes(now, registry.quiet_days, self._reread(now.metric)))
            if not now.year.useful:
                help_ = " or ".join(change.lines for change in others if change.outlook.year.useful)
                yield f"  what would help: {help_ or 'to ask for less: fewer values, a flag, a mean alone'}"
            yield from (f"  {change}" for change in others)
        yield _MEANING + _NOBODY_COMES * (self.installs.stay is None)

    def documents(self, registry: Registry, metrics: Sequence[Metric]) -> list[dict[str, object]]:
        """Return the same as plain numbers."""
        return [
            {
                **_described(now),
                "metric": now.metric.name,
                "verdict": now.verdict,
                "installs_needed": now.needed,
                "changes": [
                    {"lines": change.lines, **_described(change.outlook), "price": change.price}
                    for change in changes(now, registry.quiet_days, self._reread(now.metric))
                ],
            }
            for now in self._outlooks(registry, metrics)
        ]

    def _outlooks(self, registry: Registry, metrics: Sequence[Metric]) -> Iterator[Outlook]:
        return (outlook_of(metric, self.installs, registry.quiet_days) for metric in metrics)

    def _reread(self, metric: Metric) -> Reread:
        return lambda changed: Registry.reread(self.path, metric.name, changed)


def _in_words(installs: Installs) -> str:
    on = "" if installs.on == 1 else f", telemetry on in {100 * installs.on:g} % of them"
    stay = "" if installs.stay is None else f", of which {100 * installs.stay:g} % are there a month later"
    return f"{installs.count:,} installs{on}{stay}"


def _described(now: Outlook) -> Mapping[str, object]:
    return {"useful": now.year.useful, "week": _shown(now.week), "year": _shown(now.year)}


def _shown(shown: Shown) -> Mapping[str, object]:
    told = shown.told
    return {"reports": round(shown.reports, 3), "told": told and told.what, "part": told and told.part}
