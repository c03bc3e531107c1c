"""`dither attack`: watch what an operator who keeps every report learns of simulated devices."""

import argparse
import json
import os
import random
from importlib.resources import files
from pathlib import Path

from dither.attacking.attacks import ATTACKS, attack, broken, document, page, table
from dither.attacking.trials import Trial, can_be_read
from dither.auditing.samples import in_turn, over_cores
from dither.writing import check_writable, progress, to_html
from dither_shared.errors import ConfigurationError
from dither_shared.registry import Metric, Registry
from dither_shared.rng import SYSTEM, Rng
from dither_shared.safe_output import speak_utf8, write

EXAMPLE = "dither attack metrics.toml --html attacks.html"

DEVICES, DEVICES_MAX = 150, 100_000
DAYS, DAYS_LEAST, DAYS_MAX = 365, 8, 730


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument(
        "registry", metavar="REGISTRY", type=Path, nargs="?", help="the app's metrics.toml; without it an example"
    )  # fmt: skip
    parser.add_argument(
        "--metric", metavar="NAME", action="append", default=[],
        help="attack this one: one of fresh noise, one that is memoized; the first of each by default; repeat",
    )  # fmt: skip
    parser.add_argument(
        "--only", metavar="ATTACK", action="append", choices=ATTACKS, default=[], help=f"{', '.join(ATTACKS)}; repeat"
    )
    parser.add_argument("--devices", metavar="N", type=int, default=DEVICES, help="simulated devices [%(default)s]")
    parser.add_argument("--days", metavar="N", type=int, default=DAYS, help="for how long [%(default)s]")
    parser.add_argument(
        "--seed", metavar="N", type=int, help="draw from a seeded generator, to see the same again; in one process"
    )
    parser.add_argument("--processes", metavar="N", type=int, default=os.cpu_count() or 1, help="one a core by default")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write a page to publish, too")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Attack; return 1 where an attack does better than is promised."""
    trial = _trial(args)
    if args.html:
        check_writable(args.html)
    names = [name for name in ATTACKS if name in args.only or not args.only]
    attacks = attack(trial, names, progress)
    progress("")
    if not attacks:
        raise ConfigurationError(f"{trial.registry.app} has no metric for {', '.join(names)}: name another attack")
    if args.html:
        write(to_html(page(attacks, trial)), args.html)
    speak_utf8()
    print(json.dumps(document(attacks, trial)) if args.json else table(attacks))
    return int(any(broken(attacks)))


def _trial(args: argparse.Namespace) -> Trial:
    for name, value, least, most in (
        ("devices", args.devices, 1, DEVICES_MAX),
        ("days", args.days, DAYS_LEAST, DAYS_MAX),
        ("processes", args.processes, 1, 1_024),
    ):
        if not least <= value <= most:
            raise ConfigurationError(f"--{name} must be from {least} to {most:,}, got {value}")
    registry = Registry.load(args.registry) if args.registry else _example()
    fresh, memoized = _chosen(registry, args.metric)
    if args.seed is None:
        return Trial(registry, fresh, memoized, args.days, args.devices, SYSTEM, over_cores(args.processes))
    # One process: several would draw the same from one seed.
    seeded = Rng(random.Random(args.seed).getrandbits)  # noqa: S311  # of simulated devices
    return Trial(registry, fresh, memoized, args.days, args.devices, seeded, in_turn)


def _example() -> Registry:
    return Registry.parse((files("dither") / "attacking" / "example.toml").read_text("utf-8"))


def _chosen(registry: Registry, names: list[str]) -> tuple[Metric | None, Metric | None]:
    """Return the metric of fresh noise and the memoized one that are attacked.

    They are those named, or the first ones whose laws can be told.
    """
    chosen: dict[bool, Metric] = {}
    for name in names:
        if name not in registry.metrics:
            raise ConfigurationError(f"there is no metric {name} in {registry.app}: {', '.join(registry.metrics)}")
        metric = registry.metrics[name]
        if metric.memoized in chosen:
            kind = "memoized" if metric.memoized else "of fresh noise"
            other = chosen[metric.memoized].name
            raise ConfigurationError(f"{other} and {name} are both {kind}: attack one after the other")
        chosen[metric.memoized] = metric
    if not names:
        for metric in registry.metrics.values():
            if metric.memoized not in chosen and can_be_read(metric):
                chosen[metric.memoized] = metric
    return chosen.get(False), chosen.get(True)
