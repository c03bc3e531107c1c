"""Everything that is pinned in vectors/ comes out the same: exactly, and floats to 12 digits."""

from pathlib import Path
from typing import Any

import pytest

from tests.pinned import answers, google_rappor, names, planted
from tests.pinned.adapter import describe, refusal
from tests.pinned.comparing import differences, load
from tests.pinned.registries import write_values
from tests.pinned.streams import replay

METRICS, ANSWERS, STREAMS, GOOGLE, BUGS = map(load, ("metrics", "answers", "streams", "google_rappor", "planted_bugs"))


def by_name(vector: dict[str, Any]) -> str:
    return str(vector["name"])


@pytest.mark.parametrize("vector", METRICS["metrics"], ids=by_name)
def test_a_metric_is_what_it_was(tmp_path: Path, vector: dict[str, Any]) -> None:
    write_values(vector["registry"], tmp_path)
    answers = [answer for answer, _ in vector["pinned"]["reads"]]
    assert differences(vector["pinned"], describe(vector["registry"], tmp_path, answers)) == []


@pytest.mark.parametrize("vector", METRICS["refused"], ids=by_name)
def test_a_registry_is_refused_in_the_same_words(tmp_path: Path, vector: dict[str, Any]) -> None:
    write_values(vector["registry"], tmp_path)
    assert refusal(vector["registry"], tmp_path) == vector["error"]


def test_answers_have_the_values_that_they_had() -> None:
    assert differences(ANSWERS, answers.pinned()) == []


def test_texts_have_the_forms_that_they_had() -> None:
    assert differences(load("texts"), answers.texts()) == []


@pytest.mark.parametrize("stream", STREAMS, ids=by_name)
def test_recorded_uploads_are_counted_and_read_as_they_were(tmp_path: Path, stream: dict[str, Any]) -> None:
    came = replay(stream["steps"], tmp_path)
    for number, (step, then) in enumerate(zip(stream["steps"], came, strict=True)):
        assert differences(step["then"], then, f"step {number}, {step['do']}") == []


@pytest.mark.parametrize("vector", GOOGLE["commands"], ids=by_name)
def test_files_of_google_rappor_are_read_and_decoded_as_they_were(vector: dict[str, Any]) -> None:
    came = google_rappor.command(vector["files"], vector["arguments"])
    assert differences({name: vector[name] for name in ("code", "out", "err")}, came) == []


def test_reports_of_google_rappor_are_imported_and_decoded_as_they_were() -> None:
    vector = GOOGLE["import"]
    assert differences(vector["pinned"], google_rappor.imported(vector["files"], vector["metric"])) == []


def test_no_planted_bug_has_gone(request: pytest.FixtureRequest) -> None:
    """A test that plants one may move or be renamed: then the list says where to. None may go without a word.

    Only files of which this run has not collected every one are collected again, with those that a soak alone runs.
    """
    here = {item.nodeid for item in request.session.items}
    away = [file for file, tests in BUGS.items() if not here.issuperset(f"{file}::{test}" for test in tests)]
    collected = planted.collect(away) if away else {}
    gone = {file: [test for test in BUGS[file] if test not in collected.get(file, ())] for file in away}
    assert {file: tests for file, tests in gone.items() if tests} == {}


def test_no_name_that_others_rely_on_has_gone() -> None:
    assert names.gone(load("names"), names.pinned()) == []


def test_a_name_that_goes_is_seen() -> None:
    pinned = {"commands": {"keys": ["create", "list"], "mark": ["add"]}}
    assert names.gone(pinned, {"commands": {"keys": ["create", "list", "show"], "mark": ["add"]}, "api": {}}) == []
    assert names.gone(pinned, {"commands": {"keys": ["create"]}}) == ["/commands/keys/list", "/commands/mark"]


def test_a_difference_is_seen() -> None:
    pinned = {"a": [1, 0.5, "x"], "b": True}
    assert differences(pinned, {"a": [1, 0.5 * (1 + 1e-13), "x"], "b": True}) == []
    for other in (
        {"a": [1, 0.5 * (1 + 1e-11), "x"], "b": True},
        {"a": [2, 0.5, "x"], "b": True},
        {"a": [1, 0.5], "b": True},
        {"a": [1, 0.5, "x"], "b": 1},
        {"a": [1, 0.5, "x"]},
        {"a": [1, 0.5, "x"], "b": True, "c": None},
    ):
        assert len(differences(pinned, other)) == 1


def test_every_test_that_says_it_plants_a_bug_is_listed_and_none_has_gone() -> None:
    """`python -m tests.pinned planted_names` lists them: the difference shows what goes."""
    assert planted.named() == load("planted_names")
