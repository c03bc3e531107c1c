"""The reading API: what metrics there are, and their estimates, as JSON or CSV."""

import csv
import io
from collections.abc import Sequence
from datetime import date
from typing import cast, get_args

from flask import Flask, Response, jsonify, request

from dither_aggregator.estimate import ErrorOf
from dither_aggregator.normalise import METHODS
from dither_aggregator.reading import Reading, View, read
from dither_aggregator.records import StoredPlan
from dither_aggregator.service import Service
from dither_aggregator.store import Store
from dither_shared.wire import Problem


def register(app: Flask, service: Service) -> None:
    """Add the addresses that analysts and monitors read."""
    store = service.store

    @app.get("/v1/metrics")
    def metrics() -> Response:
        return jsonify({"app": store.app, "metrics": [describe(store, stored) for stored in store.plans()]})

    @app.get("/v1/metrics/<metric>/estimates")
    def estimates(metric: str) -> Response:
        reading = requested(store, metric)
        if _one_of("format", ("json", "csv")) == "csv":
            return Response(to_csv(reading), content_type="text/csv; charset=utf-8")
        return jsonify(reading.to_document())

    @app.get("/livez")
    def livez() -> Response:
        return jsonify({"status": "alive"})

    @app.get("/readyz")
    def readyz() -> tuple[Response, int]:
        trouble = service.trouble()
        status = "ready" if not trouble else "not ready"
        return jsonify({"status": status, "trouble": trouble, "pending": store.pending()}), 503 if trouble else 200


def describe(store: Store, stored: StoredPlan) -> dict[str, object]:
    """Return what is public about a plan."""
    plan = stored.plan
    return {
        "metric": plan.metric,
        "plan": plan.digest,
        "rev": plan.rev,
        "current": stored.current,
        "mechanism": plan.mechanism.name,
        "question": stored.question,
        "epsilon": stored.epsilon,
        "epsilon_permanent": stored.epsilon_permanent,
        "epsilon_lifetime": stored.epsilon_lifetime,
        "expires": stored.expires.isoformat(),
        "values": list(plan.values),
        "epochs": [epoch.isoformat() for epoch in store.epochs(plan)],
    }


def requested(store: Store, metric: str) -> Reading:
    """Return the reading that a request's `plan` and `epoch` ask for: by default the registry's, and the latest."""
    plans = store.plans(metric)
    if not plans:
        raise Problem("not-found", f"there is no metric {metric!r}; GET /v1/metrics lists them")
    digest = request.args.get("plan", plans[0].plan.digest)
    stored = next((item for item in plans if item.plan.digest == digest), None)
    if stored is None:
        raise Problem("not-found", f"the metric {metric!r} has no plan {digest!r}")
    view = _read_view(stored.plan.mechanism.ticks)
    text = request.args.get("epoch")
    if text is None:
        return read(store, stored, next(iter(store.epochs(stored.plan)), store.today()), view)
    return read(store, stored, _read_day(text), view)


def _read_view(ticks: int) -> View:
    error_of = _one_of("error_of", get_args(ErrorOf))
    simultaneous = _one_of("intervals", ("each", "simultaneous")) == "simultaneous"
    normalised = _one_of("normalised", ("no", *METHODS))
    if normalised != "no" and ticks > 1:
        raise Problem("malformed", "answers of this metric may hold several values: their shares need not sum to one")
    return View(cast("ErrorOf", error_of), simultaneous, None if normalised == "no" else normalised)


def _one_of(name: str, choices: Sequence[str]) -> str:
    """Return a parameter that is one of a few words, by default the first."""
    given = request.args.get(name, choices[0])
    if given not in choices:
        raise Problem("malformed", f"{name} must be {' or '.join(choices)}, got {given!r}")
    return given


def _read_day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or day.isoformat() != text:
        raise Problem("malformed", f"epoch must be a day such as 2027-06-30, got {text!r}")
    return day


def to_csv(reading: Reading) -> str:
    """Return the rows as CSV with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ["value", "estimate", "std_error", "lower", "upper", *(["normalised"] if reading.normalised else [])]
    writer.writerow(columns)
    writer.writerows([getattr(row, column) for column in columns] for row in reading.rows)
    return text.getvalue()
