"""Registries of tables for the tests."""

from decimal import Decimal
from itertools import product

from dither_shared.domains import Columns, Range
from dither_shared.kinds import Answer
from dither_shared.registry import Metric, Registry
from dither_shared.rng import SCALE
from tests.support.numbers import numbers_text


def tables(columns: str, public: str = "", /, **keys: object) -> Registry:
    """Return a registry with one table, `asked`, of these columns in TOML; `public` is the registry's public column."""
    life: dict[str, object] = {"kind": "table", "unit": None, "reports": 3, "schedule": "early"}
    text = numbers_text(asked={**life, "columns": f"= {{ {columns} }}", **keys})
    return Registry.parse(text.replace("quiet_days = 0", f"quiet_days = 0\n{public and f'public = {{ {public} }}'}"))


def table(columns: str, public: str = "", /, **keys: object) -> Metric:
    """Return that table."""
    return tables(columns, public, **keys).metrics["asked"]


def domain_of(metric: Metric) -> Columns:
    """Return the columns of a table."""
    domain = metric.asked.domain
    assert isinstance(domain, Columns)
    return domain


def answers_of(metric: Metric) -> list[Answer]:
    """Return everything that an answer can be read as, "none" included; of numbers that are rounded three parts."""
    domain = domain_of(metric)
    places = [
        (0, SCALE // 3, SCALE, SCALE + 1) if isinstance(each, Range) else range(len(domain.labels(column)))
        for column, each in enumerate(domain.domains)
    ]
    return [*product(*places), *([()] if metric.hidden else [])]


LIGHT = 'a = ["x"], b = ["u", "v"]'
"""Two columns of 2 and 3 symbols."""
EPSILONS = (Decimal("0.5"), Decimal(1), Decimal(4))
