"""The second device beside the real aggregator, the second reader beside real devices."""

import json
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Any

import pytest

from dither.cli import main
from dither.sending.transport import Outcome, read_answer
from dither_aggregator.simulate.fleet import Answers
from dither_shared.registry import Registry, utc_today
from tests.pinned.answers import ASKED
from tests.second import uploads
from tests.second.answers import NOTHING, value_of
from tests.second.coins import Coins
from tests.second.plans import Document, digest, draw_cell, integers_of, part_of
from tests.second.randomizers import Report, randomize, repeat
from tests.second.receipts import DROP, FORGET, HALVE, KEEP, STOP, Days, next_step, retired_groups, wait_s
from tests.second.sending import post
from tests.second.uploads import Group, read, write
from tests.second.vectors import load
from tests.support.aggregators import aggregator, serve
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, connect, open_device
from tests.support.keys import write_key
from tests.support.registries import registry_text as two_metrics
from tests.support.soaking import scaled
from tests.test_every_kind import DEVICES, check_estimates, draw_answers, registry_text

ID = "AAECAwQFBgcICQoLDA0ODw"
BATCH = 400
"""Reports of one metric in an upload: of all metrics fewer than 2,000."""


def plans_of(registry: Registry) -> dict[str, Document]:
    return {name: metric.plan.to_document() for name, metric in registry.metrics.items()}


def by_digest(registry: Registry) -> uploads.Plans:
    return {(name, digest(plan)): plan for name, plan in plans_of(registry).items()}


# The uploads of a real device.


@pytest.mark.parametrize(("text", "answers"), [asked[1:] for asked in ASKED], ids=[asked[0] for asked in ASKED])
def test_what_the_device_sends_is_read_and_written_again_byte_for_byte(text: str, answers: Sequence[Any]) -> None:
    registry, clock = Registry.parse(text), Clock()
    device = open_device(registry, None, clock)
    device.set_public(1)
    (metric,) = registry.metrics.values()
    sent = 0
    for answer in answers:
        device.record(metric, answer)
        clock.travel(1)
        upload = connect(device)
        if upload is None:  # its reports are used up
            continue
        sent += 1
        came = read(upload.body, by_digest(registry))
        assert not came.refused
        assert [group.plan["metric"] for group in came.groups] == [metric.name]
        assert write(upload.id, came.groups) == upload.body
        device.settle(upload.id, "accepted", "accepted")
    assert sent


def test_the_command_prints_plans_for_other_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.toml").write_text(two_metrics(), encoding="utf-8")
    assert main(["metrics", "check", str(tmp_path / "metrics.toml"), "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert [digest(metric["document"]) for metric in metrics] == [metric["plan"] for metric in metrics]
    assert [metric["document"]["metric"] for metric in metrics] == ["color", "dark"]


# The aggregator and a second device.


def reports_of(plan: Document, answers: Sequence[object], coins: Coins) -> Iterator[tuple[int, Report]]:
    """Yield the cell and the report of each answer, each of another device."""
    for answer in answers:
        cell = draw_cell(plan, coins, device=coins.bits(7))
        part = part_of(plan, cell)
        value = value_of(plan, cell, answer, coins, drawn=coins.bits(64))
        report = randomize(part["mechanism"], integers_of(part), value, coins)
        if "memo" in part:
            report = repeat(part["mechanism"], part["parameters"], part["memo"], report, coins)
        yield cell, report


def groups_of(plan: Document, answers: Sequence[object], coins: Coins) -> list[Group]:
    """Return the reports of some answers, a group a cell."""
    cells: dict[int, list[Report]] = defaultdict(list)
    for cell, report in reports_of(plan, answers, coins):
        cells[cell].append(report)
    return [Group(plan, cell, reports) for cell, reports in cells.items()]


def new_id(coins: Coins) -> str:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return "".join(alphabet[coins.uniform(64)] for _ in range(21)) + "AQgw"[coins.uniform(4)]


def send_all(url: str, key: str, registry: Registry, answers: Answers, coins: Coins) -> None:
    """Send the answers of all devices, in uploads of at most 50 groups."""
    for name, plan in plans_of(registry).items():
        for start in range(0, DEVICES, BATCH):
            groups = groups_of(plan, answers[name][start : start + BATCH], coins)
            for first in range(0, len(groups), 50):
                upload_id = new_id(coins)
                answer = post(url, key, write(upload_id, groups[first : first + 50]))
                assert next_step(answer.status, answer.content, upload_id) == FORGET, answer
                assert json.loads(answer.content)["rejected"] == []


OTHERS = [asked for asked in ASKED if asked[0].startswith("hidden") or "table" in asked[0]]
"""Kinds that the estimates below do not have."""


@pytest.mark.parametrize(("text", "answers"), [asked[1:] for asked in OTHERS], ids=[asked[0] for asked in OTHERS])
def test_the_aggregator_counts_the_second_devices_reports(tmp_path: Path, text: str, answers: Sequence[Any]) -> None:
    registry, clock, coins = Registry.parse(text), Clock(), Coins(random.Random(9).getrandbits)
    (plan,) = plans_of(registry).values()
    with aggregator(registry, tmp_path, clock) as (url, service):
        upload_id = new_id(coins)
        groups = groups_of(plan, [*answers, *([NOTHING] * (plan["presence"] == "hidden"))], coins)
        answer = post(url, write_key(service.store), write(upload_id, groups))
        assert next_step(answer.status, answer.content, upload_id) == FORGET
        (row,) = service.store.ledger()
    assert row.accepted == json.loads(answer.content)["accepted"] == sum(len(group.reports) for group in groups)


@pytest.mark.slow
def test_the_second_devices_reports_are_counted_and_their_estimates_hold_the_truth(tmp_path: Path) -> None:
    """Seeded: some 130 estimates, none 6 standard errors off."""
    registry = Registry.parse(registry_text())
    rng = random.Random(5)
    answers = draw_answers(registry, rng)
    with aggregator(registry, tmp_path) as (url, service):
        send_all(url, write_key(service.store), registry, answers, Coins(rng.getrandbits))
        check_estimates(registry, answers, url, service)


def expected(body: bytes, plans: uploads.Plans, *, zipped: bool = False) -> tuple[int, str, list[dict[str, object]]]:
    """Return the status, the problem and the refused groups that the second reader expects of an aggregator."""
    try:
        upload = read(body, plans, zipped=zipped)
    except uploads.Refused as refused:
        return (413 if str(refused) == "too-large" else 400), str(refused), []
    rejected: list[dict[str, object]] = [
        {"group": group, "reason": reason, "count": count} for group, reason, count in upload.refused
    ]
    return (202, "", rejected) if upload.groups else (422, "refused", rejected)


def test_a_real_server_answers_as_the_second_reader_expects(tmp_path: Path) -> None:
    """Every pinned upload, spoiled ones too, under an id of its own; in gzip as well."""
    text = two_metrics(expires=utc_today() + timedelta(days=30))
    (tmp_path / "metrics.toml").write_text(text, encoding="utf-8")
    plans, vectors, coins = by_digest(Registry.parse(text)), load("uploads"), Coins(random.Random(3).getrandbits)
    bodies = [vector["body"].encode("latin-1") for kind in ("valid", "spoiled") for vector in vectors[kind]]
    good = {"metric": "dark", "plan": "1650ccd588aabc39", "reports": [1]}
    for vector in vectors["spoiled groups"]:
        for groups in ([vector["group"], good], [vector["group"]]):
            bodies.append(json.dumps({"v": 1, "upload": ID, "groups": groups}).encode())
    with serve(tmp_path / "metrics.toml", tmp_path / "data") as served:
        for number, body in enumerate(bodies):
            body = body.replace(ID.encode(), new_id(coins).encode())
            zipped = number % 2 == 1
            sent = zlib.compress(body, wbits=31) + b"more" * (number == 1) if zipped else body
            answer = post(served.url, served.key, sent, "gzip" if zipped else "")
            document = json.loads(answer.content)
            problem = document.get("type", "").removeprefix("urn:dither:problem:")
            came = (answer.status, problem, document.get("rejected", []))
            assert came == expected(sent, plans, zipped=zipped), body[:200]
        first, other = (write(ID, [Group(plans["dark", str(good["plan"])], 0, [one])]) for one in (1, 0))
        answers = [
            post(served.url, key, body)
            for key, body in ((served.key, first), (served.key, first), (served.key, other), ("none", first))
        ]
    steps = [next_step(answer.status, answer.content, ID) for answer in answers]
    assert [json.loads(answer.content).get("duplicate") for answer in answers[:2]] == [False, True]
    assert steps == [FORGET, FORGET, DROP, STOP]


# The step of a device at each answer.

STEPS = {
    Outcome.ACCEPTED: FORGET,
    Outcome.DROPPED: DROP,
    Outcome.STOPPED: STOP,
    Outcome.TOO_LARGE: HALVE,
    Outcome.KEPT: KEEP,
}
REJECTED = [{"group": 0, "reason": "expired", "count": 1}, {"group": 2, "reason": "retired", "count": 1}]
CONTENTS: list[object] = [
    {"upload": ID, "rejected": REJECTED},
    {"upload": "B" * 22},
    {"type": "urn:dither:problem:retired"},
    {"type": "urn:dither:problem:refused", "rejected": REJECTED},
    {"type": "about:blank"},
    [],
    "<html>",
]


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: json.dumps(content)[:40])
def test_every_status_ends_an_attempt_as_it_does_on_a_real_device(content: object) -> None:
    written = b"<html>" if content == "<html>" else json.dumps(content).encode()
    for status in range(100, 600):
        first = read_answer(status, {}, written, ID)
        step = next_step(status, written, ID)
        assert (status, step) == (status, STEPS[first.outcome])
        if step in (FORGET, DROP):
            assert retired_groups(status, written, 50) == list(first.retired)


@pytest.mark.parametrize("value", ["", "0", "1", "60", "61", "3600", "100000", "soon", "-1", "\u0661"])
def test_a_device_waits_as_long_as_a_real_one(value: str) -> None:
    first = read_answer(503, {"Retry-After": value}, b"", ID)
    assert wait_s(value) == first.retry_after_s


# One report a day.


def lives_beside_a_real_device(seed: int) -> tuple[int, int]:
    """Let a real device answer, wait and send by chance; return how often it sent, and how often the second would not.

    Both say alike whether a report that waits may leave.
    """
    rng, clock, days, real_days = random.Random(seed), Clock(), Days(), Counter[int]()
    ahead_s = rng.choice([0, 0, 20, -40_000, 40_000, 5 * 86_400])
    asked = Registry.parse(two_metrics(reports=40, epsilon="0.25", device_epsilon="40", expires=EXPIRES))
    device, held, sent, first = open_device(asked, None, clock), 0, 0, inf
    for _ in range(300):
        device.record(asked.metrics["color"], "red")
        clock.travel(rng.choice([0.0003, 0.02, 0.3, 1, 1.7]))
        if clock.now > first + 6 * 86_400:  # it is given up
            days.ended(["color"], clock.now)
            first = inf
        waits, may_leave = device.waiting() > 0, days.may_leave("color", clock.now)
        upload = connect(device)
        assert (upload is not None) == (waits and may_leave)
        held += waits and not may_leave
        if upload is None:
            continue
        if rng.random() < 0.3:
            device.put_off(upload.id, "no answer", clock.now + 60)
            first = min(first, clock.now)
            continue
        first = inf
        clock.travel(rng.choice([0.00001, 0.0006]))
        sent += 1
        real_days[int((clock.now + ahead_s) // 86_400)] += 1
        days.receipt(clock.now, clock.now + ahead_s)
        days.ended(["color"], clock.now)
        device.settle(upload.id, "accepted", "accepted", date=clock.now + ahead_s)
    assert max(real_days.values()) == 1
    return sent, held


def test_the_second_device_lets_a_report_leave_when_a_real_one_does() -> None:
    sent, held = map(sum, zip(*map(lives_beside_a_real_device, range(scaled(4, 12))), strict=True))
    assert min(sent, held) > 30


@pytest.mark.parametrize("bug", ["ended", "receipt"])
def test_a_second_device_that_keeps_no_day_or_date_is_seen(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    monkeypatch.setattr(Days, bug, lambda *_: None)
    with pytest.raises(AssertionError):
        list(map(lives_beside_a_real_device, range(12)))


# Spoiled second devices are seen.


def test_another_padding_is_seen_beside_a_real_device() -> None:
    registry, clock = Registry.parse(ASKED[0][1]), Clock()
    device = open_device(registry, None, clock)
    device.record(registry.metrics["asked"], True)
    upload = connect(device)
    assert upload
    came = read(upload.body, by_digest(registry))
    for padded in (write(upload.id, came.groups).rstrip(b" "), write(upload.id, came.groups).replace(b" ", b"\n")):
        assert read(padded, by_digest(registry)) == came
        assert padded != upload.body


def test_an_aggregator_takes_nothing_under_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry.parse(two_metrics())
    dark = plans_of(registry)["dark"]
    with aggregator(registry, tmp_path) as (url, service):
        key = write_key(service.store)
        monkeypatch.setattr(uploads, "digest", lambda plan: digest({**plan, "rev": 2}))
        answer = post(url, key, write(ID, [Group(dark, 0, [1])]))
        assert (answer.status, json.loads(answer.content)["rejected"][0]["reason"]) == (422, "unknown-plan")
        assert service.store.ledger() == []
