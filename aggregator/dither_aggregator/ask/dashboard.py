"""Questions of the dashboard: those that an operator saved, and examples that a registry begins with.

**Saved questions.** Those that the dashboard names, with their answers, and whether these moved since the days before.

A question that was written before the first report of anything that it asks is *fixed*: nobody can have made it because
of what reports showed, so its intervals hold together with those of all such questions alone (Bonferroni). One that was
written later may be the question that looked best, and pays as any question that follows answers.
"""

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations

from dither_aggregator.analysis.differences import dashboard_of
from dither_aggregator.analysis.estimands import estimand_of
from dither_aggregator.analysis.numbers import MEAN
from dither_aggregator.analysis.reading import Window
from dither_aggregator.analysis.reading_cache import Elsewhere, NotReady
from dither_aggregator.analysis.tables.reading import columns_of
from dither_aggregator.ask.analyses import SPANS
from dither_aggregator.ask.answering import WORK_MAX, Asking, QueryAnswer
from dither_aggregator.ask.language import BadQuestion, Query, parse, quoted
from dither_aggregator.store import StoredPlan, StoreError
from dither_aggregator.store.document_kinds import Dashboard
from dither_shared.domains import NONE, OTHER, Columns
from dither_shared.domains.number_ranges import NumberDomain

_log = logging.getLogger("dither_aggregator")
SAVED_MAX = 50
"""So many saved questions are answered, the first of the file."""


@dataclass(frozen=True)
class SavedQuestion:
    """A question by its title, with its answers."""

    title: str
    text: str
    fixed: bool
    """Whether it was there before the first report of anything that it asks."""
    question: Query | None = None
    answers: Sequence[QueryAnswer] = ()
    change: QueryAnswer | None = None
    """How far its answer moved between two windows; None where its days are its own."""
    wrong: str = ""
    """Why there are no answers."""
    open: bool = False
    """Whether they are being computed."""

    @property
    def verdict(self) -> str:
        """Which way its answer moved, `rose` or `fell`; "" where it cannot be told to have."""
        change = self.change
        if change is None or change.lower is None or change.upper is None or change.lower <= 0 <= change.upper:
            return ""
        return "rose" if change.lower > 0 else "fell"


def saved_questions(
    asking: Asking, windows: tuple[Window, Window], refuse: Callable[[StoredPlan], bool] = lambda stored: False
) -> list[SavedQuestion]:
    """Return the dashboard's questions, answered; none of a metric that is refused, for its reading takes minutes."""
    dashboard = dashboard_of(asking.store)
    fixed = intervals_of_fixed(asking, dashboard)
    found, left = list[SavedQuestion](), WORK_MAX
    for title, text in list(dashboard.questions.items())[:SAVED_MAX]:
        one = SavedQuestion(title, text, text in dashboard.fixed)
        try:
            question = parse(text, asking.groups)
            one = replace(one, fixed=one.fixed and not _names_groups(question))
            left -= asking.work(question)
            stored = asking.asked_plans(question)
            if left < 0:
                found.append(replace(one, wrong=f"The dashboard asks for more than {WORK_MAX} parts in all."))
            elif any(map(refuse, stored)):
                found.append(replace(one, wrong="Too many candidates to be looked for here."))
            else:
                found.append(_answered(asking, one, question, fixed if one.fixed else None, windows))
        except NotReady as error:
            found.append(replace(one, wrong=f"{error.words.capitalize()}.", open=True))
        except BadQuestion as error:
            found.append(replace(one, wrong=f"This cannot be asked: {error.why}."))
        except (Elsewhere, StoreError):
            raise
        except Exception as error:  # one question must not take the pages of all others down
            frames = "".join(traceback.format_tb(error.__traceback__)).rstrip()
            _log.error("a saved question failed with %s:\n%s", type(error).__name__, frames)
            found.append(replace(one, wrong="This cannot be answered, by a fault of the aggregator's: see its log."))
    return found


def intervals_of_fixed(asking: Asking, dashboard: Dashboard) -> int:
    """Return how many intervals the fixed questions have at once: those that are gone count, too."""
    number = 0
    for text in dashboard.fixed:
        try:
            number += asking.intervals(parse(text, asking.groups))
        except StoreError:
            raise
        except Exception:  # the card of the question says what is wrong with it
            number += 1
    return max(number, 1)


def _names_groups(question: Query) -> bool:
    """Tell whether a question means groups, whose values may change after it was written."""
    try:
        return parse(question.text) != question
    except BadQuestion:
        return True


def _answered(
    asking: Asking, one: SavedQuestion, question: Query, fixed: int | None, windows: tuple[Window, Window]
) -> SavedQuestion:
    answers = list(asking.answer(question, fixed))
    moves = question.period is None and question.step is None and question.analysis is None
    moves = moves and not any(figure.period for figure in question.expression.asked)
    change = asking.change(question, *windows, fixed) if moves else None
    return replace(one, question=question, answers=answers, change=change)


# Questions that a registry's metrics can answer, to begin with, and the names that questions are made of.


EXAMPLES_MAX = 8
EXAMPLES_EACH = 3
ANALYSES = ("top", "regress", "logistic", "clusters", "count")
DRAFTS_MAX = 20
"""So many analyses of a kind are tried before none is offered."""
METRICS_MAX = 200
VALUES_MAX = 30
"""So many metrics, and values of each, are offered: others are typed."""


@dataclass(frozen=True)
class Name:
    """A metric, or a table's column, with values that a question may name."""

    name: str
    values: Sequence[str]
    more: int
    """How many others there are."""
    numeric: bool
    """Whether it has a mean."""

    @property
    def words(self) -> list[str]:
        """It and its values, as they are written in a question."""
        return [self.name, *map(quoted, self.values)]


def names(asking: Asking) -> list[Name]:
    """Return what can be asked of, with the first of its values."""
    return [each for stored in islice(asking.plans.values(), METRICS_MAX) for each in _names(stored)]


def _names(stored: StoredPlan) -> Iterator[Name]:
    plan, domain = stored.plan, stored.plan.domain
    if isinstance(domain, Columns):
        columns = columns_of(plan)
        for at, name in enumerate(columns.names):
            known = estimand_of(plan).shares(stored)
            yield _name(f"{plan.metric}.{name}", columns.labels(at), f"{name}, {MEAN}" in known)
        if columns.public:
            yield _name(f"{plan.metric}.{columns.public[0]}", columns.public[1:])
    elif isinstance(domain, NumberDomain):
        yield _name(plan.metric, (), numeric=True)
    else:
        yield _name(plan.metric, estimand_of(plan).names(stored))


def _name(name: str, values: Sequence[str], numeric: bool = False) -> Name:
    told = [value for value in values if value not in (OTHER, NONE)]
    return Name(name, told[:VALUES_MAX], len(told[VALUES_MAX:]), numeric)


def examples(asking: Asking, most: int = EXAMPLES_MAX) -> list[str]:
    """Return questions that can be asked: the first of each kind in turn."""
    kinds: dict[str, list[StoredPlan]] = {}
    for stored in asking.plans.values():
        kinds.setdefault(stored.plan.kind.name, []).append(stored)
    drawn = [
        (text for stored in each for text in islice(_of_metric(asking, stored), EXAMPLES_EACH))
        for each in kinds.values()
    ]
    in_turn = (text for _ in range(most) for each in drawn for text in islice(each, 1))
    return list(islice(in_turn, most))


def analyses(asking: Asking) -> list[str]:
    """Return an analysis of each kind that some metric can answer."""
    drafts = [text for stored in asking.plans.values() for text in _analyses(stored)]
    drafts += [f"count(devices active in a {span})" for span in SPANS]
    found = list[str]()
    for kind in ANALYSES:
        of_kind = islice((text for text in drafts if text.startswith(kind)), DRAFTS_MAX)
        found += islice(_askable(asking, of_kind), 1)
    return found


def _of_metric(asking: Asking, stored: StoredPlan) -> Iterator[str]:
    """Yield questions of one metric that can be asked."""
    yield from _askable(asking, _drafts(stored))


def _askable(asking: Asking, drafts: Iterable[str]) -> Iterator[str]:
    for text in drafts:
        try:
            asking.windows(parse(text))
        except BadQuestion:
            continue
        yield text


def _analyses(stored: StoredPlan) -> Iterator[str]:
    """Yield analyses of one metric, of which some may not be asked."""
    metric, found = stored.plan.metric, list(_names(stored))
    if isinstance(stored.plan.domain, Columns):
        yield f"clusters({metric}, k = 3)"
        columns = [each for each in found if each.values]
        for outcome, group in islice(permutations(columns, 2), DRAFTS_MAX):
            on = f"({outcome.name} = {quoted(outcome.values[-1])} on {group.name})"
            yield from (f"regress{on}", f"logistic{on}")
    elif values := found[0].values:
        if _families(values):
            yield f"top({metric} group by family, 5)"
        yield f"top({metric}, 5)"


def _families(values: Sequence[str]) -> list[str]:
    """Return the first words that several values have."""
    begins = [value.split(" ")[0] for value in values if " " in value]
    return [each for each in dict.fromkeys(begins) if begins.count(each) > 1]


def _drafts(stored: StoredPlan) -> Iterator[str]:
    metric, domain = stored.plan.metric, stored.plan.domain
    found = list(_names(stored))
    if isinstance(domain, NumberDomain):
        yield f"mean({metric})"
        yield f"quantile({metric}, .9) last 28 days"
        middle = domain.in_unit(domain.edges[len(domain.edges) // 2])
        yield f"share({metric} > {domain.with_unit(middle)})"
    elif isinstance(domain, Columns):
        one, *others = [each for each in found if each.values] or [found[0]]
        for other in others[:1]:
            first, second = ([quoted(each.values[0]), quoted(each.values[-1])] for each in (one, other))
            rate = f"share({one.name} = {first[1]} | {other.name.rpartition('.')[2]} = {{}})"
            yield f"{rate.format(second[1])} - {rate.format(second[0])}"
        yield from (f"mean({each.name})" for each in found if each.numeric)
        yield from (f"share({each.name} = {quoted(each.values[0])})" for each in found if each.values)
    elif values := found[0].values:
        yield f"share({metric} = {quoted(values[0])}) by week"
        if common := [each for each in _families(values) if not set(each) & set("*?[")]:
            yield f"share({metric} in {quoted(f'{common[0]} *')})"
        if len(values) > 1:
            yield f"share({metric} = {quoted(values[0])}) / share({metric} = {quoted(values[1])})"
