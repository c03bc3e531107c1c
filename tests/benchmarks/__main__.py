"""Run the sections that are named, or all."""

import argparse
from collections.abc import Callable
from functools import partial

from tests.benchmarks import (
    accuracy,
    attacks,
    audit,
    cluster,
    edges,
    growth,
    ingest,
    missed,
    pages,
    power,
    publishing,
    rappor,
    readings,
    sdk,
    servers,
    sizes,
    speed,
)
from tests.benchmarks.numbers import comparing as numbers
from tests.benchmarks.tables import comparing as tables
from tests.benchmarks.texts import comparing as texts
from tests.benchmarks.words import comparing as words
from tests.benchmarks.words import scripts

SECTIONS: dict[str, Callable[..., None]] = {
    "accuracy": accuracy.run,
    "speed": speed.run,
    "rappor": rappor.run,
    "missed": missed.run,
    "sdk": sdk.run,
    "servers": servers.run,
    "ingest": ingest.run,
    "sizes": sizes.run,
    "cluster": cluster.run,
    "growth": growth.run,
    "pages": pages.run,
    "readings": readings.run,
    "attacks": attacks.run,
    "numbers": numbers.run,
    "tables": tables.run,
    "texts": texts.run,
    "words": words.run,
    "scripts": scripts.run,
    "audit": audit.run,
    "power": power.run,
    "publishing": publishing.run,
    "edges": edges.run,
}


def main() -> None:
    """Print each section's tables."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help=f"of {', '.join(SECTIONS)}; default: all")
    numbers.add_options(parser)
    tables.add_options(parser)
    words.add_options(parser)
    audit.add_options(parser)
    missed.add_options(parser)
    asked = parser.parse_args()
    sections = SECTIONS | {
        "missed": partial(
            missed.run,
            asked.missed_seeds,
            asked.populations,
            asked.missed_first,
            truth=asked.truth,
            asked=asked.asked,
        ),
        "numbers": partial(numbers.run, asked.n, asked.seeds),
        "tables": partial(tables.run, asked.table_n, asked.table_seeds, asked.table_coverage),
        "words": partial(words.run, asked.words_n, asked.words_seeds),
        "audit": partial(audit.run, asked.audit_reports, asked.audit_devices, asked.audit_times),
    }
    for name in asked.sections or sections:
        print(f"\n{name}")
        sections[name]()


if __name__ == "__main__":
    main()
