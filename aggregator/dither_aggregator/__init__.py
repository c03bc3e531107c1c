"""The aggregator: takes reports, folds them into tallies and shows what the noise lets through.

The package dither-aggregator. `aggregator/README.md` explains its rooms.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dither_aggregator.notebook import AggregatorReader


def read(url: str, key: str | None = None) -> "AggregatorReader":
    """Return a reader of the aggregator at an address, with a read key where it wants one: `.ask("...")`.

    Raises ConfigurationError for an address that is neither https nor loopback.
    """
    from dither_aggregator.notebook import AggregatorReader

    return AggregatorReader(url, key)
