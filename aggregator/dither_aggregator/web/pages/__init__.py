"""The pages: what can be told, each at an address of its own. One optional script, no outside request.

**How to read them** is told by one picture of noise beside the truth, on made-up data.
Value k of the listed ones has a share of the N reports proportional to 1/k (Zipf). With n_v of N reports of a value,

    Binomial(n_v, p) + Binomial(N - n_v, q)

reports support it, by the mechanism that the registry would choose. Each value's are drawn by themselves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache

import numpy as np
from flask import Flask, Response, render_template, request
from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket
from marshmallow import fields

from dither_aggregator.analysis.closed_days import ALPHA as QUALITY_ALPHA
from dither_aggregator.analysis.closed_days import digest_of
from dither_aggregator.analysis.inference import LEVEL_MAX, LEVEL_MIN, SURE_TO_COMPARE
from dither_aggregator.analysis.inference import SURE as GROUP_ERRORS_MIN
from dither_aggregator.analysis.pure import estimate_shares
from dither_aggregator.analysis.reading import WINDOWS
from dither_aggregator.analysis.reading_cache import keeper_of
from dither_aggregator.analysis.shares import ShareRow
from dither_aggregator.analysis.tables.reading import REPORTS_MIN as TABLE_REPORTS_MIN
from dither_aggregator.store import Store, at_one_moment
from dither_aggregator.web.addresses import EMBED
from dither_aggregator.web.charts import (
    SHARES,
    Measure,
    beside,
    end,
    end_in_points,
    points,
    precise,
    rough,
    rough_in_points,
)
from dither_aggregator.web.forest_plots import ROW_HEIGHT, Mark, Plot, draw
from dither_aggregator.web.pages import asking, compare, days, embed, metric, overview, people, pipeline, planning
from dither_aggregator.web.pages.presentation import WHOSE, count, in_words, of_pages, rank_in_words
from dither_aggregator.web.problems import EMBED_HEADERS, PAGE_HEADERS, REFRESH_S
from dither_aggregator.web.process_messages import LIVE, SESSION
from dither_aggregator.web.query_parameters import Parameters, query_parameters, seen
from dither_shared.kinds.precision import MEANS_MIN, NUMBERS_MIN
from dither_shared.mechanisms import choose
from dither_shared.safe_output import visible
from dither_shared.wire.reading import Problem


class LoginAsked(Parameters):
    """The parameters of the login page: the page to go to afterwards, and whether the key was wrong."""

    next = fields.String(load_default="/")
    wrong = fields.String(load_default="")


def show_login(store: Store) -> str:
    """Return the page."""
    return render_template("login.html", **query_parameters(LoginAsked))


# How to read the pages.


N, D, EPSILON, SEED = 8_000, 300, Decimal(4), 3
"""The seed is a usual one: 60 of them miss 3.9 truths in the mean, and show 5.6 values that are not so common."""
LARGEST = 25
"""So many of the largest estimates are drawn."""


@dataclass(frozen=True)
class Example:
    """The largest estimates of made-up data, each with an interval of its own, beside the truth."""

    plot: Plot
    beside: Sequence[tuple[Mark, ShareRow, float]]
    """Each estimate's mark, its truth as a row, and the place of that in percent of the width."""
    n: int = N
    d: int = D
    epsilon: Decimal = EPSILON

    @property
    def misses(self) -> int:
        """How many intervals do not hold the truth."""
        return sum(not mark.row.lower <= truth.estimate <= mark.row.upper for mark, truth, _ in self.beside)

    @property
    def strangers(self) -> int:
        """How many are not among as many most common values, which are called after their ranks."""
        return sum(int(truth.value.split()[1]) > len(self.beside) for _, truth, _ in self.beside)


@cache
def example() -> Example:
    """Draw the noise: always the same one."""
    mechanism, rng = choose(D, EPSILON), np.random.default_rng(SEED)
    weights = 1 / np.arange(1, D)
    counts = np.rint(N * weights / weights.sum()).astype(np.int64)
    counts[0] += N - counts.sum()  # rounding leaves a few
    support = rng.binomial(counts, float(mechanism.p)) + rng.binomial(N - counts, float(mechanism.q))
    chosen = np.argsort(-support, kind="stable")[:LARGEST]
    estimates = estimate_shares(mechanism, support[chosen], N, error_of="reports")
    names = [f"value {place + 1}" for place in chosen.tolist()]
    columns = (estimates.estimate, estimates.std_error, estimates.lower, estimates.upper)
    rows = [ShareRow(*row) for row in zip(names, *(each.tolist() for each in columns), strict=True)]
    truths = [
        ShareRow(name, share, 0.0, share, share)
        for name, share in zip(names, (counts[chosen] / N).tolist(), strict=True)
    ]
    plot = draw([*rows, *truths], estimates.noise_floor)
    marks, true = plot.marks[:LARGEST], plot.marks[LARGEST:]
    beside = [(mark, truth, place.x) for mark, truth, place in zip(marks, truths, true, strict=True)]
    return Example(replace(plot, marks=marks, height=plot.height - LARGEST * ROW_HEIGHT), beside)


@dataclass(frozen=True)
class ReadingHelpPage:
    """All that the template shows: the picture, and the limits that words name."""

    example: Example
    table_reports_min: int = TABLE_REPORTS_MIN
    group_errors_min: float = GROUP_ERRORS_MIN
    compared_errors_min: float = SURE_TO_COMPARE
    number_reports_min: int = NUMBERS_MIN
    mean_reports_min: int = MEANS_MIN
    quality_days: int = round(1 / QUALITY_ALPHA)
    windows: Sequence[int] = WINDOWS
    level_min: Decimal = LEVEL_MIN
    level_max: Decimal = LEVEL_MAX


def show_reading_help(store: Store) -> str:
    """Return the page. The store has no part in it: its data are made up."""
    query_parameters(Parameters)
    return render_template("reading_help.html", page=ReadingHelpPage(example()))


# All pages.


Page = Callable[..., "str | tuple[str, int] | Response"]
PAGES: dict[str, tuple[str, Page]] = {
    "/": ("overview", overview.show),
    "/metrics/<name>": ("metric", metric.show),
    "/metrics/<name>/time": ("time", days.show_days),
    "/metrics/<name>/privacy": ("metric_privacy", metric.privacy),
    "/metrics/<name>/share": ("share", embed.show_share),
    "/changes": ("changes", compare.show_changes),
    "/people": ("people", people.show),
    "/compare": ("compare", compare.show),
    "/ask": ("asking", asking.show),
    "/plan": ("planning", planning.show),
    "/pipeline": ("pipeline", pipeline.show),
    "/help/reading": ("reading_help", show_reading_help),
    "/login": ("login", show_login),
    "/s/<id_>": ("snapshot", days.show_snapshot),
    "/s/<id_>.csv": ("snapshot_csv", days.csv),
    "/s/<id_>.svg": ("snapshot_svg", days.svg),
    "/embed/<signed>": ("embed", embed.show),
    "/embed/<signed>.svg": ("embed_svg", embed.svg),
}
"""By address: the name of a page for `url_for`, and the function that shows it.

It is called with the store and with the parts of the address.
"""
MENU = (
    ("overview", "Metrics"),
    ("changes", "Changes"),
    ("people", "People"),
    ("asking", "Ask"),
    ("planning", "Plan"),
    ("pipeline", "Pipeline"),
    ("reading_help", "How to read"),
)
"""The links of every page."""
OPERATORS = {"pipeline": "shows what comes at the moment", "share": "lets others see what a read key sees"}
"""Pages for an admin key, with why."""


TAGGED_BYTES_MAX = 1024 * 1024
"""The most bytes of an answer that gets a tag: larger ones cost more to compare than they save."""


def dress(templates: Environment) -> None:
    """Give templates the words and numbers that pages are written with."""
    templates.filters.update(precise=precise, points=points, end=end, end_in_points=end_in_points, rough=rough)
    templates.filters.update(rough_in_points=rough_in_points)
    templates.filters.update(
        rank=rank_in_words,
        days=in_words,
        visible=visible,
        measure=lambda plan: Measure(plan.domain.unit),
        beside=beside,
    )
    templates.filters.update(
        whose=WHOSE.__getitem__, counted=count, of_pages=of_pages, digest=lambda id_: digest_of(id_)[:12]
    )
    templates.globals.update(shares=SHARES)
    templates.trim_blocks = templates.lstrip_blocks = True


class _Compiled(BytecodeCache):
    """The compiled templates of this process, and of the one that it was forked from: every application has them."""

    def __init__(self) -> None:
        self._compiled: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Give a template its code, if it was compiled."""
        if code := self._compiled.get(bucket.key):
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the code of a template."""
        self._compiled[bucket.key] = bucket.bytecode_to_string()


_compiled = _Compiled()


def templates_of(app: Flask) -> Environment:
    """Return the templates of an application, dressed."""
    dress(app.jinja_env)
    app.jinja_env.bytecode_cache = _compiled
    return app.jinja_env


def register(app: Flask, store: Store) -> None:
    """Add the pages."""
    templates_of(app)
    app.context_processor(lambda: _of_every_page(store))
    for address, (name, show) in PAGES.items():
        app.add_url_rule(address, name, _bound(show, store, OPERATORS.get(name)))


def _of_every_page(store: Store) -> dict[str, object]:
    session = request.environ.get(SESSION, False)
    menu = [
        each
        for each in MENU
        if (each[0] not in OPERATORS or request.environ.get(LIVE)) and (each[0] != "people" or store.measuring_people())
    ]
    keeper = keeper_of(store)
    return {
        "app_name": store.app,
        "lossy": store.lossy,
        "pages": menu,
        "operator": request.environ.get(LIVE, False),
        "session": session,
        "refresh_s": REFRESH_S if keeper and keeper.wanted else None,
    }


def _bound(show: Page, store: Store, why: str | None) -> Page:
    def shown(**named: str) -> str | tuple[str, int] | Response:
        if why and not request.environ.get(LIVE):
            raise Problem("key-scope", f"this page {why}: an admin key is needed")
        by_link = request.path.startswith(EMBED)  # such a page looks for its key, and reads what that may see
        with at_one_moment():
            return show(store if by_link else seen(store), **named)

    return shown


def guard(response: Response) -> Response:
    """Let a page load its own style sheet and script and nothing else, from nowhere else, and no site use it.

    The answer of a signed link has no script, and any site may use it.
    """
    embedded = request.path.startswith(EMBED)
    if (response.mimetype or "").startswith(("text/", "image/")):
        response.headers.update(EMBED_HEADERS if embedded else PAGE_HEADERS)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cross-Origin-Resource-Policy"] = "cross-origin" if embedded else "same-origin"
    return _tagged(response)


def _tagged(response: Response) -> Response:
    """Let a browser that has these bytes be told so. The tag is weak: what is sent may be compressed, or not."""
    made = response.status_code == 200 and request.method == "GET" and not response.direct_passthrough
    if made and len(response.get_data()) <= TAGGED_BYTES_MAX:
        response.add_etag(weak=True)
    if "ETag" in response.headers:
        response.make_conditional(request)
    return response
