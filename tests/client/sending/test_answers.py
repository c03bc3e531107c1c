"""Answers to an upload: which of them end it, and which keep it."""

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dither.app_process import say
from dither.device.outbox import NO_ANSWER_YET
from dither.sending.transport import Answer, DryRun, Outcome, read_answer, read_date
from dither.status import CLOSED
from dither_shared.wire import GROUPS_MAX
from dither_shared.wire.reading import Refusal, all_refused
from tests.support.posting import ID, RECEIPT, ours


def read(status: int, content: bytes, retry_after: str = "", **others: str) -> Answer:
    return read_answer(status, {**({"Retry-After": retry_after} if retry_after else {}), **others}, content, ID)


def test_a_receipt_for_this_upload_ends_it() -> None:
    assert read(202, RECEIPT) == Answer(Outcome.ACCEPTED, "accepted", rejected=0)
    rejected = json.dumps({"upload": ID, "rejected": [{"count": 2}, {"count": 1}, {"count": "9"}, 4]}).encode()
    assert read(202, rejected).rejected == 3


def test_the_readme_has_a_next_step_for_what_a_flush_may_say() -> None:
    table = (Path(__file__).parents[3] / "client" / "README.md").read_text("utf-8").partition("`flush().detail`")[2]
    dry = DryRun().post(ID, b"{}", lambda: None).detail
    refused = read(405, ours("method-not-allowed")).detail
    for detail in (NO_ANSWER_YET, CLOSED, dry, refused, read(405, b"").detail):
        assert f"`{detail}`" in table
    assert "`no answer (REQUESTS_CA_BUNDLE must be ...)`" in table


def test_a_servers_own_problem_is_told_in_a_line_that_controls_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    detail = read(503, ours("\x1b[7mno\nall is well\u202e" + "x" * 999)).detail
    assert detail == read(503, b"").detail  # no word of ours: nothing of it is repeated
    with caplog.at_level(logging.INFO, logger="dither"):
        say(logging.WARNING, "%s of %d: %s", "a\x9bb", 3, ValueError("one\nother"))
    assert caplog.messages == [r"a\u{9b}b of 3: one\u{a}other"]


def test_only_reasons_of_the_wire_are_repeated() -> None:
    """A server's other words are nobody's to log."""
    rejected = [{"reason": "your answer was red"}, {"reason": ["x"]}, {"reason": "unknown-plan", "count": 1}, 3]
    assert read(422, ours("refused", rejected=rejected)).detail == "422 refused: unknown-plan"
    assert read(422, ours("refused", rejected=rejected[:2])).detail == "422 refused"
    some = json.dumps({"upload": ID, "rejected": rejected}).encode()
    assert read(202, some) == Answer(Outcome.ACCEPTED, "accepted, but not all: unknown-plan", rejected=1)


@pytest.mark.parametrize("status", [400, 409, 410, 411, 414, 415, 422, 431])
def test_a_definite_refusal_in_our_words_ends_it(status: int) -> None:
    assert read(status, ours()).outcome is Outcome.DROPPED


RETIRED: dict[str, object] = {"group": 3, "reason": "retired", "count": 1}
ODD: list[object] = ["retired", True, -1, 50, 2**80, 3.0, "3", None, [3], {}]
NO_LISTS: list[object] = [None, 3, "retired", RETIRED, {"3": RETIRED}, [], True]


@pytest.mark.parametrize(
    ("rejected", "retired"),
    [
        ([RETIRED], (3,)),
        ([{**RETIRED, "group": group} for group in (9, 0, 49, 9)], (0, 9, 49)),
        ([{**RETIRED, "reason": reason} for reason in ("expired", "Retired", ["retired"], *ODD[1:])], ()),
        ([{**RETIRED, "group": group} for group in ODD], ()),
        ([{"reason": "retired"}, 3, "retired", None, [RETIRED], {}, RETIRED], (3,)),
        ([{**RETIRED, "group": group} for group in range(-999, 999)], tuple(range(GROUPS_MAX))),
        *((no_list, ()) for no_list in NO_LISTS),
    ],
)
def test_a_refusal_names_the_groups_whose_plans_are_retired(rejected: object, retired: tuple[int, ...]) -> None:
    assert read(202, json.dumps({"upload": ID, "rejected": rejected}).encode()).retired == retired
    assert read(422, ours("refused", rejected=rejected)).retired == retired
    # Without a list that can be read it is every group: that is what this type says.
    assert read(410, ours("retired", rejected=rejected)).retired == (retired or tuple(range(GROUPS_MAX)))
    assert read(410, ours("expired", rejected=rejected)).retired == retired
    for status in (403, 413, 503):
        assert read(status, ours("retired", rejected=rejected)).retired == ()
    assert read(410, json.dumps({"type": "about:blank", "rejected": rejected}).encode()).retired == ()


def test_what_the_aggregator_says_of_retired_plans_is_read() -> None:
    both = [Refusal(0, "retired", 1), Refusal(2, "expired", 1), Refusal(4, "retired", 2)]
    for refused, detail, retired in [
        (both, "422 refused: expired, retired", (0, 4)),
        (both[::2], "410 retired", (0, 4)),
    ]:
        refusal = all_refused(refused)
        answer = read(refusal.status, json.dumps(refusal.to_document()).encode())
        assert (answer.outcome, answer.detail, answer.retired) == (Outcome.DROPPED, detail, retired)


def test_a_definite_413_asks_for_halves() -> None:
    assert read(413, ours("too-large")).outcome is Outcome.TOO_LARGE
    assert read(413, b"<html>").outcome is Outcome.KEPT


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_stops_sending(status: int) -> None:
    assert read(status, ours("key-wrong")) == Answer(Outcome.STOPPED, f"{status} key-wrong")


@pytest.mark.parametrize("status", [404, 405, 408, 429, 500, 502, 503, 504, 507])
def test_other_statuses_keep_it(status: int) -> None:
    assert read(status, ours()).outcome is Outcome.KEPT


def test_without_a_document_of_ours_nothing_ends_it() -> None:
    """Every status, with and without our words, is held against a second device: second/test_devices.py."""
    foreign = (b"<html>Welcome to the hotel</html>", b"[]", b'{"type": "about:blank"}')
    for content in (b"", RECEIPT[:-1], b"\xff", b"[" * 9999, *foreign):
        for status in (200, 202, 204, 301, 302, 400, 401, 403, 409, 410, 413, 422, 500, 503):
            assert read(status, content).outcome is Outcome.KEPT


def test_a_late_copy_is_told_no_counts_and_that_ends_it() -> None:
    """So the aggregator answers once the day is sealed on which it took the upload."""
    late = json.dumps({"upload": ID, "accepted": 0, "duplicate": True, "rejected": []}).encode()
    answer = read_answer(202, {}, late, ID)
    assert (answer.outcome, answer.duplicate, answer.rejected, answer.retired) == (Outcome.ACCEPTED, True, 0, ())


def test_a_receipt_for_another_upload_does_not_end_it() -> None:
    assert read(202, RECEIPT.replace(ID.encode(), b"BBBBBBBBBBBBBBBBBBBBBA")).outcome is Outcome.KEPT
    assert read(200, RECEIPT).outcome is Outcome.KEPT


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", 0),
        ("0", 60),
        ("60", 60),
        ("61", 600),
        ("3600", 3600),
        ("7200", 21_600),
        ("99999", 86_400),
        ("-5", 0),
        ("soon", 0),
        ("9" * 5000, 86_400),
        ("0" * 5000 + "61", 600),
        (" 61\t", 600),
        ("1.5", 0),
    ],
)
def test_retry_after_is_rounded_up_to_a_few_steps(header: str, seconds: float) -> None:
    assert read(503, ours(), header).retry_after_s == seconds


@pytest.mark.parametrize("name", ["retry-after", "RETRY-AFTER"])
def test_a_headers_name_may_have_any_case(name: str) -> None:
    assert read(503, ours(), **{name: "61"}).retry_after_s == 600


NOW = datetime(2026, 11, 6, 8, 49, 37, tzinfo=UTC)
FORMS = {"IMF-fixdate": "%a, %d %b %Y %H:%M:%S GMT", "RFC 850": "%A, %d-%b-%y %H:%M:%S GMT", "asctime": "%c"}
"""The three forms of a moment in HTTP. A day before the tenth has a blank in the last one, as %c writes it."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("date", FORMS)
def test_a_moment_in_any_form_counts_from_the_answers_own_date(form: str, date: str) -> None:
    for wait_s, seconds in ((-5_000_000, 60), (0, 60), (61, 600), (600, 600), (86_401, 86_400), (90 * 86_400, 86_400)):
        moment = NOW + timedelta(seconds=wait_s)
        said = read(503, ours(), moment.strftime(FORMS[form]), Date=NOW.strftime(FORMS[date]))
        assert said.retry_after_s == seconds


def test_a_moment_counts_from_the_devices_clock_where_an_answer_has_no_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", NOW.timestamp)
    assert read(503, ours(), "Fri, 06 Nov 2026 08:50:38 GMT").retry_after_s == 600
    assert read(503, ours(), "Fri, 06 Nov 2026 08:50:38 GMT", Date="soon").retry_after_s == 600


@pytest.mark.parametrize(
    ("text", "year"),
    [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 1994),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 1994),  # more than 50 years to come: it is past
        ("Sun Nov  6 08:49:37 1994", 1994),
        ("Wed, 06 Nov 2030 08:49:60 GMT", 2030),
        ("Wednesday, 06-Nov-30 08:49:37 GMT", 2030),
        ("Wed Nov 16 08:49:37 2030", 2030),
        *((text, None) for text in [
            "", "1994", "Sun, 6 Nov 1994 08:49:37 GMT", "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 31 Feb 1994 08:49:37 GMT", "Sun Nov 6 08:49:37 1994",
            "Sun, 06 Nov 1994 24:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 06 Nov 1994 08:49:37 GMT, soon",
            "Sun, 06 Nov 0000 08:49:37 GMT", "Sun, 0\N{ARABIC-INDIC DIGIT SIX} Nov 1994 08:49:37 GMT",
        ]),
    ],
)  # fmt: skip
def test_a_moment_in_http_has_three_forms_and_no_other(text: str, year: int | None) -> None:
    moment = read_date(text)
    assert (None if moment is None else datetime.fromtimestamp(moment, UTC).year) == year
