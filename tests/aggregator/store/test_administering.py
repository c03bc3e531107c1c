"""An admin key's rights over HTTP, on both kinds of store, and what the journal and the description say of them."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings

from dither_aggregator import counting as fold_module
from dither_aggregator.ingest import service as service_module
from dither_aggregator.ingest.service import WholeService
from dither_aggregator.store import Store
from dither_aggregator.web.api import CHANGES, OPERATIONS
from dither_shared.registry import Registry
from dither_shared.wire import PATH
from tests.support.aggregators import http_server, web_app
from tests.support.keys import bearer, write_key
from tests.support.reading_api import check_answer, operation_of
from tests.support.registries import registry, registry_text
from tests.support.soaking import scaled
from tests.support.stores import Place, SQLitePlace, body_of
from tests.support.waiting import wait_until

SCOPES = ("write", "read", "admin")


class Hands:
    """An aggregator over HTTP, in the hands of who has an admin key."""

    def __init__(self, url: str, store: Store) -> None:
        self.url, self.store = url, store
        self.key, text = store.create_key("admin", "of the tests")
        self._headers = bearer(text)

    def get(self, path: str, **parameters: object) -> list[dict[str, Any]]:
        address = f"{self.url}/v1/admin/{path}"
        answer = requests.get(address, params=parameters, headers=self._headers, timeout=60)  # type: ignore[arg-type]
        assert answer.status_code == 200, answer.text
        return self._rows(answer)

    def post(self, path: str, **body: object) -> list[dict[str, Any]]:
        answer = self.ask(path, json.dumps(body))
        assert answer.status_code == 200, answer.text
        return self._rows(answer)

    def refused(self, path: str, body: object) -> tuple[int, str]:
        answer = self.ask(path, body if isinstance(body, str | bytes) else json.dumps(body))
        return answer.status_code, answer.json()["detail"]

    def ask(self, path: str, body: str | bytes) -> requests.Response:
        sent = body.encode() if isinstance(body, str) else body
        return requests.post(f"{self.url}/v1/admin/{path}", data=sent, headers=self._headers, timeout=60)

    def journal(self) -> list[tuple[str, str]]:
        """Return what this key asked for."""
        entries = self.get("journal")
        now = datetime.now(UTC)
        assert all(abs(datetime.fromisoformat(entry["at"]) - now) < timedelta(days=3) for entry in entries)
        return [(entry["action"], entry["what"]) for entry in entries if entry["actor"] == self.key.id]

    def _rows(self, answer: requests.Response) -> list[dict[str, Any]]:
        assert answer.headers["Cache-Control"] == "no-store"
        document = answer.json()
        assert document["meta"] == {"app": "example"}
        rows: list[dict[str, Any]] = document["rows"]
        return rows


@pytest.fixture
def hands(place: Place, asked: Registry) -> Iterator[Hands]:
    with running(place, asked) as made:
        yield made


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "FOLD_EVERY_S", 0.05)


@contextmanager
def running(place: Place, asked: Registry) -> Iterator[Hands]:
    store = place.make(asked)
    with WholeService(store) as service:
        server = http_server(web_app(service))
        with server.in_background():
            yield Hands(server.url, store)


def test_a_registry_is_loaded_and_a_plan_retired_and_taken_again(hands: Hands) -> None:
    changed = registry_text(rev=2, values=("cyan", "ochre"))
    (color, dark) = hands.post("registry/load", registry=changed)
    assert (color["metric"], color["rev"], color["current"], color["retired"]) == ("color", 2, True, False)
    assert hands.post("registry/load", registry=changed) == []
    assert hands.post("plans/retire", metric="dark", rev=2) == [{**dark, "retired": True}]
    assert hands.post("plans/retire", metric="dark", rev=2, undo=True) == [dark]
    assert hands.refused("plans/retire", {"metric": "dark", "rev": 7}) == (
        422,
        "there is no rev 7 of metric 'dark'; there is 2, 1",
    )
    loaded = ("registry load", "example: color, dark")
    assert hands.journal() == [
        loaded,
        ("plan retire", "dark rev 2"),
        ("plan take again", "dark rev 2"),
    ]


def test_a_registry_that_comes_over_http_reads_no_file_of_the_server(hands: Hands, tmp_path: Path) -> None:
    (tmp_path / "secrets.txt").write_text("a secret\n")
    text = registry_text(rev=3).replace("values = [", f'values_file = "{tmp_path}/secrets.txt"\n# [')
    assert "values_file" in text
    status, detail = hands.refused("registry/load", {"registry": text})
    assert status == 422
    assert "only the registry's own text is here" in detail
    assert "a secret" not in detail
    assert [stored.plan.rev for stored in hands.store.plans("color")] == [1]


def test_quarantined_reports_are_listed_replayed_and_dropped(hands: Hands, asked: Registry) -> None:
    fold = fold_module.fold

    def fail(shape: Any, reports: bytes) -> Any:
        if b"\x03\x03\x03" in reports:
            raise ValueError("poison")
        return fold(shape, reports)

    headers = {**bearer(write_key(hands.store)), "Content-Type": "application/json"}
    with patch.object(fold_module, "fold", fail):
        for _ in range(2):
            body = body_of(asked, {"color": [3, 3, 3]})
            assert requests.post(hands.url + PATH, data=body, headers=headers, timeout=60).status_code == 202
            wait_until(lambda: not hands.store.backlog())
        held = hands.get("quarantine")
    assert [(row["metric"], row["rev"], row["reports"]) for row in held] == [("color", 1, 3)] * 2
    assert "poison" in held[0]["reason"]
    first, second = (row["id"] for row in held)
    assert hands.post("quarantine/replay", ids=[first]) == [{"id": first, "done": True}]
    settled = hands.post("quarantine/drop", ids=[second, "0-99"])
    assert settled == [{"id": second, "done": True}, {"id": "0-99", "done": False}]
    assert hands.get("quarantine") == []
    assert hands.journal() == [("quarantine replay", first), ("quarantine drop", second)]


def test_marks_are_added_and_removed(hands: Hands) -> None:
    day, mark = "2026-11-20", {"day": "2026-11-20", "text": "version 158"}
    assert hands.post("marks/add", **mark) == [mark]
    assert hands.post("marks/add", day=day, text="a holiday") == [{"day": day, "text": "a holiday"}, mark]
    assert hands.post("marks/remove", **mark) == [mark]
    assert hands.post("marks/remove", day=day) == [{"day": day, "text": "a holiday"}]
    assert hands.post("marks/remove", day=day) == []
    assert hands.refused("marks/add", {"day": day, "text": " "})[0] == 422
    assert hands.refused("marks/add", {"day": "tomorrow", "text": "x"}) == (
        400,
        "day must be a day such as 2027-06-30, got 'tomorrow'",
    )
    assert [action for action, _ in hands.journal()] == ["mark add", "mark add", *["mark remove"] * 2]


def test_keys_are_made_listed_and_revoked(hands: Hands, place: Place) -> None:
    (made,) = hands.post("keys/create", scope="write", label="version 158")
    text = made.pop("key")
    assert re.fullmatch(rf"dither_write_{made['id']}_[a-z2-7]{{32}}", text)
    assert made in hands.get("keys")
    assert text not in json.dumps(hands.get("keys"))
    found = hands.store.keys.find(text.encode())
    assert found
    assert found.id == made["id"]
    assert hands.post("keys/revoke", id=made["id"], wait=True) == [{**made, "state": "waiting"}]
    assert hands.post("keys/revoke", id=made["id"]) == [{**made, "state": "revoked"}]
    assert place.open().keys.by_id[made["id"]].state == "revoked"
    assert hands.refused("keys/revoke", {"id": "00000000"})[0] == 422
    for said in (text, f"{text}!", "\x1b[2J"):
        status, detail = hands.refused("keys/revoke", {"id": said}) if said != text else (422, "")
        assert status == 422
        assert text not in detail
    assert hands.refused("keys/create", {"scope": "root"}) == (400, "scope must be write or read or admin, got 'root'")
    assert hands.journal() == [
        ("key create", f"{made['id']} write version 158"),
        ("key revoke", f"{made['id']}, to wait"),
        ("key revoke", made["id"]),
    ]
    assert hands.get("journal", limit=1) == hands.get("journal")[-1:]


def test_a_key_that_revokes_itself_is_out(hands: Hands) -> None:
    hands.post("keys/revoke", id=hands.key.id)
    assert hands.ask("keys/create", '{"scope": "admin"}').status_code == 401


def test_a_body_that_is_no_good_is_refused_in_words(hands: Hands) -> None:
    no_utf8 = b'{"ids": ["\xff"]}'
    for body in ("", "[]", '"x"', "{", '{"ids": 1}', '{"ids": []}', '{"ids": ["0-1"], "more": 1}', "{}", no_utf8):
        status, detail = hands.refused("quarantine/drop", body)
        assert status == 400, body
        assert detail, body
        assert hands.journal() == [], body


# As described.

BOUNDED = settings(
    max_examples=scaled(2, 50),
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def described_hands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hands, dict[str, str]]]:
    """A running aggregator and a key of each scope."""
    place = SQLitePlace(tmp_path_factory.mktemp("described"))
    with running(place, registry()) as made:
        yield made, {scope: made.store.create_key(scope)[1] for scope in SCOPES}
    place.close()


@pytest.mark.parametrize("operation", [*OPERATIONS, *CHANGES], ids=lambda operation: operation.name)
def test_every_operation_answers_each_scope_as_described(
    described_hands: tuple[Hands, dict[str, str]], operation: Any
) -> None:
    """A key of each scope asks over HTTP for everything that the description allows."""
    hands, keys = described_hands
    document = requests.get(f"{hands.url}/openapi.json", headers=bearer(keys["read"]), timeout=60).json()
    path = "/v1" + re.sub("<(.*?)>", r"{\1}", operation.address)
    allowed = {"admin"} if operation in CHANGES else {"read", "admin"}
    said = {each for one in document["paths"][path][operation.method.lower()]["security"] for each in one}
    assert {f"{scope}Key" for scope in allowed} == said
    statuses: dict[str, set[int]] = {scope: set() for scope in SCOPES}

    @BOUNDED
    @given(operation_of(document, operation).as_strategy())
    def ask_it(case: Any) -> None:
        if "metric" in case.path_parameters:
            case.path_parameters["metric"] = "color"
        for scope, text in keys.items():
            response = case.call(base_url=hands.url, headers=bearer(text))
            check_answer(case, response)
            statuses[scope].add(response.status_code)

    ask_it()
    for scope, seen in statuses.items():
        assert seen
        assert seen <= {200, 400, 404, 422} if scope in allowed else seen == {403}, (scope, seen)
