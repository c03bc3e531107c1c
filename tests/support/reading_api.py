"""The reading API of two stores, and whether what it answers is as it describes itself."""

import io
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from jsonschema_rs import Draft202012Validator  # the dialect of OpenAPI 3.1; others take seconds to import

from dither_aggregator.analysis.numbers import NumberRow
from dither_aggregator.analysis.rows import Row
from dither_aggregator.web.problems import CONTENT_TYPE
from tests.support.sites import Site, site, zipf
from tests.support.soaking import scaled

ROOT = Path(__file__).parents[2]
D, N = 30, 20_000
ADDRESS = "/v1/metrics/color/estimates"


@contextmanager
def listed(directory: Path) -> Iterator[Site]:
    """A list of 30 values, Zipf, and a flag: yesterday's reports, and some of today's."""
    rng = np.random.default_rng(1)
    with site(directory, D, 'mechanism = "oue"') as made:
        for days_ago, n in ((1, N), (0, 500)):
            made.put(rng.multinomial(n, zipf(D)).astype(np.int64), rng, days_ago=days_ago)
            made.put(np.array([7 * n // 10, 3 * n // 10]), rng, days_ago, plan=made.store.plans("dark")[0].plan)
        yield made


@contextmanager
def every_error() -> Iterator[None]:
    """Let answers state the errors of uneven intervals, too: pages round by them."""
    with ExitStack() as stack:
        for row in (Row, NumberRow):
            stack.enter_context(patch.object(row, "told_error", property(attrgetter("std_error"))))
        yield


def ask(one: Site, query: str = "", address: str = ADDRESS) -> dict[str, Any]:
    answer = one.client.get(f"{address}?{query}")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.get_json()
    assert list(document) == ["meta", "rows"]
    return document


def refused(one: Site, query: str, address: str = ADDRESS) -> str:
    answer = one.client.get(f"{address}?{query}")
    assert (answer.status_code, answer.content_type) == (400, CONTENT_TYPE), answer.text
    detail: str = answer.get_json()["detail"]
    return detail


def faults(described: dict[str, Any], path: str, method: str, answer: Any) -> list[str]:
    """Return where a JSON answer is not as described."""
    content = described["paths"][path][method]["responses"]["200"]["content"]
    return violations(described, content["application/json"]["schema"], answer)


def violations(described: dict[str, Any], schema: dict[str, Any], said: Any) -> list[str]:
    """Return where a part of an answer is not as its schema says."""
    validator = Draft202012Validator({**schema, "components": described["components"]})
    return [error.message for error in validator.iter_errors(said)]


BOUNDED = settings(
    max_examples=scaled(3, 25),
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def check_answers(one: Site, described: dict[str, Any], operation: Any, metric: str = "color") -> list[int]:
    """Ask what the description allows, some times from a fixed seed; return the statuses of the answers that held."""
    statuses: list[int] = []

    @BOUNDED
    @given(operation_of(described, operation).as_strategy())
    def ask_it(case: Any) -> None:
        if "metric" in case.path_parameters:
            case.path_parameters["metric"] = metric
        for rarely_right in ("plan", "values", "fields"):
            case.query.pop(rarely_right, None)
        response = case.call(base_url="http://localhost", app=one.client.application)
        check_answer(case, response)
        statuses.append(response.status_code)

    ask_it()
    return statuses


def operation_of(described: dict[str, Any], operation: Any) -> Any:
    """Return an operation as its description has it: Schemathesis draws cases of it."""
    import schemathesis  # it takes a second to import, which processes that run other files would wait for

    path = "/v1" + re.sub("<(.*?)>", r"{\1}", operation.address)
    return schemathesis.openapi.from_dict(described)[path][operation.method]


def check_answer(case: Any, response: Any) -> None:
    """Hold an answer against the description of what it answers."""
    from schemathesis import checks
    from schemathesis.specs.openapi import checks as openapi_checks

    held = [
        checks.not_a_server_error,
        openapi_checks.status_code_conformance,
        openapi_checks.content_type_conformance,
        openapi_checks.response_schema_conformance,
    ]
    case.validate_response(response, checks=held)


def parquet(content: bytes) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows of a file, days as JSON writes them, and what is said of all."""
    import pyarrow.parquet  # it takes a second

    table = pyarrow.parquet.read_table(io.BytesIO(content))
    rows = [
        {name: getattr(cell, "isoformat", lambda cell=cell: cell)() for name, cell in row.items()}
        for row in table.to_pylist()
    ]
    return rows, json.loads(table.schema.metadata[b"dither"])
