"""The upload address: what it answers, and what it never lets out."""

import asyncio
import gzip
import json
import logging
from concurrent.futures import Future
from datetime import date
from typing import Any

import pytest

from dither_aggregator.ingest.service import Submitted
from dither_aggregator.store import Receipt
from dither_aggregator.store.document_kinds import Keys
from dither_aggregator.web import endpoints
from dither_aggregator.web.authentication import shown_key
from dither_aggregator.web.endpoints import create_app
from dither_aggregator.web.http_messages import HttpAnswer, Scope, headers_of
from dither_shared.wire import PATH, PROBLEM_PREFIX, WIRE_BYTES_MAX
from dither_shared.wire.reading import GroupRefused, Problem

KEY = "0123456789abcdef" * 2 + "fedcba98"
ID = "AAECAwQFBgcICQoLDA0ODw"


class Asked:
    """A service that takes every upload, or fails, or never says."""

    def __init__(self, error: Exception | None = None, hangs: bool = False) -> None:
        self.hangs = hangs
        self.store = self
        self.keys = Keys([], 0, b"secret")
        self.keys = Keys(self.keys.adding("write", KEY, "", date(2026, 11, 20)), 1, b"secret")
        self.error = error

    def signing_secret(self, purpose: bytes) -> bytes:
        return purpose

    def key_shown(self, id_: str) -> None:
        assert id_ in self.keys.by_id

    def find_plan(self, metric: str, digest: str) -> Any:
        if self.error:
            raise self.error
        raise GroupRefused("unknown-metric")

    def submit(self, upload: Any, body: bytes) -> Submitted:
        submitted: Submitted = Future()
        if not self.hangs:
            refused = [refusal.to_document() for refusal in upload.refused]
            submitted.set_result(Receipt(upload.id, 0, False, refused))
        return submitted


def body(reports: object = "secret-answer") -> bytes:
    group = {"metric": "dark", "plan": "0" * 16, "reports": [reports]}
    return json.dumps({"v": 1, "upload": ID, "groups": [group]}).encode()


def post(service: Asked, data: bytes = b"", **changed: str | None) -> tuple[int, dict[str, str], Any]:
    """Return the status of the answer to an upload, its headers, and its document."""
    given = {"authorization": f"Bearer {KEY}", "content_type": "application/json", "content_length": str(len(data))}
    named = {**given, **changed}.items()
    headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in named if value is not None]
    scope = {"method": "POST", "path": PATH, "headers": headers, "state": {}}
    answer: HttpAnswer = asyncio.run(create_app(service, nobody)(scope, data))  # type: ignore[arg-type]
    fields = {name.decode(): value.decode() for name, value in answer.headers}
    return answer.status, fields, json.loads(answer.content)


async def nobody(scope: Scope, body: bytes) -> HttpAnswer:
    raise AssertionError("nobody reads")


def test_a_receipt_is_json_that_nobody_sniffs() -> None:
    status, fields, document = post(Asked(), body())
    assert status == 202
    assert fields == {"content-type": "application/json", "x-content-type-options": "nosniff"}
    assert document == {
        "upload": ID,
        "accepted": 0,
        "duplicate": False,
        "rejected": [{"group": 0, "reason": "unknown-metric", "count": 1}],
    }


@pytest.mark.parametrize("length", [WIRE_BYTES_MAX, WIRE_BYTES_MAX + 1])
def test_a_body_may_have_so_many_bytes(length: int) -> None:
    assert post(Asked(), body().ljust(length))[0] == (202 if length == WIRE_BYTES_MAX else 413)


def test_keys_that_come_twice_are_none() -> None:
    headers = [(b"authorization", b"Bearer wrong"), (b"authorization", f"Bearer {KEY}".encode())]
    with pytest.raises(Problem, match="no such key"):
        shown_key(Asked().keys.find, headers_of({"headers": headers})[b"authorization"], ["write"])


def test_a_store_that_does_not_answer_keeps_the_upload_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "ACKNOWLEDGE_WITHIN_S", 0.05)
    status, fields, _ = post(Asked(hangs=True), body())
    assert (status, fields["retry-after"]) == (503, "60")


@pytest.mark.parametrize(
    "said", ["Application/JSON; charset=utf-8", " application/json\t;charset=utf-8", "application/json;"]
)
def test_a_media_type_may_have_parameters(said: str) -> None:
    assert post(Asked(), body(), content_type=said)[0] == 202


@pytest.mark.parametrize("said", ["gzip", "GZip", "x-gzip", "identity, gzip", ", gzip\t,", "gzip,identity"])
def test_a_coding_is_a_list_of_words_in_any_case(said: str) -> None:
    """As RFC 9110 has lists, x-gzip, and identity."""
    assert post(Asked(), gzip.compress(body()), content_encoding=said)[0] == 202


@pytest.mark.parametrize("said", ["", "identity", ",", "identity, IDENTITY"])
def test_no_coding_is_none(said: str) -> None:
    assert post(Asked(), body(), content_encoding=said)[0] == 202


@pytest.mark.parametrize("said", ["br", "gzip, gzip", "gzip, br", "gzip;q=1", "*", "x-gzip, gzip"])
def test_other_codings_and_two_of_them_are_refused(said: str) -> None:
    assert post(Asked(), gzip.compress(body()), content_encoding=said)[0] == 415


def test_a_bug_keeps_the_upload_on_the_device_and_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        status, fields, document = post(Asked(RuntimeError("with secret-answer in its words")), body())
    assert (status, "retry-after" in fields) == (500, False)
    assert document["type"] == PROBLEM_PREFIX + "failed"
    assert "RuntimeError" in caplog.text
    assert "find_plan" in caplog.text
    assert "secret-answer" not in caplog.text
    assert "secret-answer" not in str(document)
