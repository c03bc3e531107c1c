"""The second reader refuses what the first refuses, for the same reasons, of uploads that are spoiled in every way."""

import random
from collections import Counter

import pytest

from dither_shared.plan import Plan
from dither_shared.wire.reading import GroupRefused, Problem, inflate, parse_upload
from tests.fuzz import hostile
from tests.second import uploads
from tests.second.plans import digest
from tests.second.uploads import Refused, read
from tests.second.vectors import PLANS
from tests.support.soaking import scaled

FIRST = {named: Plan.from_document(document) for named, document in PLANS.items()}
METRICS = {metric for metric, _ in FIRST}
ROUNDS = scaled(20, 100)
Verdict = str | tuple[str, list[tuple[str, int, int]], list[tuple[int, str, int]]]


def find_plan(metric: str, named: str) -> Plan:
    if (metric, named) not in FIRST:
        raise GroupRefused("unknown-plan" if metric in METRICS else "unknown-metric")
    return FIRST[metric, named]


def first_verdict(body: bytes, *, zipped: bool) -> Verdict:
    """Return the problem, or the id, each group's digest, cell and size, and the refused groups."""
    try:
        upload = parse_upload(inflate(body) if zipped else body, find_plan)
    except Problem as problem:
        return problem.slug
    groups = [(group.plan.digest, group.cell, group.count) for group in upload.groups]
    return upload.id, groups, [(refusal.group, refusal.reason, refusal.count) for refusal in upload.refused]


def second_verdict(body: bytes, *, zipped: bool) -> Verdict:
    try:
        upload = read(body, PLANS, zipped=zipped)
    except Refused as refused:
        return str(refused)
    groups = [(digest(group.plan), group.cell, len(group.reports)) for group in upload.groups]
    return upload.id, groups, upload.refused


def differing(rounds: int) -> tuple[list[bytes], Counter[str]]:
    """Return the bodies on which the two differ, and how often the first said what."""
    rng, plans = random.Random(7), [plan for plan in FIRST.values() if len(plan.cells.parts) == 1]
    wrong, verdicts = [], Counter[str]()
    for damage in hostile.damages(plans) * rounds:
        headers, body = damage(rng, hostile.draw_document(rng, plans))
        zipped = headers.get("Content-Encoding", "").lower() == "gzip"
        if len(body) > uploads.WIRE_BYTES_MAX:  # the first is never given such a body
            assert second_verdict(body, zipped=zipped) == "too-large"
            continue
        found = first_verdict(body, zipped=zipped)
        verdicts.update([found] if isinstance(found, str) else [reason for _, reason, _ in found[2]])
        if second_verdict(body, zipped=zipped) != found:
            wrong.append(body)
    return wrong, verdicts


def test_hostile_uploads_have_the_same_verdicts() -> None:
    wrong, verdicts = differing(ROUNDS)
    assert [body[:300] for body in wrong] == []
    assert verdicts.keys() >= {"malformed", "too-large", "bad-report", "unknown-plan", "unknown-metric"}


@pytest.mark.parametrize(
    ("name", "other"),
    [("cells_of", lambda plan: 1), ("_is", lambda value, pattern: isinstance(value, str))],
    ids=["cells", "names"],
)
def test_a_reader_that_skips_a_rule_is_seen(monkeypatch: pytest.MonkeyPatch, name: str, other: object) -> None:
    monkeypatch.setattr(uploads, name, other)
    assert differing(3)[0]
