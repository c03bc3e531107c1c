"""The findings of `dither metrics diff`, and devices that then do what it says."""

import io
import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest

from dither.cli import main
from dither.commands.metrics.diff import Remark, compare
from dither_shared.mechanisms import RAPPOR
from dither_shared.registry import Registry
from tests.support.aggregators import dither
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, open_device, send
from tests.support.registries import metrics_text

LIFE = {"reports": 3}
MEMO = {"memoize": True, "epsilon_permanent": 4, "answers": 2, "reports": None}
FRESH: dict[str, object] = {**dict.fromkeys(MEMO), "reports": 4}
COLOR: dict[str, object] = {
    "rev": 4,
    "kind": "choice",
    "question": "Which colour do people choose?",
    "values": ["red", "green", "blue"],
    "epsilon": 2,
    "schedule": "early",
    "presence": "public",
    "period": "1d",
    "owners": ["team@example.org"],
    "sensitivity": "low",
    "expires": EXPIRES,
    **LIFE,
}
SITE = COLOR | MEMO | {"kind": "text", "values": None, "epsilon": 1, "candidates": ["a.org", "b.org"]}
TOOLS = COLOR | {"kind": "choices", "ticks_max": 2}
CRASH = COLOR | {"kind": "table", "values": None, "columns": {"crashed": ["no", "yes"], "version": ["1", "2"]}}
DELAY = COLOR | {"kind": "number", "values": None, "unit": "s", "low": 0, "high": 10, "buckets": 4}


def columns(**changes: object) -> dict[str, object]:
    """Return the columns of CRASH with some changed; one that is None is left out."""
    every: dict[str, object] = {"crashed": ["no", "yes"], "version": ["1", "2"], **changes}
    return {"columns": {name: asked for name, asked in every.items() if asked is not None}}


AGE = {"edges": [20, 40], "unit": "years"}


def asked(device_epsilon: float = 40, **metrics: Mapping[str, object]) -> Registry:
    return Registry.parse(metrics_text(metrics, device_epsilon=device_epsilon))


def of_kind(remarks: list[Remark], what: str) -> list[Remark]:
    return [remark for remark in remarks if remark.what == what]


def found(old: Registry, new: Registry) -> list[tuple[str | None, str]]:
    return [(remark.metric, remark.what) for remark in compare(old, new) if remark.finding]


def test_a_registry_and_itself_do_not_differ() -> None:
    every = asked(color=COLOR, site=SITE, tools=TOOLS, crash=CRASH)
    assert compare(every, every) == []


MEANINGS = [
    (COLOR, {"question": "Which colour do people like?"}, "the question changes"),
    (COLOR, {"values": ["red", "green", "blue", "plum", "grün"]}, 'values added: "plum", "grün"'),
    (COLOR, {"values": ["red", *"abcde"]}, 'values added: "a", "b", "c" and 2 more; values removed: "green", "blue"'),
    (COLOR, {"values": ["green", "red", "blue"]}, "values in another order"),
    (COLOR, {"presence": "hidden"}, 'presence changes from public to hidden; values added: "none"'),
    (COLOR, {"epsilon": 1.5}, "epsilon changes from 2 to 1.5"),
    (COLOR, {"mechanism": "oue"}, "mechanism changes from grr to oue"),
    (COLOR, {"kind": "choices", "ticks_max": 2}, "kind changes from choice to choices"),
    (COLOR, {"kind": "flag", "values": None}, 'kind changes from choice to flag; values added: "no", "yes"'),
    (TOOLS, {"ticks_max": 3}, "ticks changes from 2 to 3"),
    (COLOR | MEMO, {"epsilon_permanent": 3}, "epsilon_permanent changes from 4 to 3"),
    (SITE | {"mechanism": "rappor"}, {"candidates_expected": 5}, "k changes from"),
    (SITE, {"candidates_expected": 5}, "mechanism changes from rappor to pgr"),
    (DELAY, {"high": 11}, "what is told apart changes from 6 ranges of 0 to 10 s to 6 ranges of 0 to 11 s"),
    (DELAY, {"unit": "ms"}, "what is told apart changes from 6 ranges of 0 to 10 s to 6 ranges of 0 to 10 ms"),
    (DELAY | {"low": 1}, {"scale": "log"}, "what is told apart changes"),
    (DELAY, {"buckets": 5}, "what is told apart changes from 6 ranges of 0 to 10 s to 7 ranges of 0 to 10 s"),
    (DELAY, {"buckets": None, "asks": ["mean"]}, "mechanism changes from window and grr to window; number of cells"),
    (DELAY | MEMO | {"answers": 2}, {"buckets": 8}, "number of cells changes from 4 to 8; what is told apart"),
    (
        CRASH,
        columns(version=["1", "2", "3"]),
        "what is told apart changes from 2 columns of 9 cells asked at once to 2 columns of 12 cells asked at once; "
        'version: values added: "3"',
    ),
    (CRASH, columns(version=["1", "3"]), 'version: values added: "3"; version: values removed: "2"'),
    (CRASH, columns(version=["2", "1"]), "version: values in another order"),
    (CRASH, {"columns": {"version": ["1", "2"], "crashed": ["no", "yes"]}}, "columns in another order"),
    (CRASH, columns(version=None, rev=["1", "2"]), 'columns added: "rev"; columns removed: "version"'),
    (CRASH | columns(age=AGE), columns(age=AGE | {"edges": [20, 50]}), "age: what is told apart changes from 3 ranges"),
    (CRASH | columns(age=AGE), columns(age=["1", "2", "3"]), "age: what is told apart changes from 3 ranges of 20 to"),
    (CRASH, {"presence": "hidden"}, "presence changes from public to hidden"),
]


@pytest.mark.parametrize(("before", "change", "said"), MEANINGS, ids=[said for _, _, said in MEANINGS])
def test_another_meaning_needs_another_rev(before: dict[str, object], change: dict[str, object], said: str) -> None:
    old, new, next_rev = (asked(color=keys) for keys in (before, before | change, before | change | {"rev": 5}))
    (remark,) = of_kind(compare(old, new), "meaning")
    assert remark.finding
    assert remark.detail.startswith(said)
    assert remark.detail.endswith("; under the same rev: give it rev 5")
    assert of_kind(compare(old, next_rev), "meaning") == []
    (note,) = of_kind(compare(old, next_rev), "rev")
    assert (note.finding, note.detail.startswith("rev 5 starts a series that does not join that of rev 4: ")) == (
        False,
        True,
    )
    assert said in note.detail


def test_integers_that_no_number_shows_are_another_meaning_too() -> None:
    """p and q turn into 1 - q and 1 - p: all sizes and epsilons stay."""
    sizes = {"k": 16, "h": 2, "m": 64, "f": 0.5}
    mechanism = RAPPOR.of_probabilities(16, 2, Fraction(1, 2), Fraction(1, 5), Fraction(7, 10))
    epsilons = {"epsilon": mechanism.charge / 1e6, "epsilon_permanent": mechanism.permanent.charge / 1e6}
    old, new = (
        asked(site=SITE | epsilons | {"parameters": sizes | {"p": p, "q": q}}) for p, q in ((0.2, 0.7), (0.3, 0.8))
    )
    (remark,) = compare(old, new)
    assert remark == Remark(
        "site", "meaning", "the mechanism's integers change; under the same rev: give it rev 5", finding=True
    )


@pytest.mark.parametrize(("change", "next_step"), [({}, "5, or 4 again"), ({"question": "Why?"}, "5")])
def test_a_rev_never_falls(change: dict[str, object], next_step: str) -> None:
    (remark,) = of_kind(compare(asked(color=COLOR), asked(color=COLOR | {"rev": 3} | change)), "rev")
    assert remark == Remark("color", "rev", f"rev falls from 4 to 3: give it rev {next_step}", finding=True)


def test_a_rev_that_rises_alone_is_noted() -> None:
    (remark,) = compare(asked(color=COLOR), asked(color=COLOR | {"rev": 5}))
    assert not remark.finding
    assert remark.detail.endswith("of rev 4: nothing else changes")


def test_whatever_is_more_than_was_agreed_to_is_one_finding_a_metric() -> None:
    later = EXPIRES.replace(year=EXPIRES.year + 1)
    more = COLOR | {"reports": 4, "period": "1d", "expires": later}
    (remark,) = compare(asked(color=COLOR | {"period": "2d"}), asked(color=more))
    assert (remark.what, remark.finding) == ("consent", True)
    for phrase in ("for life rises from 6 to 8", "shortens from 2d to 1d", f"to {later}", "ask people again"):
        assert phrase in remark.detail


AGREED: list[tuple[dict[str, object], dict[str, object], str]] = [
    (COLOR, {"question": "Who are you?"}, 'its question becomes "Who are you?"'),
    (COLOR, {"kind": "choices", "ticks_max": 2}, "its kind changes from choice to choices"),
    (COLOR, {"values": ["red", "green"]}, "its possible answers change"),
    (DELAY, {"high": 11}, "its possible answers change"),
    (DELAY, {"unit": "min"}, "its possible answers change"),
    (DELAY, {"buckets": None, "asks": ["mean"]}, "its possible answers change"),
    (COLOR, {"sensitivity": "high"}, "its sensitivity rises from low to high"),
    (COLOR | {"presence": "hidden"}, {"presence": "public"}, "whether it answers is no longer hidden"),
    (COLOR, {"epsilon": 3}, "its epsilon of a report rises from 2 to 3"),
    (COLOR, {"epsilon": 1.5, "reports": 4}, "its number of reports rises from 3 to 4"),
    (COLOR, {"reports": 4}, "its epsilon for life rises from 6 to 8"),
    (COLOR | MEMO, {"answers": 3}, "its number of different answers rises from 2 to 3"),
    (COLOR | MEMO, {"epsilon_permanent": 5}, "its epsilon of a permanent answer rises from 4 to 5"),
    (COLOR | MEMO, FRESH, "its memoized answers become fresh ones"),
    (COLOR, {**MEMO}, "its fresh answers become memoized ones"),
    (COLOR | {"period": "2d"}, {"period": "1d"}, "its period shortens from 2d to 1d"),
    (COLOR, {"expires": EXPIRES.replace(year=EXPIRES.year + 1)}, "its expiry is extended"),
    (TOOLS, SITE | {"ticks_max": None, "candidates": None}, "it shows which of 128 cohorts the device is in"),
]


@pytest.mark.parametrize("rev", [4, 5])
@pytest.mark.parametrize(("before", "change", "said"), AGREED, ids=[said for _, _, said in AGREED])
def test_people_are_asked_again_once_and_no_note_repeats_it(
    before: dict[str, object], change: dict[str, object], said: str, rev: int
) -> None:
    remarks = compare(asked(color=before), asked(color=before | change | {"rev": rev}))
    (remark,) = (remark for remark in of_kind(remarks, "consent") if remark.metric)
    assert remark.finding
    assert remark.detail.count(said) == 1
    assert remark.detail.endswith(": ask people again; until they agree, devices do not answer it")
    assert {remark.what for remark in remarks} <= {"consent", "meaning", "rev", "memo", "R(200)"}


def test_asking_for_less_is_noted_and_needs_nothing() -> None:
    less = {"reports": 2, "period": "2d", "expires": EXPIRES.replace(year=EXPIRES.year - 1), "sensitivity": "low"}
    remarks = compare(asked(40, color=COLOR | {"sensitivity": "high"}), asked(30, color=COLOR | less))
    assert [(remark.metric, remark.what, remark.finding) for remark in remarks] == [
        (None, "device_epsilon", False),
        ("color", "sensitivity", False),
        ("color", "reports", False),
        ("color", "period", False),
        ("color", "expires", False),
        ("color", "epsilon for life", False),
    ]


def test_what_neither_devices_nor_numbers_feel_is_noted() -> None:
    change = {"owners": ["other@example.org"], "schedule": "spread"}
    remarks = compare(asked(color=COLOR, site=SITE), asked(color=COLOR | change, site=SITE | {"candidates": ["a.org"]}))
    assert [(remark.metric, remark.what) for remark in remarks] == [
        ("color", "schedule"),
        ("color", "owners"),
        ("site", "candidates"),
    ]
    assert not any(remark.finding for remark in remarks)
    assert 'candidates removed: "b.org"; the series goes on' in remarks[-1].detail


def test_a_new_metric_and_more_for_the_whole_device_are_asked_for_again() -> None:
    old, new = asked(6, color=COLOR), asked(12, color=COLOR, tools=TOOLS)
    assert found(old, new) == [(None, "consent"), ("tools", "consent")]
    assert "rises from 6 to 12" in compare(old, new)[0].detail
    assert "it is new, and may cost 6" in compare(old, new)[1].detail


def test_another_app_is_a_finding() -> None:
    old, new = (
        Registry.parse(metrics_text({"color": COLOR}, app=app, quiet_days=days)) for app, days in (("a", 1), ("b", 0))
    )
    app, days = compare(old, new)
    assert (app.what, app.finding) == ("app", True)
    assert "keep the name a" in app.detail
    assert (days.what, days.detail, days.finding) == ("quiet_days", "quiet_days changes from 1 to 0", False)


LISTED = {**COLOR, "memoize": True, "epsilon": 1, "epsilon_permanent": 2, "answers": 1, "reports": None}


def linking(d: int, mechanism: str = "pgr", **head: bool) -> Registry:
    values = [f"v{number}" for number in range(d)]
    return Registry.parse(metrics_text({"color": LISTED | {"values": values, "mechanism": mechanism}}, **head))


def test_devices_that_can_be_told_apart_better_are_asked_again_and_a_little_is_noted() -> None:
    for_all, of_one = of_kind(compare(linking(20, "grr"), linking(20, "oue")), "consent")
    assert (for_all.metric, for_all.finding) == (None, True)
    people = "of 200 people with the same answers about 166 could be recognised, not 21"
    until = "ask people again; until they agree, devices"
    assert for_all.detail == f"with all metrics together, {people}: {until} keep to what was agreed to"
    assert of_one.detail == f"{people}: {until} do not answer it"
    little = compare(linking(20, "grr"), linking(20))
    assert of_kind(little, "consent") == []
    assert [(remark.detail, remark.finding) for remark in little if remark.what == "R(200)"] == [
        ("R(200) changes from 0.11 to 0.15", False)
    ]


def test_a_registry_that_is_newly_linkable_asks_again() -> None:
    (remark,) = of_kind(compare(linking(20), linking(20, linkable=True)), "consent")
    assert remark.detail.startswith("it is now meant that reports can be joined: of 200 people")
    assert compare(linking(20, linkable=True), linking(20)) == []


def reports_after(old: Registry, new: Registry, metric: str, directory: Path, idle: tuple[str, ...] = ()) -> int:
    """Return how many reports a metric sends after an update, of a device that used all of the old registry.

    But for the metrics that were `idle`, and are recorded last.
    """
    clock = Clock()
    device = open_device(old, directory, clock)

    def use(asked: Registry, names: list[str]) -> int:
        sent = 0
        for answer in ("red", "green", "blue", "plum", "cyan", "pink"):
            clock.travel(1)
            for name in names:
                device.record(asked.metrics[name], answer)
                body = send(device)
                sent += sum(group["metric"] == metric for group in body["groups"]) if body else 0
        return sent

    use(old, [name for name in old.metrics if name not in idle])
    device.close()
    device = open_device(new, directory, clock)
    return use(new, [name for name in new.metrics if name != metric] + [metric])


def test_a_memo_that_cannot_go_on_falls_silent(tmp_path: Path) -> None:
    old, new = asked(color=COLOR | MEMO), asked(color=COLOR | MEMO | {"values": ["red"], "answers": 4, "rev": 5})
    (memo,) = of_kind(compare(old, new), "memo")
    assert memo.finding
    assert "count all they reserved, 8, as spent: they fall silent; keep values" in memo.detail
    assert reports_after(old, new, "color", tmp_path / "changed") == 0
    assert reports_after(old, old, "color", tmp_path / "kept") == 6


@pytest.mark.parametrize(("reports", "left"), [(4, 0), (5, 1), (7, 3)])
def test_a_memoized_metric_that_becomes_fresh_has_what_it_grows_by(tmp_path: Path, reports: int, left: int) -> None:
    old, new = asked(color=COLOR | MEMO), asked(color=COLOR | {"rev": 5, "reports": reports})
    (memo,) = of_kind(compare(old, new), "memo")
    assert memo.finding == (left == 0)
    said = f"they send at most {left} of its {reports} fresh reports" if left else "let it reserve at least 10"
    assert said in memo.detail
    assert reports_after(old, new, "color", tmp_path) == left


def test_a_fresh_metric_that_becomes_memoized_falls_silent_where_it_was_answered(tmp_path: Path) -> None:
    old, new = asked(color=COLOR), asked(color=COLOR | MEMO | {"rev": 5, "answers": 3})
    (memo,) = of_kind(compare(old, new), "memo")
    assert (memo.finding, "devices that have answered it fall silent" in memo.detail) == (True, True)
    assert reports_after(old, new, "color", tmp_path / "answered") == 0
    assert reports_after(old, new, "color", tmp_path / "idle", idle=("color",)) == 6


@pytest.mark.parametrize("change", [{"epsilon": 2.5, "rev": 5}, {"owners": ["x@example.org"]}, {"answers": 3}])
def test_a_memo_goes_on_where_its_first_stage_stays(tmp_path: Path, change: dict[str, object]) -> None:
    memoized = COLOR | MEMO | {"mechanism": "grr"}
    old, new = asked(color=memoized), asked(color=memoized | change)
    assert of_kind(compare(old, new), "memo") == []
    assert reports_after(old, new, "color", tmp_path) == 6


def test_a_metric_that_left_is_noted_with_all_it_reserved() -> None:
    remark = compare(asked(color=COLOR, tools=TOOLS), asked(color=COLOR))[-1]
    assert remark == Remark(
        "tools", "left", "leaves: devices that were asked it count all it reserved, 6, as spent", finding=False
    )


@pytest.mark.parametrize(("epsilon", "silent"), [(18, False), (17.999999, True)])
def test_a_new_metric_fits_beside_all_that_was_ever_reserved_or_is_silent(
    tmp_path: Path, epsilon: float, silent: bool
) -> None:
    """18 is 6 for one that stays, 6 for one that left and 6 for the new one."""
    old, new = asked(12, color=COLOR, left=COLOR), asked(epsilon, color=COLOR, tools=TOOLS)
    fit = of_kind(compare(old, new), "fit")
    assert [(remark.metric, remark.finding) for remark in fit] == ([("tools", True)] if silent else [])
    assert all(remark.detail.startswith("silent from the start") for remark in fit)
    assert all(remark.detail.endswith("raise device_epsilon to 18, or let it reserve less") for remark in fit)
    assert reports_after(old, new, "tools", tmp_path) == (0 if silent else 3)


def test_an_ended_memo_counts_with_all_it_reserved(tmp_path: Path) -> None:
    old = asked(14, color=COLOR, theme=COLOR | MEMO)
    new = asked(14, theme=COLOR | {"rev": 5, "reports": 1}, tools=TOOLS | {"reports": 4})
    (fit,) = of_kind(compare(old, new), "fit")
    assert (fit.metric, fit.finding) == ("tools", True)
    assert "beside 14 that they count for others, 0 is left of the 8 that it reserves" in fit.detail
    assert reports_after(old, new, "tools", tmp_path) == 0


def test_of_two_new_metrics_with_room_for_one_each_is_told_of(tmp_path: Path) -> None:
    old, new = asked(12, color=COLOR, left=COLOR), asked(18, color=COLOR, a=COLOR, b=COLOR)
    fit = of_kind(compare(old, new), "fit")
    assert [remark.metric for remark in fit] == ["a", "b"]
    assert all(remark.detail.startswith("silent where the other new metrics begin first") for remark in fit)
    assert [reports_after(old, new, last, tmp_path / last) for last in ("a", "b")] == [0, 0]


def test_a_metric_that_stays_may_find_no_room_either(tmp_path: Path) -> None:
    old, new = asked(12, color=COLOR, left=COLOR), asked(6, color=COLOR)
    (fit,) = of_kind(compare(old, new), "fit")
    assert (fit.metric, fit.finding) == ("color", True)
    assert fit.detail.startswith("silent early, or from the start, on devices that used all the other old metrics")
    assert reports_after(old, new, "color", tmp_path, idle=("color",)) == 0


def test_a_memo_that_finds_no_room_to_grow_goes_on_as_it_was(tmp_path: Path) -> None:
    memoized = COLOR | MEMO | {"values": [*"abcde"]}
    old, new = asked(14, theme=memoized, left=COLOR), asked(14, theme=memoized | {"answers": 3})
    (fit,) = of_kind(compare(old, new), "fit")
    assert not fit.finding
    assert fit.detail.startswith("its memos go on with the answers reserved when they began, and no more")
    assert reports_after(old, new, "theme", tmp_path) == 6


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    old, new = tmp_path / "old.toml", tmp_path / "new.toml"
    old.write_text(metrics_text({"color": COLOR, "gone": COLOR}), encoding="utf-8")
    new.write_text(metrics_text({"color": COLOR | {"values": ["grün"]}}), encoding="utf-8")
    return old, new


def test_findings_come_before_notes_and_the_verdict_last(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = files
    assert main(["metrics", "diff", str(old), str(new)]) == 1
    assert capsys.readouterr().out == (
        "finding: color: its possible answers change: ask people again; until they agree, devices do not answer it\n"
        'finding: color: values added: "grün"; values removed: "red", "green", "blue"; under the same rev: '
        "give it rev 5\n"
        "note: gone: leaves: devices that were asked it count all it reserved, 6, as spent\n"
        f"{new}: 2 findings, 1 note: settle each finding before the release\n"
    )
    assert main(["metrics", "diff", str(old), str(old)]) == 0
    assert capsys.readouterr().out == f"{old}: no findings, no notes: devices can go from {old} to it\n"


def test_the_json_document_says_the_same(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    old, new = files
    assert main(["metrics", "diff", str(old), str(new), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    remarks = compare(Registry.load(old), Registry.load(new))
    for key, finding in (("findings", True), ("notes", False)):
        assert document[key] == [
            {"metric": remark.metric, "what": remark.what, "detail": remark.detail}
            for remark in remarks
            if remark.finding == finding
        ]
    assert main(["metrics", "diff", str(new), str(new), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"findings": [], "notes": []}


def test_what_is_no_registry_is_refused(files: tuple[Path, Path]) -> None:
    old, _ = files
    none = old.with_name("none.toml")
    for pair in ((old, none), (none, old)):
        done = dither("metrics", "diff", *pair)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"dither: {none}: cannot be read: No such file or directory\n"


def test_values_in_any_language_reach_any_terminal(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", terminal)
    assert main(["metrics", "diff", *map(str, files)]) == 1
    terminal.seek(0)
    assert 'values added: "grün"' in terminal.read()
    assert terminal.encoding == "utf-8"


def test_a_public_column_is_another_meaning_of_a_table() -> None:
    """And where its values change, nothing else of the plan may."""

    def with_public(values: str) -> Registry:
        return Registry.parse(metrics_text({"crash": CRASH}).replace("quiet_days = 0", f"quiet_days = 0\n{values}"))

    without, ab, ba, ac, other = map(
        with_public,
        (
            "",
            'public = { arm = ["a", "b"] }',
            'public = { arm = ["b", "a"] }',
            'public = { arm = ["a", "c"] }',
            'public = { channel = ["a", "b"] }',
        ),
    )
    for old, new, said in (
        (without, ab, "the public column changes from none to arm"),
        (ab, without, "the public column changes from arm to none"),
        (ab, other, "the public column changes from arm to channel"),
        (ab, ba, "public values in another order"),
        (ab, ac, 'public values added: "c"; public values removed: "b"'),
    ):
        (remark,) = of_kind(compare(old, new), "meaning")
        assert remark.finding
        assert said in remark.detail
