"""How the pins ask the code: beside `placing.py` the one file here that imports it, but for the command line."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch

import pytest

from dither.commands.metrics.compiling import document_of
from dither.sending.transport import Answer, Outcome
from dither_aggregator.analysis.estimands import read
from dither_aggregator.analysis.functional import share_variance
from dither_aggregator.analysis.pure import significance_shares
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.shares import METHODS
from dither_aggregator.counting import Counts, fold, tables
from dither_aggregator.google_rappor import Report, import_reports, plan_for, read_params, read_reports
from dither_aggregator.operations import maintenance
from dither_aggregator.store import SQLiteStore
from dither_shared.errors import RegistryError
from dither_shared.kinds.precision import critical_share, detectable_share, noise_floor
from dither_shared.mechanisms import RAPPOR, Memoized, PureMechanism
from dither_shared.plan import Plan
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng
from dither_shared.shapes import ReportShape
from dither_shared.wire import encode_upload, new_upload_id
from dither_shared.wire.reading import Problem, parse_upload
from tests.support.clocks import Clock
from tests.support.devices import open_device, send

Document = dict[str, Any]

SOURCE = "metrics.toml"
DIGITS = Context(prec=50)
REPORTS = (1_000, 1_000_000)
"""For how many reports errors are pinned."""
SHARE = 0.1


# Metrics.


def describe(text: str, directory: Path, answers: Sequence[Any]) -> Document:
    """Return what is pinned of a registry's one metric, and how it reads some answers."""
    (metric,) = Registry.parse(text, SOURCE, directory).metrics.values()
    if metric.unit or len(metric.cells.parts) > 1:
        return _describe_parts(metric, answers)
    mechanism = metric.mechanism
    document: Document = {
        "d": metric.d,
        "values": [*metric.values[:3], *metric.values[-2:]],
        "charges": metric.charges,
        "charge": metric.charge,
        "charge_of_a_report": mechanism.charge,
        "reservation": metric.reservation,
        "exp_epsilon": _digits(mechanism.exp_epsilon),
        "mechanism": mechanism.name,
        "parameters": {**mechanism.parameters(), **({"m": metric.cells.count} if mechanism.name == "rappor" else {})},
        "report_bits": mechanism.shape.bits,
        "cells": metric.cells.count,
        "noise_variance": _digits(metric.noise_variance),
        "errors": {str(n): _errors(metric, n) for n in REPORTS},
        "reads": [[answer, _read(metric, answer)] for answer in answers],
    }
    if isinstance(mechanism, Memoized):
        document["exp_epsilon_permanent"] = _digits(mechanism.permanent.exp_epsilon)
    if isinstance(mechanism, RAPPOR):
        document["support"] = [_digits(mechanism.q_star), _digits(mechanism.p_star)]
    if isinstance(mechanism, PureMechanism):
        document["support"] = [_digits(mechanism.p), _digits(mechanism.q)]
        document["ticks"] = mechanism.ticks
        document["average_variance"] = _digits(mechanism.average_variance)
    return document


def _describe_parts(metric: Metric, answers: Sequence[Any]) -> Document:
    """Return the same of a number, or of cells that have several mechanisms."""
    cells = metric.cells
    return {
        "d": metric.d,
        "charges": metric.charges,
        "charge": metric.charge,
        "charge_of_a_report": cells.charge,
        "reservation": metric.reservation,
        "exp_epsilon": _digits(cells.exp_epsilon),
        "mechanism": cells.name,
        "parameters": cells.parameters(),
        "report_bits": cells.report_bits,
        "cells": cells.count,
        "domain": metric.asked.domain.to_document(),
        "std_errors": {str(n): dict(metric.std_errors(n)) for n in REPORTS},
        "reads": [[answer, [metric.read(answer), metric.names(answer)]] for answer in answers],
    }


def refusal(text: str, directory: Path) -> str:
    """Return what is said of a registry that is refused."""
    with pytest.raises(RegistryError) as refused:
        Registry.parse(text, SOURCE, directory)
    return _in_cells(str(refused.value))


def compiled_form(text: str, directory: Path) -> Document:
    """Return the document that a registry is compiled to."""
    return document_of(Registry.parse(text, SOURCE, directory))


def _errors(metric: Metric, n: int) -> dict[str, float]:
    mechanism = metric.mechanism
    errors = {
        "noise_floor": noise_floor(metric, n),
        "critical_share": critical_share(metric, metric.d, n),
        "detectable_share": detectable_share(metric, metric.d, n),
    }
    if isinstance(mechanism, PureMechanism):
        share: Any = SHARE
        errors["variance_among_reports"] = float(share_variance(mechanism, share, n, "reports"))
        errors["variance_of_population"] = float(share_variance(mechanism, share, n, "population"))
        lines: Any = significance_shares(mechanism, n)
        errors["critical_share_exactly"], errors["detectable_share_exactly"] = lines
    return errors


def _read(metric: Metric, answer: object) -> object:
    found = metric.read(answer)
    return found if isinstance(found, str) else list(metric.names(answer))


def _digits(number: Fraction) -> str:
    return str(DIGITS.divide(Decimal(number.numerator), Decimal(number.denominator)))


def _in_cells(sentence: str) -> str:
    return sentence.replace("cohort", "cell")


# Uploads. A group is {"metric", "reports"} and, of several cells, {"cell"}; of an older registry {"rev"}.


def upload_id(rng: random.Random) -> str:
    """Return an upload's id."""
    return new_upload_id(rng.getrandbits)


def draw(text: str, metric: str, answers: Sequence[Any], rng: random.Random, repeats: int = 1) -> list[Document]:
    """Randomize the answers of as many devices, each sent `repeats` times, and return the groups, one for each cell."""
    asked = Registry.parse(text).metrics[metric]
    mechanism, coins = asked.mechanism, Rng(rng.getrandbits)
    cells = asked.cells.lasting
    reports: dict[int, list[int | str]] = {}
    for answer in answers:
        cell = rng.randrange(cells) if cells else 0
        class_ = asked.class_of(asked.read(answer), cell, coins)
        if isinstance(mechanism, Memoized):
            memo = mechanism.permanent.randomize(class_, coins)
            drawn = [mechanism.repeat(memo, coins) for _ in range(repeats)]
        else:
            drawn = [mechanism.randomize(class_, coins) for _ in range(repeats)]
        reports.setdefault(cell, []).extend(map(mechanism.shape.to_wire, drawn))
    if not cells:
        return [{"metric": metric, "reports": listed} for listed in reports.values()]
    return [{"metric": metric, "cell": cell, "reports": listed} for cell, listed in sorted(reports.items())]


def devices_say(text: str, answers: Sequence[dict[str, Any]]) -> list[Document]:
    """Let a device record each of these answers by metric, and return what they upload."""
    asked = Registry.parse(text)
    uploads = []
    for seed, of_device in enumerate(answers):
        device = open_device(asked, None, Clock(), seed=seed)
        for metric, answer in of_device.items():
            assert device.record(asked.metrics[metric], answer) == ""
        body = send(device)
        assert body
        groups = [{name: value for name, value in group.items() if name != "plan"} for group in body["groups"]]
        uploads.append({"id_": body["upload"], "groups": groups})
    return uploads


# Replay.


class Aggregator:
    """An aggregator with a store of its own and a clock that is moved. Use as a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._clock = Clock()
        self._first = datetime.fromtimestamp(self._clock.now, UTC).date()
        self._plans: dict[tuple[str, int], Plan] = {}

    def __enter__(self) -> Self:
        self._store = SQLiteStore.open_or_create(self._directory, "pinned", self._clock)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.close()

    def load(self, text: str) -> None:
        """Load a registry; its plans are found by metric and rev."""
        registry = Registry.parse(text)
        self._store.load(registry)
        self._plans |= {(metric.name, metric.rev): metric.plan for metric in registry.metrics.values()}

    def resume(self, steps: Sequence[dict[str, Any]]) -> None:
        """Go on where these steps ended: take up the days that passed and the store's plans, and leave it alone."""
        for step in steps:
            if step["do"] == "travel":
                self.travel(**step["with"])
        self._plans = {(stored.plan.metric, stored.plan.rev): stored.plan for stored in self._store.plans()}

    def upload(self, id_: str, groups: Sequence[Document]) -> Document:
        """Take an upload as from a device, and return the answer to it."""
        body = encode_upload(id_, [self._wire(**group) for group in groups]).rstrip(b" ")
        # Padded as the writer of the files did: an upload that is sent again keeps its bytes.
        return self._take(id_, body.ljust(max(512, 1 << (len(body) - 1).bit_length())))

    def _wire(
        self, metric: str, reports: list[Any], cell: int | None = None, rev: int = 1, plan: str = ""
    ) -> tuple[str, str, list[Any], int | None]:
        known = self._plans.get((metric, rev))
        return metric, plan or (known.digest if known else "0" * 16), reports, cell

    def _take(self, id_: str, body: bytes) -> Document:
        try:
            (answer,) = self._store.append([(parse_upload(body, self._store.find_plan), body)])
        except Problem as problem:
            answer = problem
        return {"id": id_, **answer.to_document()} if isinstance(answer, Problem) else answer.to_document()

    def fold(self, fails_on: str = "") -> None:
        """Count what waits; reports that hold these packed bytes, in hex, cannot be counted."""
        with _uncountable(bytes.fromhex(fails_on)):
            for shard in range(self._store.shards):
                self._store.fold_all(shard)

    def travel(self, days: int) -> None:
        """Let days pass."""
        self._clock.travel(days)
        self._store.refresh()

    def maintain(self) -> None:
        """Close the days that are over, and record what is final."""
        for shard in range(self._store.shards):
            maintenance.maintain(self._store, shard)
        for metric in maintenance.unfinalized(self._store):
            maintenance.finalize(self._store, metric)

    def retire(self, metric: str, rev: int = 1) -> None:
        """Refuse the reports of a plan from now on."""
        self._store.retire(metric, rev)

    def quarantined(self) -> list[Document]:
        """Return what could not be counted, and why."""
        return [
            {"id": one.id, "day": self._day(one.epoch), "n": one.n, "reason": one.reason, "reports": one.reports.hex()}
            for one in self._store.quarantined()
        ]

    def replay(self, id_: str) -> bool:
        """Put a quarantined group back."""
        return self._store.replay(id_)

    def drop(self, id_: str) -> bool:
        """Give a quarantined group up."""
        return self._store.drop(id_)

    def ledger(self) -> list[Document]:
        """Return the rows of the ledger, by metric, rev and day."""
        revs = {plan.digest: plan.rev for plan in self._plans.values()}
        rows = [
            {
                "metric": row.metric,
                "rev": revs[row.plan],
                "day": self._day(date.fromisoformat(row.epoch)),
                **{name: getattr(row, name) for name in ("accepted", "folded", "pending", "quarantined", "dropped")},
            }
            for row in self._store.ledger()
        ]
        return sorted(rows, key=lambda row: (row["metric"], row["rev"], row["day"]))

    def read(self, metric: str, rev: int = 1, day: int = 0, candidates: Sequence[str] | None = None) -> Document:
        """Return a day's tally and its reading: as it is shown, and what else may be asked for."""
        plan = self._plans[metric, rev]
        stored, epoch = self._store.stored(plan), self._first + timedelta(days=day)
        listed = None if candidates is None else tuple(candidates)

        def reading(view: View) -> Document:
            return _reading_document(read(self._store, stored, epoch, replace(view, candidates=listed)).to_document())

        tally = self._store.tally(plan, epoch)
        document = {
            "cells": [row.tolist() for _, table, _ in tables(plan.cells, tally.counts) for row in table],
            **reading(View()),
        }
        if isinstance(plan.mechanism, PureMechanism) and tally.n:
            of_reports, simultaneous = reading(View("reports")), reading(View(simultaneous=True))
            document["reports"] = {name: of_reports["rows"].get(name) for name in ("std_error", "lower", "upper")}
            document["simultaneous"] = {name: simultaneous["rows"][name] for name in ("lower", "upper")}
            document["simultaneous"]["method"] = simultaneous["interval"]["method"]
            for method in METHODS if plan.mechanism.ticks == 1 else ():
                other = reading(View(normalised=method))
                document[method] = {"shares": other["rows"]["normalised"], **other["normalised"]}
        return document

    def import_google(self, metric: str) -> Document:
        """Import the directory's reports.csv twice, and return what became of them."""
        params = read_params(Path("params.csv"))
        plan = plan_for(Registry.load("metrics.toml"), metric, params)
        reports = [row for row in read_reports(Path("reports.csv"), params) if isinstance(row, Report)]
        return {name: vars(import_reports(reports, plan, _Wire(self._take))) for name in ("first", "again")}

    def _day(self, epoch: date) -> int:
        return (epoch - self._first).days


def _reading_document(document: Document) -> Document:
    """Return the API's document without digests, its rows as columns."""
    document = {name: value for name, value in document.items() if name not in ("plan", "snapshot", "epoch")}
    rows = document.pop("rows")
    assert all(row.pop("error_of") == document["error_of"] for row in rows)
    names = dict.fromkeys(name for row in rows for name in row)
    document["rows"] = {name: [row.get(name) for row in rows] for name in names}
    if "fit" in document:
        document["fit"]["sentences"] = list(map(_in_cells, document["fit"]["sentences"]))
    return document


@contextmanager
def _uncountable(poison: bytes) -> Iterator[None]:
    def fail(shape: ReportShape, reports: bytes) -> Counts:
        if poison and poison in reports:
            raise ValueError("poison")
        return fold(shape, reports)

    with patch("dither_aggregator.counting.fold", fail):
        yield


class _Wire:
    """A transport whose other end is a store."""

    def __init__(self, take: Callable[[str, bytes], Document]) -> None:
        self._take = take

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        stands()
        answer = self._take(upload_id, body)
        return Answer(Outcome.ACCEPTED, "accepted", len(answer["rejected"]), answer["duplicate"])

    def idle(self) -> None:
        """Nothing is kept open."""
