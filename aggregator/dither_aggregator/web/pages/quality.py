"""Data quality in a sentence, on closed days whose counts honest devices hardly ever send. All others get none."""

from collections.abc import Sequence

from dither_aggregator.analysis.quality import ALPHA, Checked, Quality, days
from dither_aggregator.analysis.reading import WINDOWS, Window
from dither_aggregator.analysis.reading_cache import NotReady
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.pages.words import count

DAYS_MAX = WINDOWS[0]
"""A page of more days is not told to check them: the API does."""


def quality_sentence(store: Store, stored: StoredPlan, window: Window) -> str:
    """Return what is wrong with the counts of a window's closed days; "" where nothing is found. Raises BadTally."""
    if window.days > DAYS_MAX:
        return ""
    try:
        return quality_in_words(list(days(store, stored, window)))
    except NotReady as error:
        return f"Data quality: {error.words}."


def quality_in_words(checked: Sequence[Quality]) -> str:
    """Return the day on which a fault is surest, that fault, and how many other days have one."""
    wrong = [(day, day.worst) for day in checked if day.worst]
    if not wrong:
        return ""
    day, worst = min(wrong, key=lambda each: each[1].p_value)
    others = len(wrong) - 1
    more = f" {count(others, 'other day')} shown {'has' if others == 1 else 'have'} such counts." if others else ""
    return (
        f"Data quality: on {day.epoch}, {_count(worst)}: devices that add noise as they should do not send that."
        f"{more} A sound metric has such a day by chance once in {round(1 / ALPHA):,} at most."
    )


def _count(worst: Checked) -> str:
    low, high = f"{worst.low:,.0f}", f"{worst.high:,.0f}"
    expected = f"about {low}" if low == high else f"{low} to {high}"
    return f"there are {worst.observed:,} {worst.of}, where {expected} are expected whatever people answer"
