"""`dither metrics compile`: write the one document that an app ships, with every choice made and every integer said."""

from __future__ import annotations

import argparse
from pathlib import Path

from dither.terms_sentences import terms_of
from dither_shared import compiled
from dither_shared.errors import refusal_of
from dither_shared.exact import from_micro, to_micro
from dither_shared.frozen import as_dict, canonical_json
from dither_shared.registry import Registry, utc_today
from dither_shared.safe_output import write
from dither_shared.terms import Evictions, evictions
from dither_shared.toml_tables import Mistakes

SUMMARY = "write the form of a registry that an app ships: it starts faster, and devices of any language read it"
EXAMPLE = "dither metrics compile metrics.toml --out metrics.json"

NAMES_OF_OBJECTS = frozenset({"constructor"})
"""Names that a metric may have, but in no page: each object of JavaScript has them already."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("registry", metavar="REGISTRY", type=Path, help="the app's metrics.toml")
    parser.add_argument("--out", metavar="FILE", type=Path, help="write to this file instead of to stdout")
    parser.add_argument("--web", action="store_true", help="for pages, too: refuse what check --web refuses")


def run(args: argparse.Namespace) -> int:
    """Check the registry as `dither metrics check` does, and write it."""
    registry = Registry.load(args.registry)
    registry.check_dates(utc_today(), str(args.registry))
    registry.check_linked(str(args.registry))
    if args.web:
        check_web(registry, str(args.registry))
    text = f"{canonical_json(document_of(registry)).decode()}\n"
    compiled.read(text, f"{args.registry}, compiled")  # what an app could not read is not written
    write(text, args.out)
    return 0


def document_of(registry: Registry) -> dict[str, object]:
    """Return the compiled document of a registry."""
    sentences = ({**as_dict(sentence), "facts": dict(sentence.facts)} for sentence in terms_of(registry))
    return compiled.to_document(registry, sentences)


def check_web(registry: Registry, source: str) -> Evictions:
    """Return what a year of evictions costs; refuse more than `device_epsilon` unless reviewers know.

    Refuse, too, what `start()` of the SDK for pages throws for, in its words.
    """
    mistakes = Mistakes()
    for name, metric in registry.metrics.items():
        if name in NAMES_OF_OBJECTS:
            problem = f"a page cannot have a metric that is named {name}: name it otherwise"
            mistakes.note(refusal_of(source, f"metric.{name}: {problem}"))
        if metric.measures:
            problem = f"{name} measures {metric.measures}, which a page cannot: leave it out"
            mistakes.note(refusal_of(source, f"metric.{name}: {problem}"))
    mistakes.check()
    most = evictions(registry)
    if most.micro > to_micro(registry.device_epsilon) and not registry.evicted:
        raise refusal_of(
            source,
            f"registry: in a browser device_epsilon must be at least what a person may be charged in a year in which "
            f"it deletes what the page has kept, {from_micro(most.micro):g} as {most.devices} devices, "
            f"got {registry.device_epsilon}; ask less, or say evicted = true, which people are told",
        )
    return most
