"""A metric's page, in words and plots: first all that can be told, then the rest together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, sqrt
from operator import attrgetter

from flask import render_template
from marshmallow import fields, validate

from dither_aggregator.analysis.closed_days import ALPHA, Checked, Quality, days, kept_snapshot
from dither_aggregator.analysis.differences import GroupReading, read_groups
from dither_aggregator.analysis.estimands import estimand_of, read
from dither_aggregator.analysis.inference import ErrorOf
from dither_aggregator.analysis.reading import (
    WINDOWS,
    BadView,
    Reading,
    View,
    Window,
    default_window,
    windows_together,
)
from dither_aggregator.analysis.reading_cache import NotReady
from dither_aggregator.analysis.rows import Row
from dither_aggregator.counting import TallyGone
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.forest_plots import Plot, draw
from dither_aggregator.web.pages.presentation import (
    WHOSE,
    FormField,
    PagePart,
    count,
    form,
    in_batches,
    in_words,
    lagging,
    of_pages,
    plan_state,
    plans_of,
    presentation_of,
    sentence_of,
    wider,
)
from dither_aggregator.web.pages.shares import FOUND_MAX
from dither_aggregator.web.pages.tables import PairAsked
from dither_aggregator.web.query_parameters import (
    LEVEL,
    SEARCH,
    TODAY,
    FalseShareAsked,
    LevelAsked,
    PlanAsked,
    QueryParameters,
    Value,
    Whole,
    WindowAsked,
    about,
    asked_confidence,
    asked_false_share,
    asked_members,
    asked_plan,
    asked_window,
    chosen,
    query_parameters,
    refuse_both,
    refuse_long,
)
from dither_shared.accounting import NEARLY_CERTAIN, linked_share, percent_above, sure
from dither_shared.exact import exp_of_micro
from dither_shared.kinds.precision import Worth, precision_of
from dither_shared.mechanisms import DEVICES
from dither_shared.wire.reading import Problem

# Data quality in a sentence, on closed days whose counts honest devices hardly ever send. All others get none.


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


# The privacy page of a metric: what a metric's integers promise a device, in odds that people can picture.


FEW = 10
"""The made-up reports that the box speaks of, beside 1 % of all."""
PRIORS = (1, 9, 99)
"""Guesses of 1 to so many."""


@dataclass(frozen=True)
class Stage:
    """The reports that somebody may see of one device: one, all of one memoized answer, or all of its life."""

    name: str
    epsilon: float
    exp_epsilon: Fraction

    @property
    def nearly_certain(self) -> bool:
        """Whether a guess of 1 : 1 can become more than 99 % sure."""
        return sure(self.exp_epsilon) > NEARLY_CERTAIN

    @property
    def becomes(self) -> str:
        """How sure a guess of 1 : 1 can become, as a bound."""
        return self.sure() if self.nearly_certain else f"at most {self.sure()}"

    def sure(self, against: int = 1) -> str:
        """Return the most that a guess of 1 : `against` can become, in percent."""
        return percent_above(sure(self.exp_epsilon, Fraction(1, 1 + against))) + "\N{NO-BREAK SPACE}%"


@dataclass(frozen=True)
class Privacy:
    """All that the box says."""

    stages: Sequence[Stage]
    """From one report to a device's life, each with more epsilon than the one before."""
    poisoning: Sequence["Poisoning"]
    """How far made-up reports move estimates; those that are read first come first."""
    linked: int | None
    """About how many of `devices` with the same answer can be joined over time; None where nothing lasts."""
    linked_together: int | None
    """The same by all that one device sends for the app's metrics; None where it is no other number."""
    devices: int = DEVICES
    priors: Sequence[int] = PRIORS


@dataclass(frozen=True)
class Poisoning:
    """How far made-up reports move one estimate: up where nobody has it, and down where everybody has.

    Numbers are percentage points but for `weight`, and rounded up where they are bounds, else down.
    """

    what: str
    known: bool
    """Whether they move no more; else they may."""
    weight: str
    """How many honest reports one is worth."""
    percent_up: str
    """How far 1 % of the reports move it."""
    percent_down: str
    few_up: str
    """How far `few` of those shown move it; "" where there are not as many."""
    few_down: str
    few: int = FEW


def privacy_of(stored: StoredPlan, plans: Sequence[StoredPlan], n: int) -> Privacy:
    """Return the box of a plan, one of an app's `plans`, of which n reports are shown."""
    plan, cells = stored.plan, stored.plan.cells
    others = (other.plan for other in plans if other.current and other.plan.metric != stored.plan.metric)
    linked = _devices(linked_share((cells,)))
    together = _devices(linked_share((cells, *(plan.cells for plan in others))))
    return Privacy(
        _stages(stored),
        [_poisoning(worth, n) for worth in precision_of(plan.kind).poisoning(plan.domain, cells)],
        linked=linked,
        linked_together=None if together == linked else together,
    )


def _stages(stored: StoredPlan) -> list[Stage]:
    cells, life = stored.plan.cells, stored.reservation
    stages = [Stage("one report", stored.epsilon, cells.exp_epsilon)]
    if stored.epsilon_permanent is not None:
        name = "one answer, repeated"
        stages.append(Stage(name, stored.epsilon_permanent, exp_of_micro(cells.first_charge)))
    if life > cells.first_charge:
        stages.append(Stage("a whole life", stored.epsilon_lifetime, exp_of_micro(life)))
    return stages


def _devices(linked: float | None) -> int | None:
    """Return a share of the devices, rounded up: it is read as a promise."""
    return None if linked is None else ceil(DEVICES * linked)


def _poisoning(worth: Worth, n: int) -> Poisoning:
    """Return what m made-up of n reports move, in words; a weight counts both ways."""
    weight = max(worth.up, worth.down + 1)
    moves = [of(1, 100) for of in (worth.raised, worth.lowered)]
    few = [of(FEW, n) for of in (worth.raised, worth.lowered)] if n >= FEW else []
    percent_up, percent_down, *fews = (_points(share, up=worth.known) for share in (*moves, *few))
    few_up, few_down = fews or ("", "")
    return Poisoning(
        worth.what, worth.known, _rounded(weight, 1, up=worth.known), percent_up, percent_down, few_up, few_down
    )


def _points(share: Fraction, *, up: bool) -> str:
    """Return a share as percentage points, to two digits or a whole number: raw estimates have no end."""
    points = 100 * share
    decimals = 0 if points >= 10 else 1 if points >= 1 else 2 if points >= Fraction(1, 10) else 3
    return _rounded(points, decimals, up=up)


def _rounded(number: Fraction, decimals: int, *, up: bool) -> str:
    steps = number * 10**decimals
    return f"{(ceil(steps) if up else floor(steps)) / 10**decimals:,.{decimals}f}"


CHOSEN = (
    "These days were chosen. The error rates stated here hold for the days that a page opens with: "
    "somebody who tries many windows finds something in pure noise."
)
COST_MIN = 1.1
"""Intervals that differ by less are alike to a reader."""
TOO_LITTLE_SHOWN = "A read key sees too little of these days to show anything."


class MetricAsked(PairAsked, WindowAsked, PlanAsked, LevelAsked, FalseShareAsked):
    """The parameters of a metric's page."""

    search = SEARCH
    page = Whole(1, 99_999, load_default=1)
    error_of = fields.String(
        validate=validate.OneOf(WHOSE),
        metadata=about("of which devices intervals are: of all devices like these, or of these reports alone"),
    )
    values = chosen("a value: those that are given alone")
    group = fields.List(
        Value(),
        validate=validate.Length(max=1),
        metadata=about("the name of a group: its share, and its values or ranges alone"),
    )


@dataclass(frozen=True)
class Controls:
    """The form of a page, and what it holds."""

    form: Sequence[FormField]
    chosen: bool
    """Whether the window is another one than the usual."""
    level: Decimal
    search: str
    values: Sequence[str] = ()
    """The values that the reader chose; none for all."""
    group: str | None = None
    """The group that the reader chose."""
    false_share: Decimal | None = None
    """How much of what stands out may be false, where the reader chose that."""
    error_of: ErrorOf | None = None
    """The devices of which the reader wants intervals, if they chose."""
    presets: Sequence[tuple[str, str, bool]] = ()
    """The windows on offer: words, name, and whether it is shown."""


@dataclass(frozen=True)
class GroupsPart:
    """The groups of a metric: all of them, or the one that was asked for with its values or ranges."""

    told: Sequence[GroupReading]
    untold: Sequence[GroupReading]
    plot: Plot | None
    chosen: GroupReading | None = None
    members: Sequence[Row] = ()
    """The rows of the one that was asked for, the first of them."""

    @property
    def pay(self) -> str:
        """Say what their intervals hold for."""
        late = sum(each.family == "free" for each in (*self.told, *self.untold))
        if not late:
            return "These groups were named before the first report came, and their intervals hold at once."
        return (
            "Intervals are as wide as any sum of these values needs, because "
            f"{'a group' if late == 1 else 'groups'} named after reports came may have been made to look large."
        )


@dataclass(frozen=True)
class MetricPage:
    """All that the template shows of a metric."""

    stored: StoredPlan
    window: Window
    controls: Controls
    days: str
    """The window, in words."""
    state: Sequence[str]
    """Sentences on what these reports are."""
    headline: str
    """The answer, in one or two sentences."""
    reading: Reading | None = None
    """None where its counts are no longer kept."""
    part: PagePart | None = None
    """The part that is the estimand's; None where there is nothing to show."""
    groups: GroupsPart | None = None
    quality: str = ""
    """Faults in the counts of single days, in sentences; "" where none is found."""
    open: bool = False
    """Whether it is not computed yet."""
    cost: str = ""
    """How wide intervals of other devices would be, which a reader can choose; "" where there is no such choice."""
    gone: str | None = None
    """The snapshot of days whose counts are no longer kept, where it is."""
    snapshot: str | None = None
    """The id of the snapshot of these days; None until all of them are final."""

    @property
    def wider(self) -> str:
        """How many times as wide intervals are because the reader chose the days; "" where they are no wider."""
        return wider(self.reading, len(self.reading.rows)) if self.reading else ""

    @property
    def searchable(self) -> bool:
        """Whether the page has values to search."""
        return presentation_of(self.stored.plan).searchable


def show(store: Store, name: str) -> tuple[str, int]:
    """Return the page that a request asks for, and its status."""
    page = metric_page(store, name, query_parameters(MetricAsked))
    promised = privacy_of(page.stored, store.plans(), 0)
    html = render_template("metric.html", page=page, elsewhere=elsewhere(store, page), privacy=promised)
    return html, 200 if page.reading or page.open else 410


def privacy(store: Store, name: str) -> str:
    """Return the page on what a metric's reports can tell of a device."""
    page = metric_page(store, name, query_parameters(MetricAsked))
    n = page.reading.n if page.reading else 0
    return render_template("privacy.html", page=page, privacy=privacy_of(page.stored, store.plans(), n))


def metric_page(store: Store, name: str, asked: QueryParameters) -> MetricPage:
    """Return what a metric's page shows."""
    stored = asked_plan(store, name, asked)
    usual = default_window(store, stored)
    window = asked_window(store, asked) or usual
    controls = _controls(store, stored, usual, window, asked)
    view = replace(
        estimand_of(stored.plan).opening(window.days, asked_confidence(asked)),
        together=windows_together(store, stored, window),
        false_share=asked_false_share(stored.plan, asked),
        error_of=asked.get("error_of", "population"),
    )
    refuse_both(asked)
    if "error_of" in asked and (refusal := _refusal_of_error(stored, asked)):
        raise Problem("malformed", refusal)
    if controls.values and not presentation_of(stored.plan).searchable:
        raise Problem("malformed", f"values are of metrics with a list: {name} has none to choose")
    refuse_long(stored)
    try:
        reading = read(store, stored, window.last, view)
    except TallyGone as gone:
        nor = "" if gone.snapshot else ", nor is their snapshot"
        headline, state = f"The counts of {gone.epoch} are no longer kept{nor}.", plan_state(store, stored)
        together = windows_together(store, stored, window, gone=True)
        kept = kept_snapshot(store, stored, window, together) or gone.snapshot
        return MetricPage(stored, window, controls, in_words(window), state, headline, gone=kept)
    except NotReady as error:
        state, headline = plan_state(store, stored), sentence_of(error)
        return MetricPage(stored, window, controls, in_words(window), state, headline, open=True)
    return _shown(store, reading, controls, asked)


def _shown(store: Store, reading: Reading, controls: Controls, asked: QueryParameters) -> MetricPage:
    stored, window = reading.stored, reading.window
    state = [
        *plan_state(store, stored),
        *_window_state(store, reading, controls),
        *reading.left_out_sentences,
        *reading.sentences,
    ]
    quality = quality_sentence(store, stored, window)
    cited = kept_snapshot(store, stored, window, reading.view.together)
    bare = MetricPage(stored, window, controls, in_words(window), state, "", reading, quality=quality, snapshot=cited)
    if reading.n == 0:
        nothing = "No reports of these days are counted."
        return replace(bare, headline=nothing if reading.left_out == 0 else TOO_LITTLE_SHOWN)
    shown = presentation_of(stored.plan)
    part = shown.part(store, reading, asked) if reading.rows else None
    groups = _groups(store, reading, asked) if reading.rows and reading.view.error_of == "population" else None
    cost = "" if _refusal_of_error(stored, asked) else _cost(reading)
    return replace(bare, part=part, groups=groups, headline=shown.answered(reading).sentence, cost=cost)


def _refusal_of_error(stored: StoredPlan, asked: QueryParameters) -> str:
    """Return why a reader cannot choose of which devices intervals are; "" where they can."""
    if asked.get("group"):
        return "error_of and group do not go together: groups are of all devices like these"
    try:
        estimand_of(stored.plan).check(stored.plan, View(), frozenset({"error_of"}))
    except BadView as error:
        return str(error)
    return ""


def _cost(reading: Reading) -> str:
    """Say how wide the intervals would be that the reader did not choose, by the row that leads."""
    row = max(reading.rows, key=attrgetter("estimate"), default=None)
    if row is None or row.std_error <= 0:
        return ""
    share = min(max(row.estimate, 0.0), 1.0)
    answers, alone = reading.repeats * share * (1 - share) / reading.n, reading.view.error_of == "reports"
    whole = row.std_error**2 + answers * alone
    wider = sqrt(whole / max(whole - answers, 1e-9 * whole))
    if wider < COST_MIN:
        return "about as wide" if alone else ""
    return f"up to about {wider:.1f} times {'as wide' if alone else 'narrower'}"


def _groups(store: Store, reading: Reading, asked: QueryParameters) -> GroupsPart | None:
    """Return the groups to show, or the one that is asked for."""
    members, names = asked_members(store, reading.stored, asked), asked.get("group") or ()
    found = read_groups(store, reading.stored, reading.window, reading.view.own_confidence, names)
    if not found:
        return None
    told = [each for each in found if each.row]
    plot = draw([each.row for each in told if each.row], 0.0) if told else None
    part = GroupsPart(told, [each for each in found if not each.row], plot)
    if members is None:
        return part
    rows = [row for row in reading.rows if row.value in members]
    return replace(part, chosen=found[0], members=sorted(rows, key=lambda row: -row.estimate)[:FOUND_MAX])


def _controls(store: Store, stored: StoredPlan, usual: Window, window: Window, asked: QueryParameters) -> Controls:
    """Return the windows on offer, and the form, in which the days stand that are shown."""
    sealed = store.sealed()
    offered = {Window.ending(sealed, days): (count(days, "day"), str(days)) for days in sorted(WINDOWS)}
    offered |= {Window.ending(store.today(), 1): ("today so far", TODAY), usual: (count(usual.days, "day"), "")}
    presets = [(words, name, each == window) for each, (words, name) in offered.items()]
    level, search, plans = asked["level"], asked["search"].strip(), plans_of(store, stored)
    shown = {**asked, "first": window.first, "last": window.last, "window": None, "of": None, "by": None}
    shown["plan"] = stored.plan.digest if plans else None
    shown["search"] = search if presentation_of(stored.plan).searchable else None
    if not estimand_of(stored.plan).names_some_falsely:
        shown["false_share"] = None
    fields = form(MetricAsked, shown, {"plan": plans}, ("first", "last", "plan"))
    values, groups = tuple(asked.get("values") or ()), asked.get("group") or ()
    return Controls(
        *(fields, window != usual, level, search, values, next(iter(groups), None)),
        *(asked.get("false_share"), asked.get("error_of"), presets),
    )


# Sentences.


def _window_state(store: Store, reading: Reading, controls: Controls) -> list[str]:
    sentences = lagging(store)
    if reading.provisional:
        sentences.append("Provisional: more reports may come.")
        sentences += in_batches(store)
    elif controls.chosen and reading.view.together == 1:
        sentences.append(CHOSEN)
    plan = reading.stored.plan
    around = Window.ending(reading.epoch, max(reading.window.days, WINDOWS[0]))
    older = [each.plan for each in store.plans(plan.metric) if each.plan.digest != plan.digest]
    others = {epoch for each in older for epoch in store.epochs(each) if epoch in around}
    if controls.level < LEVEL:
        share = of_pages(100 - controls.level)
        sentences.append(f"At {controls.level}\N{NO-BREAK SPACE}%, up to {share} show a value that nobody has.")
    if others:
        sentences.append(
            f"Another rev has reports on {len(others)} of the {around.days} days to here: they do not join."
        )
    if backlog := store.backlog():
        sentences.append(f"{backlog:,} uploads are not counted yet.")
    if reading.stored.plan.kind.several:
        sentences.append("People may give several answers: shares need not sum to 100\N{NO-BREAK SPACE}%.")
    return sentences


def elsewhere(store: Store, page: MetricPage) -> list[tuple[StoredPlan, date]]:
    """Return the plans of the metric with the latest day of each that has reports, but for what is shown."""
    shown = page.stored.plan.digest
    latest = [(stored, next(iter(store.epochs(stored.plan)), None)) for stored in store.plans(page.stored.plan.metric)]
    return [
        (stored, day)
        for stored, day in latest
        if day is not None and not (stored.plan.digest == shown and day in page.window)
    ]
