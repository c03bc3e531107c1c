"""The registries of one app, edition after edition: every shape of a report, and plans that come, change and go."""

import json
from datetime import date, timedelta
from decimal import Decimal

from dither_shared.exact import from_micro
from dither_shared.mechanisms import RAPPOR
from dither_shared.registry import Registry

APP = "orderings"
_TEXT = RAPPOR.of_probabilities(16, 2, *(Decimal(one) for one in ("0.5", "0.5", "0.75")))  # type: ignore[arg-type]


def _choice(mechanism: str, values: int, epsilon: int) -> str:
    listed = json.dumps([f"v{number}" for number in range(values - 1)])
    return f'kind = "choice"\nreports = 1\nepsilon = {epsilon}\nmechanism = "{mechanism}"\nvalues = {listed}'


def _choices(values: int) -> str:
    listed = json.dumps([f"v{number}" for number in range(values - 1)])
    return f'kind = "choices"\nreports = 1\nepsilon = 2\nticks_max = 2\nvalues = {listed}'


METRICS = {
    "flag": 'kind = "flag"\nreports = 1\nepsilon = 2',
    "symbol": _choice("grr", 300, 2),  # two bytes a report
    "bits": _choice("oue", 11, 1),
    "subset": _choice("ss", 13, 2),  # as a bit string
    "listed": _choice("ss", 40, 3),  # as its members
    "ticks": _choices(9),
    "text": 'kind = "text"\nparameters = {k = 16, h = 2, m = 4, f = 0.5, p = 0.5, q = 0.75}\nmemoize = true\n'
    f"answers = 1\nepsilon = {from_micro(_TEXT.charge)}\nepsilon_permanent = {from_micro(_TEXT.permanent.charge)}",
}


def registry_of(metrics: dict[str, str], expires: dict[str, date], revs: dict[str, int] | None = None) -> Registry:
    """Return a registry of these metrics, each given by its lines."""
    tables = [
        f"[metric.{name}]\n{lines}\nrev = {(revs or {}).get(name, 1)}\nexpires = {expires[name]}\n"
        'question = "What?"\npresence = "public"\nperiod = "1d"\nowners = ["team@example.org"]\nsensitivity = "low"\n'
        + ("" if "memoize" in lines else 'schedule = "early"\n')
        for name, lines in metrics.items()
    ]
    return Registry.parse(f'[registry]\napp = "{APP}"\ndevice_epsilon = 100\nquiet_days = 0\n' + "\n".join(tables))


def editions(first_day: date) -> list[Registry]:
    """Return the first registry, one with a changed metric, a new one and one that left, and the first, prolonged.

    Two metrics of the first expire within days.
    """
    expires = dict.fromkeys((*METRICS, "late"), first_day + timedelta(days=300))
    soon = {"subset": first_day + timedelta(days=1), "ticks": first_day + timedelta(days=9)}
    changed = {**METRICS, "bits": _choice("oue", 5, 1), "late": _choice("pgr", 13, 2)}
    del changed["flag"]
    return [
        registry_of(METRICS, expires | soon),
        registry_of(changed, expires | soon, {"bits": 2}),
        registry_of(METRICS, expires),
    ]


def contradiction(first_day: date) -> Registry:
    """Return a registry that no store may take beside the first one: rev 1 with another meaning."""
    return registry_of({"bits": _choice("oue", 6, 1)}, {"bits": first_day + timedelta(days=300)})
