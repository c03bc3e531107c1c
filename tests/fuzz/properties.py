"""The properties of every body, whoever made it."""

import json
from collections.abc import Callable
from typing import Any

from dither_aggregator.web import endpoints
from dither_shared.shapes import BadReport, ReportShape
from dither_shared.wire import WireGroup, encode_upload
from dither_shared.wire.reading import Group, Problem, Upload, inflate, parse_upload
from tests.benchmarks.naive import one_by_one
from tests.fuzz import model
from tests.support.registries import registry

Parse = Callable[[bytes, model.FindPlan], Upload]

MANY = tuple(f"v{number}" for number in range(600))
REGISTRIES = [
    registry(),
    registry(values=MANY[:300], color='mechanism = "grr"'),  # two bytes a symbol
    registry(values=MANY[:127], epsilon="1"),  # a point
    registry(values=MANY[:40], color='mechanism = "oue"'),
    registry(values=MANY[:127], color='mechanism = "oue"'),
    registry(values=MANY[:15], epsilon="1"),  # a subset as bits
    registry(values=MANY[:40], epsilon="1"),
    registry(values=MANY[:127], epsilon="4"),  # a subset by its members
    registry(values=MANY[:600], epsilon="5", color='mechanism = "ss"'),  # by members of two bytes
    registry(kind="choices", color="ticks_max = 3"),
    registry(kind="text", epsilon="1", epsilon_permanent="4", color="candidates_expected = 3\nmechanism = 'rappor'"),
    registry(kind="text", epsilon="1", epsilon_permanent="4"),
]
"""A plan at least of every shape."""


def outcome(body: bytes, find_plan: model.FindPlan, parse: Parse = parse_upload) -> Upload | str:
    """Return the upload, or the end of the problem's type; anything else that is raised is a fault."""
    try:
        return parse(body, find_plan)
    except Problem as caught:
        problem = caught
    assert 400 <= problem.status < 500
    json.dumps(problem.to_document()).encode("ascii")
    return problem.slug


def check_upload(
    body: bytes, find_plan: model.FindPlan, parse: Parse = parse_upload, fast: Parse = endpoints.parse_upload
) -> Upload | str:
    """Read an inflated body in all our ways, and assert that they agree."""
    found = outcome(body, find_plan, parse)
    with one_by_one():
        assert outcome(body, find_plan) == found
    assert outcome(body, find_plan, fast) == found
    reading = modelled(body, find_plan)
    if isinstance(found, str):
        assert found == reading
        return found
    groups = [(group.plan.metric, group.plan.digest, group.cell, group.reports) for group in found.groups]
    refusals = [(refusal.group, refusal.reason, refusal.count) for refusal in found.refused]
    assert model.Reading(found.id, groups, refusals) == reading
    accepted = [group.count for group in found.groups]
    widths = [group.plan.cells.mechanism_of(group.cell).shape.width for group in found.groups]
    assert accepted == [len(group.reports) // width for group, width in zip(found.groups, widths, strict=True)]
    said = json.loads(body)["groups"]
    assert sum(accepted) + sum(refusal.count for refusal in found.refused) == sum(map(model.count, said))
    assert len(found.groups) + len(found.refused) == len(said)
    check_again(found, find_plan, parse)
    return found


def modelled(body: bytes, find_plan: model.FindPlan) -> model.Reading | str:
    """Return what the model says: a reading, or the end of the problem's type."""
    try:
        return model.read(body, find_plan)
    except model.Refused as refused:
        return str(refused)


def check_inflated(body: bytes) -> bytes | str:
    """Inflate a body in both our ways, and assert that they agree."""
    try:
        expected: bytes | str = model.inflate(body)
    except model.Refused as refused:
        expected = str(refused)
    try:
        found: bytes | str = inflate(body)
    except Problem as problem:
        found = problem.slug
    assert found == expected
    return found


def check_again(upload: Upload, find_plan: model.FindPlan, parse: Parse) -> None:
    """Write an upload's groups and assert that the same are read."""
    if upload.groups:
        again = parse(encode_upload(upload.id, map(write, upload.groups)), find_plan)
        by_plan = sorted(upload.groups, key=lambda group: (group.plan.metric, group.plan.digest))
        assert (again.id, again.groups, again.refused) == (upload.id, tuple(by_plan), ())


def write(group: Group) -> WireGroup:
    """Return a group as a device writes it."""
    shape = group.plan.cells.mechanism_of(group.cell).shape
    rows = [group.reports[at : at + shape.width] for at in range(0, len(group.reports), shape.width)]
    reports = [shape.to_wire(int.from_bytes(row, "little")) for row in rows]
    return group.plan.metric, group.plan.digest, reports, group.cell if group.plan.cells.several else None


def check_column(shape: ReportShape, values: list[Any]) -> bytes | None:
    """Read a column at once, one by one, and as the model does; return the packed reports, or None if one is none."""
    expected = model_of_column(shape, values)
    check_column_is(expected, shape, values)
    return expected


def model_of_column(shape: ReportShape, values: list[Any]) -> bytes | None:
    """Return the packed reports that the model reads, or None if one is none."""
    reports = model.read_one_by_one(shape, values)
    return None if reports is None else b"".join(reports)


def check_column_is(expected: bytes | None, shape: ReportShape, values: list[Any]) -> None:
    """Read a column at once and one by one, and assert that both are what is expected."""
    assert column(shape.read_column, values) == expected
    assert column(lambda values: ReportShape.read_column(shape, values), values) == expected


def column(read: Callable[[list[Any]], bytes], values: list[Any]) -> bytes | None:
    """Return packed reports, or None if one is none."""
    try:
        return read(values)
    except BadReport:
        return None
