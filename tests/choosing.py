"""The figures of `shared/choosing.md`, which the planner computes: `python -m tests.choosing` writes them there."""

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from math import ceil
from pathlib import Path

from dither.commands.metrics.new import OWNER, registry_text
from dither_aggregator.analysis.installs import Installs, Outlook, outlook_of
from dither_shared.registry import Metric, Registry

PAGE = Path(__file__).parents[1] / "shared" / "choosing.md"
QUIET_DAYS = 1
SIZES = (1_000, 20_000, 1_000_000)
LISTED = [f"value {number}" for number in range(1, 8)]
QUESTIONS: dict[str, tuple[str, dict[str, object]]] = {
    "a flag": ("flag", {}),
    "a list of 7 values": ("choice", {"values": LISTED}),
    "a list of 50 values": ("choice", {"values": [f"value {number}" for number in range(1, 51)]}),
    "several of 7 values, at most 2": ("choices", {"values": LISTED, "ticks_max": 2}),
    "a number: its mean alone": ("number", {"asks": ["mean"], "buckets": None, "scale": None}),
}
KEYS: tuple[dict[str, object], ...] = (
    {"epsilon": 1, "reports": 3, "schedule": "spread"},
    {"epsilon": 2, "reports": 2, "schedule": "spread"},
    {"epsilon": Decimal("0.5"), "reports": 12, "schedule": "spread"},
    {"epsilon": 2, "reports": 1, "schedule": "early"},
)
WANTED = (0.05, 0.10, 0.25)


def asked(kind: str, keys: dict[str, object]) -> Metric:
    return Registry.changed(registry_text("planned", [("asked", kind)], OWNER), "asked", keys)


def memoized(keys: str) -> Metric:
    """Return a memoized list of 7, which has no `reports` and no `schedule`."""
    text = re.sub(
        r"(?m)^(reports|schedule|epsilon|values) = .*\n", "", registry_text("planned", [("asked", "choice")], OWNER)
    )
    return Registry.parse(text.replace("device_epsilon = 3.0", "device_epsilon = 9.0") + keys).metrics["asked"]


def expected(metric: Metric, count: int, stay: float | None = None) -> Outlook:
    return outlook_of(metric, Installs(count, stay=stay), QUIET_DAYS)


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def sizes() -> Iterator[str]:
    """Yield what each size of a crowd shows of each question, with the starter's epsilon and reports."""
    yield row(
        "question", *(f"{count:,}: week" if part == 0 else f"{count:,}: year" for count in SIZES for part in (0, 1))
    )
    yield "|---" * 7 + "|"
    for name, (kind, keys) in QUESTIONS.items():
        looks = [expected(asked(kind, keys), count) for count in SIZES]
        yield row(name, *(shown for look in looks for shown in (look.week, look.whole)))


def keys() -> Iterator[str]:
    """Yield what epsilon, reports and schedule buy for a flag, and what they cost."""
    yield row(
        "`epsilon`, `reports`, `schedule`", "1,000 installs: week", "year", "20,000: week", "year", "a guess, in a life"
    )
    yield "|---" * 6 + "|"
    for changed in KEYS:
        looks = [expected(asked("flag", changed), count, 0.9) for count in SIZES[:2]]
        yield row(
            f"{changed['epsilon']}, {changed['reports']}, `{changed['schedule']}`",
            *(shown for look in looks for shown in (look.week, look.whole)),
            f"{looks[0].life} %",
        )


def needed() -> Iterator[str]:
    """Yield how many installs show a share so small in a week, and in a year."""
    yield row("question", *(f"{100 * share:g} % in a {window}" for window in ("week", "year") for share in WANTED))
    yield "|---" * 7 + "|"
    for name, (kind, changed) in list(QUESTIONS.items())[:4]:
        many = 10**9  # where no share is rounded
        look = expected(asked(kind, changed), many)
        parts = [shown.told.part for shown in (look.week, look.whole) if shown.told]
        yield row(name, *(_rounded(many * (part / share) ** 2) for part in parts for share in WANTED))


def memos() -> Iterator[str]:
    """Yield a memoized list beside one of fresh noise."""
    yield row("a list of 7 values", "1,000 installs: week", "year", "20,000: week", "year", "a guess, in a life")
    yield "|---" * 6 + "|"
    memo = memoized(
        f"values = {LISTED}\nmemoize = true\nepsilon = 1.0\nepsilon_permanent = 2.0\nanswers = 2\n".replace("'", '"')
    )
    fresh = asked("choice", {"values": LISTED, "epsilon": 1, "reports": 4})
    for name, metric in (
        ("fresh: `epsilon = 1`, `reports = 4`", fresh),
        ("memoized: 1, `epsilon_permanent = 2`, `answers = 2`", memo),
    ):
        looks = [expected(metric, count) for count in SIZES[:2]]
        yield row(name, *(shown for look in looks for shown in (look.week, look.whole)), f"{looks[0].life} %")


def _rounded(installs: float) -> str:
    """Return a number of installs with two digits that count, rounded up."""
    unit = 10 ** max(len(str(ceil(installs))) - 2, 0)
    return f"{ceil(installs / unit) * unit:,}"


TABLES: dict[str, Callable[[], Iterator[str]]] = {"sizes": sizes, "keys": keys, "needed": needed, "memos": memos}


def written(page: str) -> str:
    """Return the page with its tables as the planner computes them now."""
    for name, table in TABLES.items():
        lines = "\n".join(table())
        page, count = re.subn(rf"(<!-- {name} -->\n)(\|.*\n)*", lambda found, lines=lines: f"{found[1]}{lines}\n", page)  # type: ignore[misc]
        assert count == 1, name
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{PAGE.name} is written")
