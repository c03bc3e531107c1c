"""`dither metrics compile`: write the one document that an app ships, with every choice made and every integer said."""

from __future__ import annotations

import argparse
from pathlib import Path

from dither.terms_sentences import terms_of
from dither_shared import compiled
from dither_shared.frozen import as_dict, canonical_json
from dither_shared.registry import Registry, utc_today
from dither_shared.safe_output import write

SUMMARY = "write the form of a registry that an app ships: it starts faster, and devices of any language read it"
EXAMPLE = "dither metrics compile metrics.toml --out metrics.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("registry", metavar="REGISTRY", type=Path, help="the app's metrics.toml")
    parser.add_argument("--out", metavar="FILE", type=Path, help="write to this file instead of to stdout")


def run(args: argparse.Namespace) -> int:
    """Check the registry as `dither metrics check` does, and write it."""
    registry = Registry.load(args.registry)
    registry.check_dates(utc_today(), str(args.registry))
    registry.check_linked(str(args.registry))
    text = f"{canonical_json(document_of(registry)).decode()}\n"
    compiled.read(text, f"{args.registry}, compiled")  # what an app could not read is not written
    write(text, args.out)
    return 0


def document_of(registry: Registry) -> dict[str, object]:
    """Return the compiled document of a registry."""
    sentences = ({**as_dict(sentence), "facts": dict(sentence.facts)} for sentence in terms_of(registry))
    return compiled.to_document(registry, sentences)
