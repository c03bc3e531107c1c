"""Texts: which of some candidates were said, by how many, and how much of what was said they leave."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from statistics import NormalDist, median
from typing import cast

import numpy as np
from scipy.special import ndtr

from dither_aggregator.analysis.decoding.candidates import decode_candidates
from dither_aggregator.analysis.reading import BadView, Estimand, Reading, View
from dither_aggregator.analysis.standing import BINS, Standing, bin_estimates, rank
from dither_aggregator.counting.folding import tables
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.mechanisms import RAPPOR
from dither_shared.plan import Plan

_OF_VALUES = frozenset({"error_of", "intervals", "normalised"})


@dataclass(frozen=True)
class TextRow:
    """One candidate: shares of the n reports, not percent."""

    value: str
    estimate: float
    std_error: float
    lower: float
    upper: float
    proportion: float
    """The share of the constrained fit, 0 where it was not selected."""
    significant: bool | None
    significant_holm: bool | None
    group: str
    """"", or the candidate whose bits are the same in every cohort, so that the two cannot be told apart."""


@dataclass(frozen=True)
class TextsReading(Reading):
    """The estimated share of each candidate, in the given order."""

    rows: Sequence[TextRow] = ()
    fit: dict[str, object] | None = None
    """How well the candidates explain the reports, and what they leave."""

    def standing(self) -> Standing | None:
        """Return the candidates that are there, with intervals that hold although they were found.

        With R of S candidates found, intervals of level 1 - alpha R / S miss at most alpha of those shown, in the mean
        (false coverage rate, Benjamini and Yekutieli 2005). Candidates that cannot be told apart stand out as one.
        """
        if not self.rows:
            return None
        found = [row for row in self.rows if row.significant and not row.group]
        alpha = (1 - self.view.confidence) * max(len(found), 1) / len(self.rows)
        z = -NormalDist().inv_cdf(alpha / 2)
        wider = [
            replace(row, lower=row.estimate - z * row.std_error, upper=row.estimate + z * row.std_error)
            for row in self.rows
        ]
        names = {row.value for row in found}
        crowd = [row for row in wider if row.value not in names]
        head = rank([row for row in wider if row.value in names], crowd)
        scores = np.array([row.estimate / row.std_error for row in crowd])
        edges = np.linspace(min(-4.0, *scores, 0.0), max(4.0, *scores, 0.0), BINS + 1)
        return Standing(head, (), crowd, bin_estimates(scores, edges, ndtr) if crowd else (), scores=True)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, with verdicts where candidates were looked for."""
        own = ("proportion", "significant", "significant_holm", "group") if self.fit is not None else ()
        return ("value", "estimate", "std_error", "lower", "upper", *own)

    @property
    def sentences(self) -> Sequence[str]:
        """The fit's sentences about the list as a whole."""
        return cast("Sequence[str]", (self.fit or {}).get("sentences", ()))

    @property
    def nothing_to_show(self) -> str:
        """Say how texts are looked for."""
        return "No text is looked for: list candidates in the registry, or POST them to the estimates of this metric."

    def own_document(self) -> dict[str, object]:
        """Return the fit."""
        nothing: dict[str, object] = {"critical_share": None, "detectable_share": None}
        return nothing if self.fit is None else {**nothing, "fit": self.fit}


class Texts(Estimand):
    """Candidates among texts."""

    name = "texts"

    def check(self, plan: Plan, view: View, asked: frozenset[str]) -> None:
        """Refuse what is for listed values."""
        if asked & _OF_VALUES:
            raise BadView("error_of, intervals and normalised are for metrics whose values are listed")

    def read(
        self, stored: StoredPlan, epoch: date, tally: Tally, view: View, *, provisional: bool, snapshot: str | None
    ) -> TextsReading:
        """Estimate the share of every candidate, by default those of the registry."""
        candidates = view.candidates or ()
        if tally.n == 0 or not candidates:
            return TextsReading(stored, epoch, provisional, tally.n, view, snapshot, None, None)
        ((_, table, _),) = tables(stored.plan.cells, tally.counts)
        decoded = decode_candidates(cast("RAPPOR", stored.plan.mechanism), table, candidates)
        rows = tuple(TextRow(**vars(row)) for row in decoded.rows)
        if provisional:
            rows = tuple(replace(row, significant=None, significant_holm=None) for row in rows)
        fit = decoded.summary()
        del fit["seconds"]  # of whichever request was the first
        view = replace(view, error_of="population")
        floor = _floor_of(rows)
        return TextsReading(stored, epoch, provisional, tally.n, view, snapshot, floor, "wald", rows=rows, fit=fit)


def _floor_of(rows: tuple[TextRow, ...]) -> float:
    """Return the usual standard error of a rare candidate: how much others take of it differs from list to list."""
    middle = median(row.estimate for row in rows)
    return median(row.std_error for row in rows if row.estimate <= middle)
