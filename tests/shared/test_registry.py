import json
import re
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dither_shared.errors import RegistryError
from dither_shared.frozen import replaced
from dither_shared.hashing import bloom_bits
from dither_shared.kinds.text_memo import choose_rappor
from dither_shared.mechanisms import RAPPOR
from dither_shared.mechanisms.parameter_sets import PARAMETER_SETS
from dither_shared.registry import Registry, utc_today
from dither_shared.toml_tables import MISTAKES_MAX
from tests.support.laws import NO_COINS, pure
from tests.support.registries import registry, registry_text


def test_a_registry_is_read_as_written() -> None:
    read = registry(period="7d", epsilon="1.5")
    color = read.metrics["color"]
    assert (read.app, read.device_epsilon, read.quiet_days) == ("example", Decimal(40), 0)
    assert color.values == ("red", "green", "blue", "other")
    assert (color.epsilon, color.charges, color.period_days, color.rev) == (Decimal("1.5"), 3, 7, 1)
    assert color.reservation == 4_500_000
    assert read.metrics["dark"].values == ("no", "yes")
    assert list(read.metrics) == ["color", "dark"]


def refused(text: str) -> str:
    with pytest.raises(RegistryError) as caught:
        Registry.parse(text, "m.toml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "epsilon = 2.0",
            'epsilon = "two"',
            'm.toml: metric.color: epsilon must be a number from 0.01 to 20 with at most six decimals, got "two"',
        ),
        ("epsilon = 2.0", "epsilon = 0.0000001", "metric.color: epsilon must be"),
        ("epsilon = 2.0", "epsilon = 2.0000001", "at most six decimals, got 2.0000001"),
        ("epsilon = 2.0", "epsilon = nan", "metric.color: epsilon must be"),
        ("epsilon = 2.0", "epsilon = true", "metric.color: epsilon must be"),
        ("epsilon = 2.0", "", "metric.color: epsilon is missing: the privacy loss of one report"),
        ("epsilon = 2.0", "epsilom = 2.0", "suit most questions; epsilom is there: did you mean epsilon?"),
        ("reports = 3", "reports = 0", "metric.color: reports must be an integer from 1 to 10000, got 0"),
        ("reports = 3", "reports = true", "metric.color: reports must be an integer"),
        ("rev = 1", "rev = 1.0", "metric.color: rev must be an integer"),
        ('period = "1d"', 'period = "24h"', 'metric.color: period must be whole days from "1d" to "366d", got "24h"'),
        ('presence = "public"', 'presence = "private"', 'presence must be "public" or "hidden", got "private"'),
        ('presence = "public"', "", 'metric.color: presence is missing: "public" when'),
        ('sensitivity = "low"', 'sensitivity = "none"', 'must be "low" or "medium" or "high", got "none"'),
        ('schedule = "early"', 'schedule = "late"', 'schedule must be "spread" or "early"'),
        (
            'kind = "choice"',
            'kind = "word"',
            '"choice" or "choices" or "number" or "table" or "text" or "words", got "word"',
        ),
        (
            'values = ["red", "green", "blue"]',
            "values = []",
            "values must be a list of 1 to 65535 texts, got a list of 0",
        ),
        ('values = ["red", "green", "blue"]', "", "metric.color: values or values_file is needed"),
        ('"green"', '"red"', 'values must be different texts, got "red" twice'),
        ('"green"', '"other"', 'values must leave out "other"'),
        ('"green"', '"gr\\neen"', "text in one line"),
        ('"green"', "7", "values must be text of 1 to 200 characters"),
        ('owners = ["team@example.org"]', 'owners = "team"', 'owners must be a list of 1 to 20 texts, got "team"'),
        ("[metric.color]", "[metric.Color]", "metric.Color: name must match"),
        ("[metric.color]", "[metric.flush]", "metric.flush: name must not be that of a method"),
        ("[metric.color]", "[metric.class]", "metric.class: name must not be a word of Python's"),
        ("[metric.color]", "[metric.color.deep]", "metric.color"),
        ("[registry]", "[registri]", "m.toml: registry is missing: a table [registry]"),
        ("[registry]", "[registri]", "; registri is there: did you mean registry?"),
        ('app = "example"', "", "registry: app is missing: the app's name"),
        ('app = "example"', 'app = "../x"', "registry: app must be a lower-case name"),
        (
            'owners = ["team@example.org"]',
            'owners = ["t@x.example"]\nevicted = true',
            "evicted is not a key of this table; it belongs to [registry]",
        ),
        ("quiet_days = 0", "quiet_day = 0", "registry: quiet_day is not a key of this table; did you mean quiet_days?"),
        (
            "device_epsilon = 40.0",
            "device_epsilon = 11.99",
            "registry: the metrics reserve more of a device than device_epsilon, 11.99, allows (reports x epsilon, or "
            "answers x epsilon_permanent: color 6, dark 6): ask fewer reports, or a smaller epsilon. To raise",
        ),
        ("[registry]", "[registry", "m.toml: must be TOML"),
        ("[registry]", "[other]\n[registry]", "m.toml: other is not a key"),
    ],
)
def test_a_mistake_names_its_place_what_was_needed_and_what_came(old: str, new: str, message: str) -> None:
    text = registry_text()
    assert old in text
    assert message in refused(text.replace(old, new, 1))


def test_a_budget_that_is_exceeded_says_what_more_would_mean_before_how_much_it_would_be() -> None:
    said = refused(registry_text(device_epsilon="2", reports=1))
    meaning, number = "of an even one to 98.3 % sure, not by e^2, to 88.1 %", "at least 4"
    assert 0 < said.index(meaning) < said.index(number)


def test_all_mistakes_of_a_file_are_said_at_once() -> None:
    text = registry_text().replace("quiet_days = 0", 'quiet_days = "none"\nlinkabel = true')
    color, dark = text.index("[metric.color]"), text.index("[metric.dark]")
    first = text[color:dark].replace("rev = 1", "rev = 0").replace('period = "1d"', 'period = "1w"')
    first = first.replace('"green"', '"red"').replace("epsilon = 2.0", "epsilon = 99").replace("owners", "ownesr")
    second = text[dark:].replace('"flag"', '"bool"').replace('"low"', '"none"') + "beyond = 1\n"
    assert [
        line.removeprefix("m.toml: ").split(" ")[:2] for line in refused(text[:color] + first + second).split("\n")
    ] == [
        ["registry:", "quiet_days"],
        ["registry:", "linkabel"],
        ["metric.color:", "values"],
        ["metric.color:", "epsilon"],
        ["metric.color:", "rev"],
        ["metric.color:", "period"],
        ["metric.color:", "owners"],
        ["metric.dark:", "kind"],
        ["metric.dark:", "sensitivity"],
        ["metric.dark:", "beyond"],
    ]


def test_a_mistake_is_no_cause_of_others_that_are_said() -> None:
    for old, new in (
        ('kind = "choice"', 'kind = "smell"'),
        ("reports = 3", "memoize = 1\nepsilon_permanent = 4\nanswers = 2"),
        ('values = ["red", "green", "blue"]', 'values = "reds"'),
        ("[registry]", '[values.reds]\nvalues = ["a", "a"]\n[registry]'),
    ):
        text = registry_text().replace('schedule = "early"\n', "").replace(old, new, 1)
        assert "\n" not in refused(text), new
    number = 'unit = "s"\nlow = "x"\nhigh = 0\nbuckets = 4\nscale = "log"'
    text = registry_text(kind="number").replace('values = ["red", "green", "blue"]', number)
    assert "\n" not in refused(text)


def test_of_very_many_mistakes_the_first_are_said() -> None:
    text = registry_text() + "".join(f'\n[metric.m{number}]\nkind = "flag"\n' for number in range(100))
    lines = refused(text).split("\n")
    assert len(lines) == MISTAKES_MAX + 1
    assert re.fullmatch(r"and \d+ more mistakes", lines[-1])


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ('"choice"', '"bool"', 'got "bool"; did you mean "flag"?'),
        ('"choice"', '"enum"', 'got "enum"; did you mean "choice"?'),
        ('"choice"', '"histogram"', 'did you mean "number"?'),
        ('"1d"', '"1w"', 'got "1w"; did you mean "7d"?'),
        ('"1d"', '"24h"', 'did you mean "1d"?'),
        ('"1d"', '"2 weeks"', 'did you mean "14d"?'),
        ('"1d"', '"monthly"', 'did you mean "30d"?'),
        ('"1d"', "7", 'got 7; did you mean "7d"?'),
        ('"1d"', '"3y"', 'to "366d", got "3y"'),
        ('"1d"', '"soon"', 'to "366d", got "soon"'),
    ],
)
def test_a_word_of_others_is_told_ours(old: str, new: str, hint: str) -> None:
    said = refused(registry_text().replace(old, new, 1))
    assert hint in said
    assert ("did you mean" in said) == ("did you mean" in hint)


@pytest.mark.parametrize(
    ("edges", "hint"),
    [
        ("[0.5, 1, 2.25]", "did you mean edges = [50, 100, 225] and decimals = 2?"),
        ("[0.5e0, 10.0]", "did you mean edges = [5, 100] and decimals = 1?"),
        ("[1.0, 2.0]", "got 1.0"),
        ("[nan, 2.5]", "got NaN"),
        ("[1e-400, 1]", "got 1E-400"),
        ('["1", 2]', 'got "1"'),
    ],
)
def test_edges_with_decimals_are_told_in_steps(edges: str, hint: str) -> None:
    number = f'unit = "s"\nedges = {edges}'
    said = refused(registry_text(kind="number").replace('values = ["red", "green", "blue"]', number))
    assert hint in said
    assert ("did you mean" in said) == ("did you mean" in hint)


def test_expires_is_a_date_at_most_a_year_away() -> None:
    today = utc_today()
    text = registry_text(expires=today)
    assert "expires must be a date such as 2027-06-30, without quotes" in refused(
        text.replace(f"expires = {today}", f'expires = "{today}"', 1)
    )
    assert "expires must be a date" in refused(text.replace(f"expires = {today}", f"expires = {today}T00:00:00", 1))
    registry(expires=today + timedelta(days=366)).check_dates(today)
    registry(expires=today - timedelta(days=1)).check_dates(today)
    with pytest.raises(RegistryError, match=r"r\.toml: metric\.color: expires must be at most a year away"):
        registry(expires=today + timedelta(days=367)).check_dates(today, "r.toml")
    with pytest.raises(RegistryError, match=r"metric\.dark: expires must be at most a year away"):
        registry(expires=today + timedelta(days=367)).check_dates(today, "r.toml")


def test_a_list_of_tables_is_told_the_table_that_is_needed() -> None:
    listed = refused(registry_text().replace("[metric.color]", "[[metric.color]]"))
    assert listed == "m.toml: metric: color must be a table, [metric.color], got a list of 1"
    assert "registry must be a table, [registry], got 1" in refused("registry = 1")


def test_a_registry_with_no_metric_is_refused() -> None:
    assert "metric must hold 1 to 1000 tables" in refused(registry_text().split("[metric.color]")[0] + "[metric]")


def test_values_may_come_from_a_file_beside_the_registry(tmp_path: Path) -> None:
    text = registry_text().replace('values = ["red", "green", "blue"]', 'values_file = "colors.txt"')
    (tmp_path / "metrics.toml").write_text(text, encoding="utf-8")
    with pytest.raises(RegistryError, match=r"color: values_file must name a UTF-8 file .* cannot be read"):
        Registry.load(tmp_path / "metrics.toml")
    (tmp_path / "colors.txt").write_text("red\ngreen\nblue\n", encoding="utf-8")
    for written in (b"red\ngreen\nblue\n", b"\xef\xbb\xbfred\r\ngreen\r\nblue"):
        (tmp_path / "colors.txt").write_bytes(written)
        loaded = Registry.load(tmp_path / "metrics.toml").metrics["color"]
        assert loaded.plan == registry().metrics["color"].plan
    (tmp_path / "colors.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(RegistryError, match="values_file must name a UTF-8 file"):
        Registry.load(tmp_path / "metrics.toml")


def test_tables_of_another_name_are_told_from_none() -> None:
    missing = "m.toml: metric is missing: a table [metric.NAME] for each question"
    assert refused(registry_text().replace("[metric.", "[metrics.")) == (
        f"{missing}; metrics is there: did you mean metric?"
    )
    assert refused(registry_text().partition("[metric.")[0]) == missing


def test_a_missing_key_is_not_taken_for_one_that_has_a_meaning_of_its_own() -> None:
    """`owners` is somewhat like `answers`, and stands where it belongs."""
    memoized = registry_text().replace("reports = 3", "memoize = true\nepsilon_permanent = 4", 1)
    assert "answers is missing" in refused(memoized)
    assert "did you mean" not in refused(memoized)


def test_a_relative_path_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An app that is started in another directory does not find its registry."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    with pytest.raises(RegistryError) as refusal:
        Registry.load("metrics.toml")
    assert str(refusal.value) == f"metrics.toml: cannot be read: No such file or directory in {gone}"
    gone.rmdir()
    with pytest.raises(RegistryError, match=r"cannot be read: No such file or directory$"):
        Registry.load("metrics.toml")


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"nowhere\.toml: cannot be read: No such file"):
        Registry.load(tmp_path / "nowhere.toml")
    with pytest.raises(RegistryError, match="cannot be read: Is a directory"):
        Registry.load(tmp_path)
    (tmp_path / "latin.toml").write_bytes('app = "caf\xe9"'.encode("latin-1"))
    with pytest.raises(RegistryError, match="must be UTF-8, which it is not at byte 10"):
        Registry.load(tmp_path / "latin.toml")


class Awkward:
    """An answer that raises whatever is asked of it."""

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __hash__(self) -> int:
        raise RuntimeError("no hash")


class AwkwardText(str):
    __slots__ = ()

    def __hash__(self) -> int:
        raise RuntimeError("no hash")


@pytest.mark.parametrize(
    "answer", [None, 7, b"red", ["red"], "purple", "", Awkward(), AwkwardText("red"), float("nan")]
)
def test_whatever_is_not_listed_is_other(answer: object) -> None:
    assert registry().metrics["color"].read(answer) == (3,)


def test_listed_answers_are_found() -> None:
    color = registry().metrics["color"]
    assert [color.read(value) for value in ("red", "green", "blue", "other")] == [(0,), (1,), (2,), (3,)]


class Claiming:
    """An answer that calls itself a bool, and notes when it is asked for its truth."""

    asked = 0
    __class__ = bool  # type: ignore[assignment]

    def __bool__(self) -> bool:
        Claiming.asked += 1
        return True


class AwkwardlyNamed(type):
    """The class of a class whose name raises when it is compared."""

    __name__ = Awkward()  # type: ignore[assignment]


class OldNumpysBool:
    """The bool of numpy before version 2: what tells it from others."""

    def __init__(self, truth: bool) -> None:
        self.truth = truth

    def __bool__(self) -> bool:
        return self.truth


OldNumpysBool.__module__, OldNumpysBool.__name__ = "numpy", "bool_"


@pytest.mark.parametrize("presence", ["public", "hidden"])
@pytest.mark.parametrize("of", [bool, np.bool_, OldNumpysBool])
def test_a_flag_takes_true_and_false_and_those_of_numpy(of: Callable[[bool], object], presence: str) -> None:
    dark = registry(presence=presence).metrics["dark"]
    assert [dark.read(of(truth)) for truth in (False, True)] == [(0,), (1,)]
    assert dark.takes(of(False))
    assert dark.takes(of(True))


@pytest.mark.parametrize(
    "answer",
    [
        *(1, 0, 1.0, float("nan"), "yes", "True", "", None, [True], b"1", bool, object(), np.int64(1), np.array(True)),
        *(Awkward(), Claiming(), AwkwardlyNamed("Odd", (), {})()),
    ],
    ids=lambda answer: type.__repr__(type(answer)),
)
def test_anything_else_is_false_to_a_flag_whatever_its_truth(answer: object) -> None:
    for presence in ("public", "hidden"):
        dark = registry(presence=presence).metrics["dark"]
        assert dark.read(answer) == dark.read(False)
        assert not dark.takes(answer)
    assert Claiming.asked == 0


def test_dates_are_utc() -> None:
    assert abs((utc_today() - date.today()).days) <= 1  # noqa: DTZ011 - the local day is the point


MEMO: dict[str, Any] = {"epsilon": "1", "epsilon_permanent": "4"}


def test_a_memoized_metric_reserves_its_answers() -> None:
    color = registry(**MEMO, answers=3).metrics["color"]
    assert color.memoized
    assert (color.charge, color.charges, color.reservation) == (4_000_000, 3, 12_000_000)
    assert (color.mechanism.charge, color.schedule) == (1_000_000, "early")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epsilon_permanent = 4", "", "epsilon_permanent is missing: the privacy loss of one memoized answer"),
        ("epsilon_permanent = 4", "epsilon_permanent = 1", "epsilon_permanent must be above epsilon, 1, got 1"),
        ("answers = 2", "", "answers is missing: how many different answers"),
        ("answers = 2", "answers = 2\nreports = 5", "reports must be left out where answers are memoized"),
        ("answers = 2", 'answers = 2\nschedule = "spread"', 'schedule must not be "spread"'),
        ("memoize = true", "memoize = 1", "memoize must be true or false, got 1"),
        ("memoize = true", "memoize = false\nreports = 2", "epsilon_permanent is for memoized answers"),
        ("memoize = true", "memoize = true\nticks_max = 2", "ticks_max is not a key"),
    ],
)
def test_mistakes_about_memoized_answers(old: str, new: str, message: str) -> None:
    text = registry_text(**MEMO)
    assert old in text
    assert f"metric.color: {message}" in refused(text.replace(old, new, 1))


def test_a_mechanism_may_be_named() -> None:
    for name in ("grr", "ss", "pgr", "oue", "sue"):
        assert registry(color=f'mechanism = "{name}"').metrics["color"].mechanism.name == name
    assert 'mechanism must be "grr" or "ss" or "pgr" or "oue" or "sue", got "olh"' in refused(
        registry_text(color='mechanism = "olh"')
    )
    assert 'mechanism must be "privset" or "oue" or "sue", got "grr"' in refused(
        registry_text(kind="choices", color='mechanism = "grr"\nticks_max = 2')
    )


def test_what_no_mechanism_can_do_is_refused_with_the_next_step() -> None:
    many = tuple(f"v{number}" for number in range(5000))
    assert "metric.color: values are too many: there is no oue for 5001 values" in refused(
        registry_text(values=many, color='mechanism = "oue"')
    )
    named = refused(registry_text(values=many, **MEMO, color='mechanism = "oue"'))
    assert "values are too many: there is no memoized oue for 5001 values with reports of at most" in named
    assert named.endswith("; ask fewer values, or leave mechanism out")
    assert registry(values=many, **MEMO).metrics["color"].mechanism.name == "pgr"
    assert registry(values=many, **MEMO, color='mechanism = "grr"').metrics["color"].mechanism.name == "grr"
    assert registry(**MEMO, kind="choices", values=many, color="ticks_max = 2").metrics["color"].memoized


def test_several_ticks_are_limited() -> None:
    color = registry(kind="choices", color="ticks_max = 2").metrics["color"]
    assert pure(color.plan).ticks == 2
    assert "ticks_max is missing: the most values" in refused(registry_text(kind="choices"))
    for wrong in ("1", "5", "true"):
        assert "ticks_max must be an integer from 2 to 4" in refused(
            registry_text(kind="choices", color=f"ticks_max = {wrong}")
        )


class EndlessList(list[str]):
    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no end")


@pytest.mark.parametrize(
    ("answer", "indices"),
    [
        (["red", "blue"], (0, 2)),
        ({"blue"}, (2,)),
        (("blue", "blue", "red"), (0, 2)),
        ([], ()),
        (frozenset(["red", "purple"]), (0, 3)),
        (["red", None, 7], (0, 3)),
        ("red", (0,)),
        (None, (3,)),
        ({"red": 1}, (3,)),
        (iter(["red"]), (3,)),
        (EndlessList(["red"]), (3,)),
    ],
)
def test_choices_take_lists_tuples_sets_and_one_text(answer: object, indices: tuple[int, ...]) -> None:
    color = registry(kind="choices", color="ticks_max = 2").metrics["color"]
    assert color.read(answer) == indices


def test_of_too_many_ticks_the_first_listed_count() -> None:
    color = registry(kind="choices", color="ticks_max = 2").metrics["color"]
    assert color.class_of(color.read(["blue", "green", "red"]), 0, NO_COINS) == 0b011


GOOGLE = "parameters = { k = 16, h = 2, m = 64, f = 0.5, p = 0.5, q = 0.75 }"
TEXT: dict[str, Any] = {"kind": "text", "epsilon": "1", "epsilon_permanent": "4"}


def test_a_text_gets_the_parameters_of_least_error_for_its_candidates() -> None:
    color = registry(**TEXT, color="candidates_expected = 5000").metrics["color"]
    assert color.mechanism == choose_rappor(Decimal(1), Decimal(4), 5_000, 128)
    assert (color.values, color.asked.candidates, color.memoized, color.reservation) == ((), (), True, 8_000_000)


def test_candidates_are_no_part_of_the_plan() -> None:
    few, many = (registry(**TEXT, candidates=listed).metrics["color"] for listed in (("a",), ("a", "b", "other")))
    assert few.plan.digest == many.plan.digest
    assert many.asked.candidates == ("a", "b", "other")


def test_a_parameter_set_is_taken_with_its_epsilons() -> None:
    asked = {"kind": "text", "epsilon": "2.043303", "epsilon_permanent": "4.39445"}
    color = registry(**asked, color='parameter_set = "chromium_string"').metrics["color"]
    assert color.mechanism == PARAMETER_SETS["chromium_string"].mechanism
    for key, wrong in (("epsilon", "2.0433"), ("epsilon_permanent", "4.4")):
        text = registry_text(**{**asked, key: wrong}, color='parameter_set = "chromium_string"')  # type: ignore[arg-type]
        assert f"metric.color: {key} must be that of the parameters, " in refused(text)
        assert f"got {wrong}" in refused(text)


@pytest.mark.parametrize(
    ("color", "message"),
    [
        ('parameter_set = "chrome"', 'parameter_set must be "chromium_string" or'),
        (
            'parameter_set = "google_demo"\ncandidates_expected = 9',
            "candidates_expected must be left out where the parameters are given",
        ),
        ("candidates_expected = 0", "candidates_expected must be an integer from 1 to 100000, got 0"),
        ('candidates = ["a", "a"]', 'candidates must be different texts, got "a" twice'),
        ('candidates = ["a"]\ncandidates_file = "b.txt"', "candidates or candidates_file is needed, and not both"),
        ("reports = 3", "reports must be left out"),
        (f'parameter_set = "google_demo"\n{GOOGLE}', "parameters or parameter_set is needed, and not both"),
        ('mechanism = "oue"', 'mechanism must be "rappor" or "pgr", got "oue"'),
        ('values = ["a"]', "values is not a key of this table"),
    ],
)
def test_mistakes_about_texts(color: str, message: str) -> None:
    assert f"metric.color: {message}" in refused(registry_text(**TEXT, color=color))


def test_parameters_of_ones_own_are_taken_with_their_epsilons() -> None:
    asked: dict[str, Any] = {"kind": "text", "epsilon": "1.074286", "epsilon_permanent": "4.39445"}
    color = registry(**asked, color=GOOGLE).metrics["color"]
    assert color.mechanism == PARAMETER_SETS["google_default"].mechanism
    for old, new, message in [
        ("f = 0.5", "f = 0", "parameters are not those of a RAPPOR that may be repeated: threshold_prr must be above"),
        ("f = 0.5", "f = 1.5", "f must be a number from 0 to 1 with at most 18 decimals, got 1.5"),
        ("p = 0.5", "p = nan", "p must be a number from 0 to 1"),
        ("q = 0.75", "q = 0.5", "parameters are not those of a RAPPOR that may be repeated"),
        ("k = 16", "k = 24", "k must be a power of two"),
        ("k = 16", "k = 512", "k must be an integer from 1 to 256, got 512"),
        (", q = 0.75", "", "q is missing"),
        ("q = 0.75", "q = 0.75, z = 1", "z is not a key"),
    ]:
        assert message in refused(registry_text(**asked, color=GOOGLE.replace(old, new)))


@pytest.mark.parametrize(
    ("answer", "read"),
    [("word", "word"), ("", ""), ("é", "é"), ("a\ud800", "a?"), (None, "other"), (7, "other"), ("x" * 201, "other")],
)
def test_a_text_is_read_as_it_is(answer: object, read: str) -> None:
    color = registry(**TEXT).metrics["color"]
    assert color.read(answer) == read
    assert color.read(AwkwardText("word")) == "word"


def test_a_text_has_the_bloom_bits_of_its_devices_cohort() -> None:
    color = registry(**TEXT).metrics["color"]
    mechanism = color.mechanism
    assert isinstance(mechanism, RAPPOR)
    for cohort in (0, 5, 127):
        (bit,) = bloom_bits("word", cohort, mechanism.k, 1)
        assert color.class_of("word", cohort, NO_COINS) == 1 << bit


def lasting(values: int, head: str = "") -> Registry:
    """Return a registry of one memoized list of so many values at (1, 2), with lines for its head."""
    listed = tuple(f"v{number}" for number in range(values))
    text = registry_text(values=listed, epsilon="1", epsilon_permanent="2", answers=1)
    return Registry.parse(text.replace("[registry]\n", f"[registry]\n{head}\n"))


def test_a_registry_that_tells_many_devices_apart_must_say_so() -> None:
    short, long = lasting(32), lasting(299)
    short.check_linked()
    assert short.linked == pytest.approx(0.2414, abs=1e-3)  # with the flag beside it
    with pytest.raises(RegistryError) as caught:
        long.check_linked("app/metrics.toml")
    message = str(caught.value)
    assert "app/metrics.toml: registry: R(200) must be at most 0.25, got 0.70" in message
    assert "(color 0.64, dark 0.01)" in message
    assert "or say linkable = true" in message
    lasting(299, "linkable = true").check_linked()
    with pytest.raises(RegistryError, match="linkable must be true or false, got 1"):
        lasting(299, "linkable = 1")


def test_two_short_lists_tell_many_devices_apart_together() -> None:
    one, other = (lasting(32).metrics["color"] for _ in range(2))
    both = replaced(lasting(32), metrics={"one": one, "other": other})
    with pytest.raises(RegistryError, match=r"got 0\.81.*\(one 0\.18, other 0\.18\)"):
        both.check_linked()


def test_a_registry_without_memos_and_cohorts_links_nobody() -> None:
    assert registry().linked is None
    registry().check_linked()


# Shared lists.

LIKERT = '["never", "often", "always"]'
SHARED = f"\n[values.likert]\nvalues = {LIKERT}\n"
ASKING = {
    "a choice": 'kind = "choice"\nvalues = LIST',
    "choices": 'kind = "choices"\nvalues = LIST\nticks_max = 2',
    "a table": 'kind = "table"\ncolumns = { a = LIST, b = ["x"], c = LIST }',
    "a text": 'kind = "text"\ncandidates = LIST',
}


def with_list(lines: str, more: str = "", head: str = "") -> str:
    text = registry_text().replace("quiet_days = 0", f"quiet_days = 0\n{head}")
    return text.replace('kind = "choice"', lines, 1).replace('values = ["red", "green", "blue"]', "", 1) + more


@pytest.mark.parametrize("asking", ASKING)
def test_a_metric_that_names_a_list_is_that_whose_list_is_written_out(asking: str, tmp_path: Path) -> None:
    written = Registry.parse(with_list(ASKING[asking].replace("LIST", LIKERT)))
    named = Registry.parse(with_list(ASKING[asking].replace("LIST", '"likert"'), SHARED))
    assert named == written
    assert named.metrics["color"].plan.digest == written.metrics["color"].plan.digest
    (tmp_path / "likert.txt").write_text("never\noften\nalways\n", encoding="utf-8")
    of_file = with_list(ASKING[asking].replace("LIST", '"likert"'), '[values.likert]\nvalues_file = "likert.txt"\n')
    assert Registry.parse(of_file, directory=tmp_path) == written
    with pytest.raises(RegistryError, match=r"values\.likert: values_file names a file, and only the registry's"):
        Registry.parse(of_file)


def test_the_public_column_may_name_a_list() -> None:
    asked = ASKING["a table"].replace("LIST", LIKERT)
    named = Registry.parse(with_list(asked, SHARED, 'public = { arm = "likert" }'))
    assert named == Registry.parse(with_list(asked, "", f"public = {{ arm = {LIKERT} }}"))


def test_a_list_that_nothing_names_is_told() -> None:
    text = with_list('kind = "choice"\nvalues = "likert"', f'{SHARED}\n[values.spare]\nvalues = ["x"]\n')
    assert Registry.parse(text).unused == ("spare",)
    assert registry().unused == ()


@pytest.mark.parametrize(
    ("asking", "more", "message"),
    [
        (
            "lickert",
            SHARED,
            'values must be a list of 1 to 65535 texts or the name of a shared one (likert), got "lickert"',
        ),
        ("likert", "", 'values must be a list of 1 to 65535 texts, got "likert"'),
        ("likert", "[values.likert]\nvalues = []\n", "values.likert: values must be a list of 1 to 100000 texts"),
        ("likert", "[values.likert]\n", "values.likert: values or values_file is needed"),
        ("likert", '[values.likert]\nvalues = "more"\n[values.more]\nvalues = ["x"]\n', 'texts, got "more"'),
        ("likert", '[values.likert]\nvalues = ["a"]\nof = 1\n', "values.likert: of is not a key of this table"),
        ("likert", '[values.Likert]\nvalues = ["a"]\n', "values: a name must match"),
        ("likert", "[values]\n", "values must hold 1 to 1000 tables"),
        (
            "likert",
            '\n[values.likert]\nvalues = ["a",\n"a\\u200bb"]\n',
            "values.likert: values must be texts that can be seen, got U+200B in line 44",
        ),
        (
            "likert",
            '\n[values.likert]\nvalues = ["a",\n"other"]\n',
            'metric.color: values must leave out "other", got it in line 44: it is always there',
        ),
    ],
)
def test_a_mistake_in_a_shared_list_names_its_place(asking: str, more: str, message: str) -> None:
    assert message in refused(with_list(f'kind = "choice"\nvalues = "{asking}"', more))


def test_a_list_may_be_too_long_for_one_that_names_it() -> None:
    many = f"[values.many]\nvalues = {json.dumps([str(number) for number in range(1_001)])}\n"
    assert len(Registry.parse(with_list('kind = "choice"\nvalues = "many"', many)).metrics["color"].values) == 1_002
    message = refused(with_list('kind = "table"\ncolumns = { a = "many", b = ["x"] }', many))
    assert "columns: a must be a list of 1 to 1000 texts, got a list of 1001 in [values.many]" in message
