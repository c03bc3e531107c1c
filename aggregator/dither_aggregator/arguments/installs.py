"""`--installs`: what the reports of so many installs show, for `privacy`, `metrics new` and `metrics check`.

The latter two are of the package dither, and find this by name where it is installed (`dither/commands/__init__.py`).
"""

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from dither_aggregator.analysis.installs import (
    INSTALLS_MAX,
    Change,
    Installs,
    Outlook,
    Reread,
    Shown,
    changes,
    described,
    outlook_of,
)
from dither_shared.domains import Buckets, Range
from dither_shared.errors import ConfigurationError
from dither_shared.kinds.number_precision import told_of
from dither_shared.registry import Metric, Registry, utc_today

FEW = 1_000
"""With fewer installs the page that helps to choose names better ways."""
_FEW = (
    f"at fewer than about {FEW:,} installs use something else for everything but one or two flags that are read once a "
    f"year: shared/choosing.md says what"
)
_MEANING = """\
reports are averages, if every install's app runs each day and records each metric; intervals are those of 95 %.
shared/choosing.md says what the words mean, and what --on, --stay and --smallest change"""
_LESS = {
    "flag": "more installs, or to read what you count anyway",
    "number": 'asks = ["mean"]',
    "words": 'a list: kind = "text" with candidates, or better "choice" or "choices" with values',
    "text": 'a short list: kind = "choice" or "choices" with values',
}
"""Less that may be asked. Other kinds may have fewer values."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "--installs", metavar="N", type=_count, help="so many active installs: what their reports would show"
    )
    parser.add_argument("--on", metavar="PERCENT", type=_part, help="of them: in how many telemetry is on (100)")
    parser.add_argument("--stay", metavar="PERCENT", type=_part, help="of them: how many are there a month later")
    parser.add_argument("--smallest", metavar="PERCENT", type=_part, help="the least share that you look for")


def asked(args: argparse.Namespace) -> "AskedInstalls | None":
    """Return the installs that are asked for; raise ConfigurationError if only their options are."""
    for option in ("on", "stay", "smallest"):
        if args.installs is None and getattr(args, option) is not None:
            raise ConfigurationError(f"--{option} is of installs: add --installs 5000")
    if args.installs is None:
        return None
    on = 1.0 if args.on is None else args.on
    return AskedInstalls(Installs(args.installs, on, args.stay, args.smallest), args.registry)


_COUNT = re.compile(r"([0-9]{1,3}(?:[,_][0-9]{3}){1,3}|[0-9]{1,11}(?:[.][0-9]{1,3})?)([kKmM]?)", re.ASCII)
_UNITS = {"": 1, "k": 10**3, "m": 10**6}


def _count(text: str) -> int:
    """Return a number of installs, written as people do: 2000, 2_000, 2,000, 2k or 1.5M."""
    written = _COUNT.fullmatch(text)
    count = Decimal(re.sub("[,_]", "", written[1])) * _UNITS[written[2].lower()] if written else Decimal()
    if not 1 <= count <= INSTALLS_MAX or count % 1:
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 1 to {INSTALLS_MAX}, such as 2000, 2_000, 2k or 1.5M, got {text[:20]!r}"
        )
    return int(count)


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
        from dither_aggregator.analysis.advice import advice_together  # and with it scipy: only where it is used

        yield f"with {_in_words(self.installs)}:"
        if self.installs.count * self.installs.on < FEW:
            yield _FEW
        outlooks = self._outlooks(registry, metrics)
        for now in outlooks:
            told = now.whole.told
            yield f"{now.metric.name}: reports: {_of_windows(now, lambda shown: f'{shown.reports:,.0f}')}"
            if told:
                yield f"  {told.what}: {_of_windows(now, lambda shown: shown.words)}"
            if told and isinstance(now.metric.asked.domain, Range | Buckets):
                yield f"  {_of_mean(now, now.metric.asked.domain)}"
            if now.whole.half is not None:
                differ = "a change between two windows shows from 1.4 times that"
                yield f"  a share near one half: {_of_windows(now, _around_half)}; {differ}"
            yield f"  {now.verdict}"
            yield from (f"  advice: {line}" for line in self._advice(registry, now))
            others = self._changes(registry, now)
            if not now.useful:
                help_ = " or ".join(change.lines for change in others if change.outlook.useful)
                yield f"  what would help: {help_ or _less(now.metric)}"
            yield from (f"  {change}" for change in others)
        yield from (f"advice: {line}" for line in advice_together(outlooks))
        yield _MEANING

    def documents(self, registry: Registry, metrics: Sequence[Metric]) -> list[dict[str, object]]:
        """Return the same as plain numbers."""
        return [
            {"metric": now.metric.name, **described(now, self._changes(registry, now), self._advice(registry, now))}
            for now in self._outlooks(registry, metrics)
        ]

    def _outlooks(self, registry: Registry, metrics: Sequence[Metric]) -> Sequence[Outlook]:
        return [outlook_of(metric, self.installs, registry.quiet_days, utc_today()) for metric in metrics]

    def _changes(self, registry: Registry, now: Outlook) -> Sequence[Change]:
        return list(changes(now, registry.quiet_days, self._reread(now.metric), utc_today()))

    def _advice(self, registry: Registry, now: Outlook) -> Iterator[str]:
        from dither_aggregator.analysis.advice import advice

        return advice(now, registry.quiet_days, self._reread(now.metric), utc_today())

    def _reread(self, metric: Metric) -> Reread:
        return lambda changed: Registry.reread(self.path, metric.name, changed)


def _less(metric: Metric) -> str:
    if metric.kind.name == "number" and isinstance(metric.asked.domain, Range):
        return _LESS["flag"]  # its mean alone is asked
    return _LESS.get(metric.kind.name, "to ask for less: fewer values, or a flag")


def _in_words(installs: Installs) -> str:
    on = "" if installs.on == 1 else f", telemetry on in {100 * installs.on:g} % of them"
    stay = "" if installs.stay is None else f", of which {100 * installs.stay:g} % are there a month later"
    return f"{installs.count:,} installs{on}{stay}"


def _of_mean(now: Outlook, domain: Range | Buckets) -> str:
    """Return half the widths of the mean's intervals in its unit."""
    from dither_aggregator.analysis.advice import TOGETHER_ON_A_PAGE, page_times  # and with it scipy

    low, high = (domain.edges[end] / 10**domain.decimals for end in (0, -1))

    def around(shown: Shown) -> str:
        told = told_of(domain, now.metric.asked.cells, shown.worth)[0] if shown.enough else None
        if told is None or told.part > 1:
            return "nothing"
        return f"+- {float(f'{told.part * (high - low) / 2:.2g}'):,.12g}"

    together = (
        f"; a page has {TOGETHER_ON_A_PAGE} intervals that hold together, with noise {page_times():.2g} times as wide"
        * isinstance(domain, Buckets)
    )
    return f"the mean of {low:,.12g} to {high:,.12g} {domain.unit}: {_of_windows(now, around)}{together}"


def _around_half(shown: Shown) -> str:
    return "nothing" if shown.half is None or shown.half > 1 / 2 else f"+- {100 * shown.half:.2g} points"


def _of_windows(now: Outlook, written: Callable[[Shown], str]) -> str:
    return ", ".join(f"{written(shown)} in {name}" for name, shown in now.windows.items())
