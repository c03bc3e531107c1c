"""Planning by installs: beside simulated devices, and beside one device that lives for a year."""

import random
from collections.abc import Iterator
from datetime import date, timedelta
from math import ceil, sqrt
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest

from dither.commands.metrics.new import OWNER
from dither.commands.metrics.new import registry_text as starter_text
from dither.device.recording import EPOCH, answers_always, day_number, draw_periods, period_start
from dither_aggregator.analysis.functional import share_variance
from dither_aggregator.analysis.installs import (
    USEFUL,
    Installs,
    Shown,
    changes,
    outlook_of,
    periods_of_year,
    reports_of,
)
from dither_shared.domains import Buckets
from dither_shared.errors import RegistryError
from dither_shared.kinds.number_precision import MEAN_TOLD, MEDIAN_TOLD, told_of
from dither_shared.kinds.precision import NUMBERS_MIN, SIDES, Told
from dither_shared.mechanisms import PureMechanism
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng
from tests.support.clocks import DAY_S, Clock
from tests.support.devices import open_device, send
from tests.support.registries import registry, registry_text
from tests.support.soaking import scaled, thinned

EXPIRES = date(2027, 6, 30)
SIGMAS = 5.5
"""A right figure is further off than this once in 26 million tests, by the normal law of a sum over all installs."""
METRICS = [
    {"schedule": "spread", "reports": 10},
    {"schedule": "spread", "reports": 3, "period": "30d"},
    {"schedule": "spread", "reports": 12, "period": "7d"},
    {"schedule": "spread", "reports": 400},
    {"schedule": "early", "reports": 10},
    {"schedule": "early", "reports": 3, "period": "7d"},
    {"schedule": "early", "reports": 1, "period": "30d"},
    {"epsilon": "1", "epsilon_permanent": "4", "period": "7d"},
]


def asked(**changes: object) -> Metric:
    return registry(**{"device_epsilon": "1000", "expires": EXPIRES, "epsilon": "1", **changes}).metrics["color"]


# A crowd.


def answers_of(metric: Metric, born: int, gone: int, rng: Rng) -> Iterator[int]:
    """Yield the days on which a device answers, of those from `born` and before `gone`, by the device's own rules."""
    days, length = day_number(metric.expires), metric.period_days
    drawn = None if metric.memoized or answers_always(metric) else set(draw_periods(metric, rng))
    gone, day, left = min(gone, days), born, metric.charges
    while day < gone:
        start = period_start(day, length)
        early = metric.schedule == "early" and not metric.memoized
        if (left > 0) if early else (drawn is None or start in drawn):
            yield day
            left -= 1
        day = start + length


def counts(metric: Metric, installs: int, stay: float, quiet_days: int, first: int, last: int) -> list[int]:
    """Return how many reports each install sends from `first` to `last`; one that goes makes room for another."""
    source = random.Random(45)
    rng, daily = Rng(source.getrandbits), stay ** (1 / 30)

    def life() -> int:
        """Return on how many further days a device is there, the first one included."""
        days = 1
        while source.random() < daily:
            days += 1
        return days

    def of_one() -> int:
        born, gone = first - life() + 1, first + life()  # of a device that is there on the first day
        found = 0
        while born <= last:
            found += sum(first <= day <= last for day in answers_of(metric, born + quiet_days, gone, rng))
            born, gone = gone, gone + life()
        return found

    return [of_one() for _ in range(installs)]


def off(found: list[int], expected: float) -> float:
    """Return by how many standard errors the mean of counts differs from what is expected."""
    return (mean(found) - expected) / (stdev(found) / sqrt(len(found)))


@pytest.mark.parametrize(
    ("changed", "stay"),
    thinned([(each, stay) for stay in (0.5, 0.9) for each in METRICS], 0, 2, 4, 6, 7, 9, 13, 15),
)
def test_a_simulated_crowd_sends_as_many_reports(changed: dict[str, object], stay: float) -> None:
    """A figure for twelve more quiet days is far off: the test would see it."""
    metric = asked(**changed)
    last, quiet_days = day_number(metric.expires) - 1, 2
    one, many = Installs(1, stay=stay), scaled(800, 20_000)
    if metric.schedule == "early" and not metric.memoized:
        first = last - 364
    else:  # whole periods
        first = period_start(last - 364, metric.period_days)
    found = counts(metric, many, stay, quiet_days, first, last)
    assert abs(off(found, reports_of(metric, one, quiet_days, 365))) < SIGMAS
    if stay == 0.5:
        assert abs(off(found, reports_of(metric, one, quiet_days + 12, 365))) > SIGMAS


def test_a_part_in_which_telemetry_is_on_sends_a_part() -> None:
    metric = asked(schedule="spread", reports=10)
    whole = reports_of(metric, Installs(1000), 1, 7)
    assert reports_of(metric, Installs(1000, on=0.25), 1, 7) == whole / 4 == pytest.approx(1000 * 10 / 365 * 7 / 4)


@pytest.mark.parametrize("period", thinned(range(1, 367), 0, 6, 29, 364, 365))
def test_a_year_has_the_periods_that_devices_draw_from(period: int) -> None:
    for day in range(scaled(3, 30)):
        expires = EPOCH.fromordinal(EXPIRES.toordinal() + 11 * day)
        spread = {"period": f"{period}d", "schedule": "spread", "expires": expires, "epsilon": "0.01"}
        periods = periods_of_year(asked(**spread))
        assert answers_always(asked(reports=periods, **spread))
        assert periods == 1 or not answers_always(asked(reports=periods - 1, **spread))


# One device.


@pytest.mark.parametrize("changed", thinned(METRICS[:4] + METRICS[7:], 1, 2, 4), ids=str)
def test_a_device_that_is_there_all_year_sends_just_as_many(changed: dict[str, object]) -> None:
    whole = registry(**{"device_epsilon": "1000", "expires": EXPIRES, "epsilon": "1", **changed})
    metric, first = whole.metrics["color"], day_number(EXPIRES) - 365
    first = period_start(first, metric.period_days)
    clock = Clock(first * DAY_S + DAY_S / 2)
    device = open_device(whole, None, clock)
    sent = 0
    while clock.now < day_number(EXPIRES) * DAY_S:
        sent += not device.record(metric, "red")
        send(device)
        clock.travel(1)
    assert sent == round(reports_of(metric, Installs(1), 0, 365))


# Their figures.


def test_a_memoized_window_shows_what_its_page_will() -> None:
    metric = asked(epsilon="1", epsilon_permanent="3", period="1d")
    now = outlook_of(metric, Installs(10_000), 0)
    mechanism = PureMechanism.of(metric.mechanism)
    for window, repeats in ((now.week, 7), (now.quarter, 91), (now.whole, 365)):
        variance = float(share_variance(mechanism, np.zeros(1), int(window.reports), "reports", repeats)[0])
        assert window.told
        told = metric.tells(10**6)
        assert window.told.part == pytest.approx(
            told.part * sqrt(10**6 * variance / float(metric.noise_variance)), rel=1e-3
        )


def test_too_few_installs_are_told_so_with_how_many_would_do() -> None:
    metric = asked(schedule="spread", reports=1)
    few = outlook_of(metric, Installs(20), 1)
    assert few.needed
    assert few.verdict == (
        f"useless with so few installs, even if a year is read as one: {few.needed:,} installs would be needed"
    )
    enough = outlook_of(metric, Installs(few.needed), 1)
    assert enough.whole.told
    assert enough.whole.told.part == pytest.approx(USEFUL, rel=0.02)
    assert enough.verdict == "a week shows too little: read a year as one"
    many = outlook_of(metric, Installs(10**6), 1)
    assert many.verdict == f"useful: a week shows values that {many.week} of the people have, and none that fewer have"
    some = outlook_of(metric, Installs(5 * few.needed), 1)
    assert some.verdict == "a week shows too little: read a quarter as one"


def test_a_week_that_shows_common_values_alone_is_not_called_useful() -> None:
    """A flag has two values: a week that shows a fifth tells something of it."""

    def shown(kind: str, week: float, **changed: object) -> str:
        metric = Registry.changed(starter_text("planned", [("asked", kind)], OWNER), "asked", changed)
        many = outlook_of(metric, Installs(10**9), 1).week.told
        assert many
        return outlook_of(metric, Installs(round(10**9 * (many.part / week) ** 2)), 1).verdict

    rough = "a week shows values that 20 % of the people have, and none that fewer have"
    assert shown("choice", 0.2) == shown("words", 0.2) == f"{rough}; read a quarter as one"
    assert shown("choice", 0.2, schedule="early") == rough
    assert shown("flag", 0.2) == f"useful: {rough}"
    assert shown("choice", 0.09).startswith("useful: a week shows values that 9 % ")


def test_a_share_that_is_looked_for_decides_what_is_useful() -> None:
    """A week, a quarter, and a year need as many installs as their detectable share is that one."""
    metric = asked(schedule="spread", reports=1)
    begin = outlook_of(metric, Installs(10**9, smallest=0.02), 1)
    least = [ceil(10**9 * (shown.told.part / 0.02) ** 2) for shown in begin.windows.values() if shown.told]
    week, quarter, year = (ceil(1.02 * installs) for installs in least)  # whole reports, rounded down
    said = [outlook_of(metric, Installs(installs, smallest=0.02), 1) for installs in (week, quarter, year, year // 2)]
    assert said[0].verdict == "a share of 2 % shows in a week"
    assert said[1].verdict.startswith("a share of 2 % shows in a quarter, not in a week: ")
    assert said[2].verdict.startswith("a share of 2 % shows in a year, not in a week: ")
    assert said[3].verdict.startswith(
        "a share of 2 % does not show with so few installs, even if a year is read as one: "
    )
    assert [each.useful for each in said] == [True, True, True, False]
    assert outlook_of(metric, Installs(year // 2), 1).useful


@pytest.mark.parametrize(("left", "windows"), [(49, 1), (120, 2), (359, 2), (360, 2), (365, 2), (1, 0), (0, 2)])
def test_a_metric_that_expires_is_read_until_then(left: int, windows: int) -> None:
    metric = asked(schedule="spread", reports=1)
    now = outlook_of(metric, Installs(10_000), 0, EXPIRES - timedelta(days=left))
    *shorter, whole = now.windows
    assert shorter == ["a week", "a quarter"][:windows]
    whole_days = left if 0 < left < 360 else 365
    assert whole == ("a year" if whole_days == 365 else f"the {left} days until it expires")
    assert now.whole.days == whole_days
    assert now.whole.reports == pytest.approx(10_000 * whole_days / 365)


@pytest.mark.parametrize("life", ["reports = 400", "memoize = true\nepsilon_permanent = 4"], ids=["fresh", "memoized"])
def test_a_number_is_of_no_use_below_the_devices_that_its_page_needs(life: str) -> None:
    """Fresh reports of a week count each, memos count devices: with one install less its page tells nothing."""
    text = f"""
[registry]
app = "example"
device_epsilon = 1000

[metric.number]
kind = "number"
question = "How much?"
rev = 1
epsilon = 2
{life}
presence = "public"
period = "1d"
owners = ["team@example.org"]
sensitivity = "low"
expires = {EXPIRES}
unit = "s"
low = 0
high = 80
buckets = 4
"""
    metric = Registry.parse(text).metrics["number"]
    least = ceil(NUMBERS_MIN / 7) if life.startswith("reports") else NUMBERS_MIN
    few, enough = (outlook_of(metric, Installs(each), 0) for each in (least - 1, least))
    assert f"{few.week}" == "nothing" != f"{enough.week}"
    assert not few.week.shows(USEFUL)
    if metric.memoized:
        assert few.needed == least


def test_where_nobody_comes_an_early_metric_speaks_in_its_first_days_alone() -> None:
    metric = asked(schedule="early", reports=3)
    assert reports_of(metric, Installs(100), 1, 7) == reports_of(metric, Installs(100), 1, 365) == 300


@pytest.mark.parametrize("changed", [{}, {"epsilon": "1", "epsilon_permanent": "4", "period": "1d"}], ids=str)
def test_an_interval_around_one_half_is_as_wide_as_its_pages(changed: dict[str, object]) -> None:
    metric = asked(**changed)
    now, mechanism = outlook_of(metric, Installs(10_000), 0), PureMechanism.of(metric.mechanism)
    for shown, days in ((now.week, 7), (now.whole, 365)):
        repeats = days if metric.memoized else 1
        page = share_variance(mechanism, np.full(1, 0.5), int(shown.reports), "population", repeats)[0]
        assert shown.half == pytest.approx(SIDES / 2 * sqrt(page), rel=1e-3)


def test_a_width_that_is_not_told_is_said_with_what_lacks() -> None:
    few, none = (
        Shown(7, reports, Told("width of the mean's interval", part), short)
        for reports, part, short in ((96, 0.67, 3_000 / 96), (400, 1.4, 0.75))
    )
    assert few.words == "nothing (67 % wide; not told below 3,000 reports)"
    assert none.words == "nothing (140 % wide)"
    assert f"{few} {none}" == "nothing nothing"
    assert Shown(7, 400, Told("width of the mean's interval", 0.4), 0.75).words == "40 %"


def test_buckets_that_are_too_few_are_not_mended_by_installs() -> None:
    """An interval has where in its bucket a number lies left open."""
    text = starter_text("planned", [("asked", "number")], OWNER).replace("buckets = 32", "buckets = 3")
    now = outlook_of(Registry.parse(text).metrics["asked"], Installs(10**9), 1)
    assert now.needed is None
    assert now.verdict.startswith("useless: buckets so few leave 33 % of it open")
    mean = outlook_of(
        Registry.changed(text, "asked", {"asks": ["mean"], "buckets": None, "scale": None}), Installs(10**9), 1
    )
    assert mean.verdict == "useful"


def test_uneven_buckets_are_judged_by_the_median() -> None:
    """They leave half of the range open to a mean, and a median is told all the same."""
    edges = [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 60000]
    text = starter_text("planned", [("asked", "number")], OWNER)
    uneven = Registry.changed(
        text, "asked", {"edges": edges, "low": None, "high": None, "buckets": None, "scale": None}
    )
    now = outlook_of(uneven, Installs(20_000), 1)
    assert now.whole.told is not None
    assert now.whole.told.what == MEDIAN_TOLD
    assert now.useful
    mean, median = told_of(Buckets.of(uneven.asked.domain), uneven.asked.cells, 10_000)
    assert mean.least == pytest.approx(0.48, abs=0.02)
    assert median.least == 1 / 15
    even = Registry.parse(text.replace('scale = "log"', 'scale = "linear"')).metrics["asked"]
    assert even.tells(10_000).what == MEAN_TOLD


# Other keys.


def rows(path: Path, installs: int = 5_000) -> dict[str, tuple[str, str, str]]:
    whole = Registry.load(path)
    now = outlook_of(whole.metrics["color"], Installs(installs), whole.quiet_days)
    found = changes(now, whole.quiet_days, lambda changed: Registry.reread(path, "color", changed))
    return {each.lines: (f"{each.outlook.week}", f"{each.outlook.whole}", each.price) for each in found}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    text = registry_text(expires=EXPIRES, epsilon="1.0", reports=2, schedule="spread", device_epsilon="4")
    (tmp_path / "metrics.toml").write_text(text, encoding="utf-8")
    return tmp_path / "metrics.toml"


def test_each_other_key_is_read_again_and_has_its_price(path: Path) -> None:
    found = rows(path)
    assert list(found) == ["reports = 4", 'schedule = "early"', "epsilon = 2"]  # a period of 7d changes nothing
    doubled = Registry.parse(
        path.read_text(encoding="utf-8").replace("reports = 2", "reports = 4").replace("= 4\n", "= 9\n", 1)
    )
    then = outlook_of(doubled.metrics["color"], Installs(5_000), 0)
    more = "a guess may become 98.3 % sure over a life, not 88.1 %"
    assert found["reports = 4"] == (f"{then.week}", f"{then.whole}", more)
    assert found["epsilon = 2"][2] == more
    assert found['schedule = "early"'][2] == (
        "a guess becomes no surer over a life; every install, old or new, is asked in its first 2 periods with the "
        "question, and never again"
    )


def test_a_memoized_metric_is_told_its_period_and_both_epsilons(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace(
        'reports = 2\nschedule = "spread"', "memoize = true\nanswers = 1\nepsilon_permanent = 2.5"
    )
    path.write_text(text.replace("device_epsilon = 4", "device_epsilon = 5"), encoding="utf-8")
    assert list(rows(path)) == ['period = "7d"', "epsilon = 2, epsilon_permanent = 5"]


def test_changes_that_make_no_metric_are_left_out(path: Path) -> None:
    text = (
        path.read_text(encoding="utf-8")
        .replace("epsilon = 1.0", "epsilon = 12")
        .replace("device_epsilon = 4", "device_epsilon = 48")
    )
    path.write_text(text, encoding="utf-8")
    assert list(rows(path)) == ["reports = 4", 'schedule = "early"']  # and no epsilon of 24


def test_a_compiled_registry_is_not_read_with_changes(path: Path) -> None:
    path.write_text('{"dither_registry": 1}', encoding="utf-8")
    with pytest.raises(RegistryError, match=r"is compiled: only metrics\.toml"):
        Registry.reread(path, "color", {})
