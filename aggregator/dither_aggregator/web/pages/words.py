"""Words that several pages use: of windows, ranks, numbers, plans."""

from dither_aggregator.analysis.inference import ErrorOf
from dither_aggregator.analysis.reading import Window, sees_all
from dither_aggregator.analysis.reading_cache import NotReady
from dither_aggregator.analysis.significance import Ranked
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.store.contract import BATCH_MIN

EXPIRES_SOON_DAYS = 14
DEVICES = "all devices like these"
WHOSE: dict[ErrorOf, str] = {"population": DEVICES, "reports": "these reports"}
"""The devices or people that errors and intervals are about, in words."""


def in_words(window: Window) -> str:
    """Return a window's days."""
    return f"{window.last}" if window.days == 1 else f"{window.first} to {window.last}, {window.days} days"


def rank_in_words(ranked: Ranked, standing_out: int) -> str:
    """Return what is known of a rank, where so many values stand out: behind others, nobody counts."""
    if ranked.rank_lower == ranked.rank_upper:
        return _ordinal(ranked.rank_lower)
    if ranked.rank_upper > standing_out:
        return f"{_ordinal(ranked.rank_lower)} or behind"
    return f"{ranked.rank_lower} to {ranked.rank_upper}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def plan_state(store: Store, stored: StoredPlan) -> list[str]:
    """Return sentences on a plan that is not simply the registry's."""
    left = (stored.expires - store.today()).days
    sentences = []
    if not stored.current:
        sentences.append(f"This is an older plan, rev {stored.plan.rev}: the registry asks in another way now.")
    if stored.retired:
        sentences.append("It was retired: its reports are refused.")
    if left <= 0:
        sentences.append(f"It expired on {stored.expires}.")
    elif left <= EXPIRES_SOON_DAYS:
        sentences.append(f"It expires in {left} day{'s' * (left != 1)}.")
    return sentences


def lagging(store: Store) -> list[str]:
    """Return a sentence where days are over that are not closed yet."""
    today, sealed = store.today(), store.sealed()
    if (today - sealed).days <= 1:
        return []
    return [f"The last closed day is {sealed}: nothing later is told yet, because those days are not closed."]


def in_batches(store: Store) -> list[str]:
    """Return a sentence where a read key is told of a day that is not over."""
    if sees_all(store):
        return []
    return [
        "With a read key, the figures of a day that is not over change at full hours (UTC), where at least "
        f"{BATCH_MIN} more reports of the metric came; as many more are not in them yet."
    ]


def other_revs(store: Store, shown: StoredPlan) -> list[str]:
    """Return a sentence for each other plan of a metric that has reports, the newest first."""
    sentences = []
    for other in store.plans(shown.plan.metric):
        days = store.epochs(other.plan)
        if days and other.plan.digest != shown.plan.digest:
            sentences.append(f"Rev {other.plan.rev} has reports up to {max(days)}; revs do not join.")
    return sentences


def count(number: int, noun: str) -> str:
    """Return a number of things."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def sentence_of(error: NotReady) -> str:
    """Return why there is nothing to show yet, as a sentence."""
    return f"{error.words[0].upper()}{error.words[1:]}."
