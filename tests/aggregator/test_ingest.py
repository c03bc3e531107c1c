"""The upload address as plain WSGI: what it answers, and what it never lets out."""

import io
import json
import logging
from concurrent.futures import Future
from typing import Any

import pytest
from werkzeug.test import Client, TestResponse

from dither_aggregator.service import Submitted
from dither_aggregator.store import Receipt
from dither_aggregator.web import ingest
from dither_aggregator.web.ingest import reports_app
from dither_shared.wire import PATH, PROBLEM_PREFIX, WIRE_BYTES_MAX
from dither_shared.wire.reading import GroupRefused

KEY = "k" * 43
ID = "AAECAwQFBgcICQoLDA0ODw"


class Asked:
    """A service that takes every upload, or fails, or never says."""

    def __init__(self, error: Exception | None = None, hangs: bool = False) -> None:
        self.hangs = hangs
        self.store = self
        self.key = KEY
        self.error = error

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


def post(service: Asked, data: bytes = b"", stream: io.BytesIO | None = None, **environ: str) -> TestResponse:
    given = {"HTTP_AUTHORIZATION": f"Bearer {KEY}", "CONTENT_TYPE": "application/json"}
    client = Client(reports_app(service))  # type: ignore[arg-type]
    return client.post(PATH, data=data, input_stream=stream, environ_overrides={**given, **environ})


def test_a_receipt_is_json_of_a_stated_length_that_nobody_sniffs() -> None:
    answer = post(Asked(), body())
    assert answer.status == "202 ACCEPTED"
    assert (answer.content_type, answer.headers["X-Content-Type-Options"]) == ("application/json", "nosniff")
    assert answer.content_length == len(answer.data)
    assert answer.json == {
        "upload": ID,
        "accepted": 0,
        "duplicate": False,
        "rejected": [{"group": 0, "reason": "unknown-metric", "count": 1}],
    }


@pytest.mark.parametrize(
    ("environ", "status", "slug"),
    [
        ({"CONTENT_LENGTH": ""}, 411, "length-required"),
        ({"CONTENT_LENGTH": "-1"}, 411, "length-required"),
        ({"CONTENT_LENGTH": "\u0663"}, 411, "length-required"),
        ({"CONTENT_LENGTH": str(WIRE_BYTES_MAX + 1)}, 413, "too-large"),
        ({"CONTENT_LENGTH": "9" * 5000}, 413, "too-large"),
        ({"CONTENT_TYPE": "application/jsonp"}, 415, "unsupported-media-type"),
        ({"HTTP_CONTENT_ENCODING": "deflate"}, 415, "unsupported-media-type"),
        ({"HTTP_AUTHORIZATION": ""}, 401, "key-missing"),
        ({"HTTP_AUTHORIZATION": f"Bearer {KEY}, Bearer {KEY}"}, 403, "key-wrong"),
    ],
)
def test_a_refusal_is_a_problem_document(environ: dict[str, str], status: int, slug: str) -> None:
    answer = post(Asked(), body(), None, **environ)
    assert (answer.status_code, answer.content_type) == (status, "application/problem+json")
    assert answer.json
    assert answer.json["type"] == PROBLEM_PREFIX + slug
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers.get("WWW-Authenticate") == ("Bearer" if status == 401 else None)


def test_a_store_that_does_not_answer_keeps_the_upload_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "ACKNOWLEDGE_WITHIN_S", 0.05)
    answer = post(Asked(hangs=True), body())
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "60")


def test_a_media_type_may_have_parameters() -> None:
    assert post(Asked(), body(), CONTENT_TYPE="Application/JSON; charset=utf-8").status_code == 202


def test_a_body_that_broke_off_is_no_fault_of_the_uploads() -> None:
    """An answer that made the device drop it would lose a good upload to a bad connection."""
    answer = post(Asked(), stream=io.BytesIO(body()[:-1]), CONTENT_LENGTH=str(len(body())))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "60")


def test_a_body_is_read_to_its_length_and_no_further() -> None:
    stream = io.BytesIO(body() + b"of the next request")
    assert post(Asked(), stream=stream, CONTENT_LENGTH=str(len(body()))).status_code == 202
    assert stream.read() == b"of the next request"


def test_a_bug_keeps_the_upload_on_the_device_and_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answer = post(Asked(RuntimeError("with secret-answer in its words")), body())
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "60")
    assert answer.json
    assert answer.json["type"] == PROBLEM_PREFIX + "unavailable"
    assert "RuntimeError" in caplog.text
    assert "find_plan" in caplog.text
    assert "secret-answer" not in caplog.text
    assert b"secret-answer" not in answer.data
