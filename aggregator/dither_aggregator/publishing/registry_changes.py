"""The changes of a registry between two publications, in sentences for those who are asked."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from dither_shared.exact import from_micro

CHANGES_MAX = 500
"""The latest changes that a site keeps."""
ALL = "all questions"
"""The name under which changes of the registry itself stand; no metric has such a one."""
NAMED_MAX = 10
"""So many answers are named in a sentence."""
OF_ALL = {
    "publish_micro_year": "the most that releases of 366 days may cost a device",
    "device_micro": "the most that all reports may cost a device",
}
DELTA = {"publish_delta": "the delta at which releases may cost that"}
EPSILONS = {
    "report_micro": "epsilon of a report",
    "life_micro": "epsilon of all reports of a device",
    "release_micro": "epsilon of a release",
    **OF_ALL,
}
FIELDS = {
    "rev": "rev",
    "question": "question",
    "why": "reason",
    "issue": "issue",
    "sensitivity": "sensitivity",
    "expires": "asked until",
    "mechanism": "mechanism",
    "presence": "presence",
    "memoized": "memoized",
    "charges": "reports of a device",
    "period_days": "days between reports",
    "window": "published each",
    "domain": "what is sent",
    "ticks": "values that count of an answer",
    **EPSILONS,
}
"""The facts whose change is said, with the words for each."""
LISTS = {"values": "answers", "names": "texts that are looked for", "edges": "edges of ranges", "owners": "owners"}
"""The lists of which is said what came and what went."""

Facts = Mapping[str, Any]


def changes_between(before: Facts, after: Facts, today: date) -> list[dict[str, str]]:
    """Return all changes that a site knows, the latest first: those of today, and what was said before."""
    was, now = _metrics(before), _metrics(after)
    named = [(ALL, what) for what in _fields(before, after, {**OF_ALL, **DELTA})]
    named += [(name, what) for name in sorted({*was, *now}) for what in _differences(was.get(name), now.get(name))]
    found = [{"day": today.isoformat(), "metric": name, "what": what} for name, what in named]
    return [*found, *before["changes"]][:CHANGES_MAX]


def _metrics(facts: Facts) -> dict[str, tuple[bool, Facts]]:
    """Return each metric by name, with whether its totals are published."""
    published = {each["metric"]: (True, each) for each in facts["metrics"]}
    return {each["metric"]: (False, each) for each in facts["unpublished"]} | published


def _differences(was: tuple[bool, Facts] | None, now: tuple[bool, Facts] | None) -> Iterator[str]:
    if was is None or now is None:
        yield "no longer asked" if now is None else "asked from now on"
        return
    if was[0] != now[0]:
        yield "published from now on" if now[0] else "no longer published"
    old, new = was[1], now[1]
    yield from _fields(old, new, FIELDS)
    for field, words in LISTS.items():
        added = [each for each in new.get(field, old.get(field, ())) if each not in set(old.get(field, ()))]
        gone = [each for each in old.get(field, ()) if each not in set(new.get(field, old.get(field, ())))]
        if field in old and (added or gone):
            yield "; ".join([*_listed(f"new {words}", added), *_listed(f"{words} left out", gone)])


def _fields(old: Facts, new: Facts, fields: Mapping[str, str]) -> Iterator[str]:
    for field, words in fields.items():
        if field in old and field in new and old[field] != new[field]:
            yield f"{words}: {_told(field, new[field])}, before: {_told(field, old[field])}"


def _told(field: str, value: object) -> str:
    if field in EPSILONS and isinstance(value, int):
        return f"{from_micro(value):g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) or "none"


def _listed(words: str, values: Sequence[object]) -> Iterator[str]:
    if values:
        more = f" and {len(values) - NAMED_MAX:,} more" if len(values) > NAMED_MAX else ""
        yield f"{words}: {', '.join(map(str, values[:NAMED_MAX]))}{more}"
