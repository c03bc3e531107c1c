"""The presentations, by the name of their estimand: one line each, as in `analysis/estimands.py`."""

from typing import Any

from dither_aggregator.web.pages.numbers import NumbersShown
from dither_aggregator.web.pages.presentation import Presentation, RowsShown
from dither_aggregator.web.pages.shares import OneShareShown, SharesShown
from dither_aggregator.web.pages.tables import TablesShown
from dither_shared.installed import Installed
from dither_shared.plan import Plan

PRESENTATIONS = Installed[type[Presentation[Any]]](
    "dither.presentations",
    {
        "shares": SharesShown,
        "one share": OneShareShown,
        "numbers": NumbersShown,
        "texts": SharesShown,
        "tables": TablesShown,
        "words": SharesShown,
    },
)


def presentation_of(plan: Plan) -> Presentation[Any]:
    """Return how readings of a plan are shown."""
    return PRESENTATIONS.get(plan.kind.estimand, RowsShown)(plan)
