"""Saved questions: those that the dashboard names, with their answers, and whether these moved since the days before.

A question that was written before the first report of anything that it asks is *fixed*: nobody can have made it because
of what reports showed, so its intervals hold together with those of all such questions alone (Bonferroni). One that was
written later may be the question that looked best, and pays as any question that follows answers.
"""

import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dither_aggregator.analysis.groups import dashboard_of
from dither_aggregator.analysis.reading import Window
from dither_aggregator.analysis.reading_cache import Elsewhere, NotReady
from dither_aggregator.ask.answering import WORK_MAX, Asking, QueryAnswer
from dither_aggregator.ask.language import BadQuestion, Query, parse
from dither_aggregator.store import StoredPlan, StoreError
from dither_aggregator.store.document_kinds import Dashboard

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
