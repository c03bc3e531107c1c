"""`dither audit`: hold what each metric declares against its exact law, and against what devices do."""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from dither.auditing import adapters
from dither.auditing.auditing import ALPHA, ERROR, Audited, Claims, Sampling, audit, document, page, table
from dither.auditing.claims import Claim, Never, Repetition, claims_of
from dither.auditing.devices import device_claims, draws_claim
from dither.auditing.memos import POPULATION, linking_claims
from dither.auditing.samples import over_cores
from dither.writing import check_writable, progress, to_html
from dither_shared.errors import ConfigurationError
from dither_shared.registry import Metric, Registry, utc_today
from dither_shared.safe_output import speak_utf8, write

EXAMPLE = "dither audit metrics.toml --html audit.html"

REPORTS, REPORTS_MAX = 100_000, 100_000_000
DEVICES, DEVICES_MAX = 1_000, 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("registry", metavar="REGISTRY", type=Path, nargs="?", help="the app's metrics.toml")
    parser.add_argument("--metric", metavar="NAME", action="append", default=[], help="audit this metric alone; repeat")
    parser.add_argument(
        "--adapter", metavar="MODULE:NAME", action="append", default=[],
        help="audit a randomizer of your own, which has inputs, epsilon and randomize(value, rng); repeat",
    )  # fmt: skip
    parser.add_argument(
        "--reports", metavar="N", type=int, default=REPORTS, help="reports a side; 0 for exact laws alone [%(default)s]"
    )
    parser.add_argument(
        "--devices", metavar="N", type=int, default=DEVICES, help="whole devices a side; 0 for none [%(default)s]"
    )
    parser.add_argument(
        "--alpha", metavar="P", type=float, default=ALPHA, help="error of each bound that is shown [%(default)s]"
    )
    parser.add_argument(
        "--error", metavar="P", type=float, default=ERROR, help="error of all verdicts together [%(default)s]"
    )
    parser.add_argument("--processes", metavar="N", type=int, default=os.cpu_count() or 1, help="one a core by default")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write a page to publish, too")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Audit; return 1 where a claim does not hold."""
    sampling = _sampling(args)
    registry = Registry.load(args.registry) if args.registry else None
    if args.html:
        check_writable(args.html)
    metrics = _metrics(registry, args) if registry else ()
    claims = [*(_claims(registry, metrics, args) if registry else ()), *map(adapters.load, args.adapter)]
    if not claims:
        raise ConfigurationError("an audit needs a registry, or a randomizer by --adapter: dither audit metrics.toml")
    findings = audit(claims, sampling, progress)
    progress("")
    audited = Audited(registry.app if registry else ", ".join(args.adapter), tuple(metrics), utc_today())
    if args.html:
        write(to_html(page(audited, findings, sampling)), args.html)
    speak_utf8()
    print(json.dumps(document(audited, findings, sampling)) if args.json else table(findings, sampling))
    return int(any(each.verdict for each in findings))


def _sampling(args: argparse.Namespace) -> Sampling:
    for name, value, most in (("reports", args.reports, REPORTS_MAX), ("devices", args.devices, DEVICES_MAX)):
        if not 0 <= value <= most:
            raise ConfigurationError(f"--{name} must be from 0 to {most:,}, got {value}")
    for name, probability in (("alpha", args.alpha), ("error", args.error)):
        if not 1e-12 <= probability <= 0.5:
            raise ConfigurationError(f"--{name} must be a probability from 1e-12 to 0.5, got {probability}")
    if not 1 <= args.processes <= 1_024:
        raise ConfigurationError(f"--processes must be from 1 to 1024, got {args.processes}")
    return Sampling(args.reports, args.devices, args.alpha, args.error, spread=over_cores(args.processes))


def _metrics(registry: Registry, args: argparse.Namespace) -> Sequence[Metric]:
    for name in args.metric:
        if name not in registry.metrics:
            raise ConfigurationError(f"there is no metric {name} in {args.registry}: {', '.join(registry.metrics)}")
    return [registry.metrics[name] for name in args.metric or registry.metrics]


def _claims(registry: Registry, metrics: Sequence[Metric], args: argparse.Namespace) -> Claims:
    claims: list[Claim | Repetition | Never] = []
    for metric in metrics:
        claims += claims_of(metric)
        claims += device_claims(registry, metric) if args.devices else [draws_claim(registry, metric)]
    if args.devices >= POPULATION:
        claims += linking_claims(registry, metrics)
    return claims
