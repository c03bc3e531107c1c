"""Refused groups: how many there were, by day, metric and reason. Their reports are stored nowhere.

They are counted in the step that appends the upload's other groups, so that a copy that is known counts nothing. An
upload of which every group is refused is not remembered: each copy of it counts. A request that is refused as a whole,
such as one without the key, is not counted.

Strangers choose what they send, so the rows are bounded: reasons are a fixed set, and a metric that no plan is of has
no name here. A day has at most len(REASONS) rows for each metric of the store, and as many for those without a name.
"""

from abc import abstractmethod
from datetime import date

from dither_aggregator.store.interface.opened import Opened
from dither_aggregator.store.records import RefusedCount, RefusedKey

REFUSED_DAYS = 32
"""How many days are kept, the current one with them: a month and its first day again."""


class Refusing(Opened):
    """Counts of what was not taken. No ledger has them."""

    @abstractmethod
    def refused(self, first: date, last: date) -> dict[RefusedKey, RefusedCount]:
        """Return what was refused on a few days, from `first` to `last`."""
