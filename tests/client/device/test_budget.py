from pathlib import Path

import pytest

from dither_shared.registry import Registry
from tests.support.clocks import DAY_S, Clock
from tests.support.devices import EXPIRES, begun, make, open_device, record, send
from tests.support.soaking import thinned


def test_a_waiting_report_counts_against_the_limit() -> None:
    """The answer of a second day must see the first one's charge, though it is made only then."""
    device, asked, clock = begun(reports=1)
    assert record(device, asked) == ""
    clock.travel(1)
    assert record(device, asked) == "spent"
    while send(device):
        pass
    assert device.spent() == {"color": 2_000_000}
    assert device.counters() == {"accepted": 1, "spent": 1}


def test_a_report_that_no_longer_fits_is_dropped_when_the_upload_is_built(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path, reports=3)
    for _ in range(2):
        record(device, asked)
        send(device)
        clock.travel(1)
    record(device, asked)
    device.close()
    device, asked = make(clock, tmp_path, reports=2)
    assert send(device) is None
    assert device.spent() == {"color": 4_000_000}
    assert device.counters() == {"accepted": 2, "spent": 1}


@pytest.mark.parametrize("answers", [False, True])
def test_a_dropped_report_whose_presence_is_hidden_is_counted_answered_or_not(tmp_path: Path, answers: bool) -> None:
    device, asked, clock = begun(tmp_path, reports=3, presence="hidden")
    for _ in range(3):
        device.look()
        if answers:
            assert record(device, asked) == ""
        clock.travel(1)
        if device.spent()["color"] < 4_000_000:
            send(device)
    device.close()
    device, asked = make(clock, tmp_path, reports=2, presence="hidden")
    send(device)
    assert device.spent()["color"] == 4_000_000
    assert device.counters() == {"accepted": 4, "spent": 2}


def test_an_upgrade_draws_only_as_many_periods_as_reports_are_left(tmp_path: Path) -> None:
    clock = Clock()
    clock.now -= 250 * DAY_S
    device, asked = make(clock, tmp_path, reports=4, epsilon="1")
    for _ in range(3):
        assert record(device, asked) == ""
        send(device)
        clock.travel(1)
    device.close()
    device, asked = make(clock, tmp_path, reports=4, epsilon="1", schedule="spread")
    outcomes = []
    for _ in range(345):
        outcomes.append(record(device, asked))
        send(device)
        clock.travel(1)
    assert outcomes.count("") == 1
    assert set(outcomes) <= {"", "unscheduled"}


def test_nothing_refreshes_a_budget(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path, reports=1)
    record(device, asked)
    send(device)
    device.close()
    clock.travel(1)
    device, asked = make(clock, tmp_path, reports=1, rev=2, period="7d", schedule="spread", values=("x", "y"))
    clock.travel(50)
    assert record(device, asked) in ("spent", "unscheduled")
    device.close()
    device, asked = make(clock, tmp_path, reports=1, rev=3)
    assert record(device, asked) == "spent"
    device.close()


@pytest.mark.parametrize("asks_again", [False, True])
def test_an_upgrade_to_fewer_reports_takes_nothing_back(asks_again: bool, tmp_path: Path) -> None:
    """Three reports are spent; then a registry has room for one, asked or only begun, and a later one for three."""
    clock = Clock()
    for reports in (3, 1, 3):
        device, asked = make(clock, tmp_path, reports=reports, epsilon="2")
        device.begin()
        for _ in range(4):
            if reports == 3 or asks_again:
                record(device, asked)
            send(device)
            clock.travel(1)
        assert device.spent() == {"color": 6_000_000, "dark": 0}
        assert device.counters()["accepted"] == 3
        device.close()


def test_the_device_epsilon_is_never_exceeded_whatever_the_registries_said(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path, reports=1, device_epsilon="4")
    record(device, asked)
    record(device, asked, "dark", True)
    send(device)
    device.close()
    clock.travel(1)
    device, asked = make(clock, tmp_path, reports=2, epsilon="1", device_epsilon="4")
    assert record(device, asked) == "spent"
    device.close()
    device, asked = make(clock, tmp_path, reports=3, epsilon="1", device_epsilon="6")
    assert record(device, asked) == ""
    send(device)
    assert sum(device.spent().values()) == 5_000_000
    device.close()


# Registries that change while a memo goes on: what leaves, and when, never depends on the answers.

_METRIC = """
[metric.{name}]
rev = {rev}
kind = "choice"
question = "What?"
values = ["a", "b", "c"]
epsilon = {epsilon}
{life}
presence = "public"
period = "1d"
owners = ["team@example.org"]
sensitivity = "low"
expires = {expires}
"""


def registry_of(device_epsilon: int, **metrics: str) -> Registry:
    """Return a registry of choices: "fresh 3" has three reports of 1, "memo 2 4" two answers of 4.

    "memo 2 1 .5" has two answers of 1, and reports of .5.
    """
    parts = [f"[registry]\napp = 'x'\ndevice_epsilon = {device_epsilon}\nquiet_days = 0"]
    for name, text in metrics.items():
        kind, number, permanent, epsilon, *_ = *text.split(), "", "1.0"
        life = f"reports = {number}\nschedule = 'early'"
        if kind == "memo":
            life = f"memoize = true\nanswers = {number}\nepsilon_permanent = {permanent}"
        parts.append(_METRIC.format(name=name, rev=1, epsilon=float(epsilon or 1), life=life, expires=EXPIRES))
    return Registry.parse("\n".join(parts))


Day = tuple[list[str], list[str]]
"""The reply to each metric's answer, and the metrics of the upload."""


def history(directory: Path, steps: list[tuple[Registry, str, bool]]) -> tuple[list[Day], dict[str, int]]:
    """Live through a day a step: a registry, the answer to all of its metrics, whether what waits is sent."""
    clock = Clock()
    log: list[Day] = []
    for number, (asked, answer, sent) in enumerate(steps):
        device = open_device(asked, directory, clock, seed=number)
        said = [device.record(metric, answer) for metric in asked.metrics.values()]
        body = send(device) if sent else None
        groups = body["groups"] if body else []
        log.append((said, sorted(group["metric"] for group in groups)))
        spent = device.spent()
        device.close()
        clock.travel(1)
    return log, spent


TWO, ONE, THREE = (registry_of(16, m=f"memo {number} 4") for number in (2, 1, 3))
CHANGES: dict[str, list[tuple[Registry, bool]]] = {
    "a metric leaves and another comes": [
        (registry_of(16, m="memo 2 4", old="fresh 8"), True),
        *[(registry_of(16, m="memo 2 4", new="fresh 8"), True)] * 3,
    ],
    "fewer answers while one waits": [(TWO, True), (TWO, False), (ONE, True), (ONE, True)],
    "the memo leaves": [(TWO, True), (TWO, True), *[(registry_of(8, new="fresh 4"), True)] * 2],
    "fewer answers, then fresh noise": [
        *[(TWO, True)] * 2,
        (ONE, True),
        *[(registry_of(16, m="fresh 9"), True)] * 3,
    ],
    "fresh noise while an answer waits": [(TWO, True), (TWO, False), *[(registry_of(16, m="fresh 5"), True)] * 2],
    "more answers than the device's epsilon bears": [
        (registry_of(16, m="memo 2 4", old="fresh 8"), True),
        *[(registry_of(16, m="memo 4 4"), True)] * 4,
    ],
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_no_silence_of_a_memo_depends_on_an_answer(change: str, tmp_path: Path) -> None:
    steps = CHANGES[change]
    logs = []
    for place, answers in enumerate(thinned(("aaaaaaaa", "abbbbbbb", "abcabcab", "aabbccaa"), 0, 2)):
        log, spent = history(
            tmp_path / str(place), [(asked, a, sent) for (asked, sent), a in zip(steps, answers, strict=False)]
        )
        logs.append(log)
        assert sum(spent.values()) <= 16_000_000
    assert all(log == logs[0] for log in logs)


def test_a_device_is_never_charged_less_than_it_sent(tmp_path: Path) -> None:
    """Three answers of 4, the third of which waits while the cap falls and then the values change."""
    values = registry_of(16, m="memo 1 4.5")
    steps = [(THREE, "a", True), (THREE, "b", True), (THREE, "c", False), (ONE, "c", False), (values, "c", True)]
    log, spent = history(tmp_path / "memo", steps)
    assert [sent for _, sent in log].count(["m"]) == 3
    assert spent["m"] == 12_000_000
    fresh, memo = registry_of(16, m="fresh 4"), registry_of(16, m="memo 1 4")
    log, spent = history(
        tmp_path / "fresh", [(fresh, "a", True), (fresh, "a", False), (memo, "a", False), (fresh, "a", True)]
    )
    assert [sent for _, sent in log].count(["m"]) == 2
    assert spent["m"] == 2_000_000


def test_all_metrics_together_never_exceed_the_devices_epsilon(tmp_path: Path) -> None:
    """Two metrics have begun; one leaves with all it reserved, and the other is refused when its report is built."""
    both, one = registry_of(8, m="fresh 4", n="fresh 4"), registry_of(4, n="fresh 4")
    log, spent = history(tmp_path, [(both, "a", True)] * 3 + [(one, "a", True)] * 3)
    assert spent == {"m": 3_000_000, "n": 3_000_000}
    assert [sent for _, sent in log[3:]] == [[], [], []]


BOTH, FRESH = registry_of(4, f="fresh 2", m="memo 2 1 .5"), registry_of(4, f="fresh 4")


def test_what_a_memo_that_left_has_reserved_is_not_spent_by_another_metric(tmp_path: Path) -> None:
    """The memo has charged one of its two answers, and may come back for the other: four reports of 1 do not fit."""
    log, spent = history(tmp_path, [(BOTH, "a", True), *[(FRESH, "a", True)] * 3, *[(BOTH, "b", True)] * 2])
    assert spent == {"f": 2_000_000, "m": 2_000_000}
    assert [sent for _, sent in log] == [["f", "m"], ["f"], [], [], ["m"], ["m"]]


def test_a_metric_that_does_not_fit_beside_what_a_memo_reserved_is_silent_from_the_start(tmp_path: Path) -> None:
    memo, new = registry_of(4, m="memo 2 1 .5"), registry_of(4, g="fresh 3")
    log, spent = history(tmp_path, [(memo, "a", True), *[(new, "a", True)] * 3])
    assert [said for said, _ in log[1:]] == [["spent"]] * 3
    assert spent["m"] == 1_000_000
    assert spent.get("g", 0) == 0


@pytest.mark.parametrize("sent", [False, True])
def test_a_fresh_metric_that_left_keeps_all_that_it_reserved(sent: bool, tmp_path: Path) -> None:
    """Also where nothing of it was charged yet: how much of it was would tell how many answers there were."""
    before, after = registry_of(4, f="fresh 2"), registry_of(4, g="fresh 3")
    log, spent = history(tmp_path, [(before, "a", sent), (after, "a", True)])
    assert log[1] == (["spent"], [] if sent else ["f"])
    assert spent["f"] == 1_000_000


def test_what_a_built_upload_reserves_counts_like_what_was_charged(tmp_path: Path) -> None:
    """And what was only reserved is free again when the person's refusal drops it: two reports are left."""
    device, asked, clock = begun(tmp_path, reports=2)
    words = []
    for _ in range(4):
        words.append(record(device, asked))
        device.next_upload()
        clock.travel(1)
    assert words == ["", "", "waiting", "waiting"]
    assert device.spent() == {"color": 0}
    device.refuse()
    device.agree(chosen=True)
    assert device.spent() == {"color": 0}
    for expected in ("", "", "spent"):
        assert record(device, asked) == expected
        send(device)
        clock.travel(1)
    assert device.spent() == {"color": 4_000_000}


def test_a_metric_that_reserves_less_makes_room_before_it_is_asked_again(tmp_path: Path) -> None:
    clock = Clock()
    before, after = registry_of(10, a="fresh 10"), registry_of(10, a="fresh 1", b="fresh 9")
    device = open_device(before, tmp_path, clock)
    assert device.record(before.metrics["a"], "a") == ""
    send(device)
    device.close()
    device = open_device(after, tmp_path, clock)
    device.begin()
    assert device.record(after.metrics["b"], "a") == ""
