"""The reading API: what metrics there are, and their estimates, as JSON or CSV."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import cast, get_args

from flask import Flask, Response, current_app, jsonify, request

from dither_aggregator.analysis import snapshots
from dither_aggregator.analysis.estimands import estimand_of, read
from dither_aggregator.analysis.inference import ErrorOf
from dither_aggregator.analysis.normalise import METHODS
from dither_aggregator.analysis.reading import BadView, Reading, View
from dither_aggregator.analysis.windows import Window
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.asking import (
    Given,
    LevelAsked,
    PlanAsked,
    WindowAsked,
    asked_plan,
    asked_window,
    given,
    no_metric,
    one_of,
)
from dither_shared.domains import VALUE_CHARACTERS_MAX
from dither_shared.errors import DitherError
from dither_shared.kinds.kind import CANDIDATES_MAX
from dither_shared.plan import Plan
from dither_shared.wire.problems import Problem
from dither_shared.wire.reading import parse_json


class EstimatesAsked(WindowAsked, PlanAsked, LevelAsked):
    """What the estimates of a metric are asked for."""

    format = one_of(("json", "csv"), "of the answer")
    error_of = one_of(get_args(ErrorOf), "of these reports, or of the population that they are a sample of")
    intervals = one_of(("each", "simultaneous"), "hold each on its own, or all together")
    normalised = one_of(("no", *METHODS), "adds shares that sum to one")


class LongList(DitherError):
    """A list of candidates that is not looked for here and now: it takes seconds to minutes, and memory."""


def register(app: Flask, store: Store, candidates_max: int | None) -> None:
    """Add the addresses that analysts read."""
    app.config["CANDIDATES_MAX"] = candidates_max

    @app.get("/v1/metrics")
    def metrics() -> Response:
        epochs = store.all_epochs()
        described = [describe(stored, epochs.get(stored.id, [])) for stored in store.plans()]
        return jsonify({"app": store.app, "lossy": store.lossy, "metrics": described})

    @app.get("/v1/metrics/<metric>/estimates")
    def estimates(metric: str) -> Response:
        reading = requested(store, metric)
        if given(EstimatesAsked)["format"] == "csv":
            return Response(to_csv(reading), content_type="text/csv; charset=utf-8")
        return jsonify(reading.to_document())

    @app.post("/v1/metrics/<metric>/estimates")
    def estimates_of(metric: str) -> Response:
        """Look for the texts that the body names, in place of the registry's."""
        return jsonify(requested(store, metric, _read_candidates(request.get_data())).to_document())

    @app.get("/v1/metrics/<metric>/snapshots")
    def metric_snapshots(metric: str) -> Response:
        return jsonify({"metric": metric, "snapshots": list_snapshots(store, metric)})

    @app.get("/v1/snapshots/<id_>")
    def snapshot(id_: str) -> Response:
        """Answer with the very bytes whose SHA-256 is the id."""
        content = snapshots.content(store, id_)
        if content is None:
            raise Problem("not-found", f"there is no snapshot {id_!r}; a metric's snapshots list its own")
        return Response(content, content_type="application/json")


def describe(stored: StoredPlan, epochs: Sequence[date]) -> dict[str, object]:
    """Return what is public about a plan, with the days of its reports."""
    plan = stored.plan
    return {
        "metric": plan.metric,
        "plan": plan.digest,
        "rev": plan.rev,
        "current": stored.current,
        "mechanism": plan.cells.name,
        "question": stored.question,
        "epsilon": stored.epsilon,
        "epsilon_permanent": stored.epsilon_permanent,
        "epsilon_lifetime": stored.epsilon_lifetime,
        "expires": stored.expires.isoformat(),
        "values": list(plan.values),
        "candidates": len(stored.candidates),
        "epochs": [epoch.isoformat() for epoch in epochs],
    }


def list_snapshots(store: Store, metric: str) -> list[dict[str, object]]:
    """Return what is kept of a metric's finalized days, latest first within each plan."""
    plans = store.plans(metric)
    if not plans:
        raise no_metric(metric)
    return [
        {
            "plan": stored.plan.digest,
            "rev": stored.plan.rev,
            "epoch": epoch.isoformat(),
            "tally": final.digest,
            "snapshot": final.snapshot,
        }
        for stored in plans
        for epoch, final in sorted(store.finals(stored.plan).items(), reverse=True)
    ]


def requested(store: Store, metric: str, candidates: tuple[str, ...] | None = None) -> Reading:
    """Return the reading that a request asks for: by default of the registry's plan, and of the latest day."""
    asked = given(EstimatesAsked)
    stored = asked_plan(store, metric, asked)
    latest = next(iter(store.epochs(stored.plan)), store.today())
    window = asked_window(store, asked) or Window.ending(latest, 1)
    view = replace(_read_view(stored.plan, candidates, asked), days=window.days)
    refuse_long(stored, candidates)
    return read(store, stored, window.last, view)


def refuse_long(stored: StoredPlan, candidates: tuple[str, ...] | None = None) -> None:
    """Raise LongList where so many candidates are not looked for here."""
    if too_long(stored, candidates):
        raise LongList


def too_long(stored: StoredPlan, candidates: tuple[str, ...] | None = None) -> bool:
    """Return whether so many candidates, the registry's or these, are not looked for here."""
    longest = current_app.config["CANDIDATES_MAX"]
    return longest is not None and len(stored.candidates if candidates is None else candidates) > longest


def _read_candidates(body: bytes) -> tuple[str, ...]:
    document = parse_json(body)
    listed = document.get("candidates") if isinstance(document, dict) and len(document) == 1 else None
    if not isinstance(listed, list) or not 1 <= len(listed) <= CANDIDATES_MAX:
        raise Problem("malformed", f'the body must be {{"candidates": [...]}} with 1 to {CANDIDATES_MAX} texts')
    if not all(isinstance(text, str) and len(text) <= VALUE_CHARACTERS_MAX for text in listed):
        raise Problem("malformed", f"a candidate must be a text of at most {VALUE_CHARACTERS_MAX} characters")
    if len(set(listed)) < len(listed):
        raise Problem("malformed", "candidates must be different")
    try:
        "".join(listed).encode("utf-8")
    except UnicodeEncodeError:
        raise Problem("malformed", "a candidate must be text that UTF-8 can hold") from None
    return tuple(listed)


def _read_view(plan: Plan, candidates: tuple[str, ...] | None, asked: Given) -> View:
    normalised = None if asked["normalised"] == "no" else asked["normalised"]
    error_of = cast("ErrorOf", asked["error_of"])
    simultaneous = asked["intervals"] == "simultaneous"
    view = View(error_of, simultaneous, normalised, candidates, confidence=int(asked["level"]) / 100)
    try:
        estimand_of(plan).check(plan, view, frozenset(request.args))
    except BadView as error:
        raise Problem("malformed", str(error)) from None
    return view


def to_csv(reading: Reading) -> str:
    """Return the rows as CSV with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(reading.table())
    return text.getvalue()
