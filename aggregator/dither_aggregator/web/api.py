"""The reading API: what metrics there are, and their estimates, as JSON or CSV."""

import csv
import io
from datetime import date

from flask import Flask, Response, jsonify, request

from dither_aggregator.reading import Reading, read
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
        form = request.args.get("format", "json")
        if form == "csv":
            return Response(to_csv(reading), content_type="text/csv; charset=utf-8")
        if form != "json":
            raise Problem("malformed", f"format must be json or csv, got {form!r}")
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
    text = request.args.get("epoch")
    if text is None:
        return read(store, stored, next(iter(store.epochs(stored.plan)), store.today()))
    return read(store, stored, _read_day(text))


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
    writer.writerow(["value", "estimate", "std_error", "lower", "upper"])
    writer.writerows([row.value, row.estimate, row.std_error, row.lower, row.upper] for row in reading.rows)
    return text.getvalue()
