"""The page of doors: each test that it names is there, and its figures are those of the code."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from dither.sending import connection as sending
from dither.sending.upload_thread import LOG_BYTES_MAX
from dither_aggregator.arguments import serving, settings
from dither_aggregator.ask import answering, language
from dither_aggregator.commands import report
from dither_aggregator.health import capacity, diagnosis
from dither_aggregator.ingest import service
from dither_aggregator.operations import registry_process
from dither_aggregator.store import dump
from dither_aggregator.store.document_kinds import MARK_CHARACTERS_MAX, MARKS_MAX
from dither_aggregator.web import (
    addresses,
    authentication,
    embed_links,
    endpoints,
    http_messages,
    http_server,
    process_messages,
    queries,
    query_parameters,
    reader_pool,
    request_admission,
    request_limits,
)
from dither_aggregator.web.api.administering import IDS_MAX
from dither_aggregator.web.api.estimates import VALUES_MAX as NAMED_MAX
from dither_aggregator.workers import candidate_jobs
from dither_aggregator.workers.tasks import FLOOD
from dither_aggregator.workers.worker import MESSAGE_BYTES_MAX
from dither_shared import files, registry, wire
from dither_shared.domains import VALUE_CHARACTERS_MAX
from dither_shared.kinds.kind import CANDIDATES_MAX
from dither_shared.kinds.listed import VALUES_MAX
from dither_shared.wire import reading

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "shared" / "doors.md"
KIB, MIB = 1024, 1024 * 1024
FIGURES: dict[str, list[tuple[str, float]]] = {
    "a connection": [
        ("a head {} KiB", http_server.HEADER_BYTES_MAX / KIB),
        ("a body {} MiB", http_server.BODY_BYTES_MAX / MIB),
        ("not whole {} MiB", http_messages.BODY_BYTES_MAX / MIB),
        ("not read {} MiB", http_messages.ANSWER_BYTES_MAX / MIB),
        ("{} connections", http_messages.CONNECTIONS_MAX),
        ("{} requests ahead", http_server.PIPELINED_MAX),
        ("a request {} s", http_server.REQUEST_WITHIN_S),
        ("an answer {} s", http_server.STALLED_FOR_S),
        ("{} s in all", http_server.ANSWERED_WITHIN_S),
        ("{} s between requests", http_server.IDLE_WITHIN_S),
    ],
    "`POST /v1/reports`: its head": [
        ("{} KiB are let by", http_server.UNWANTED_BYTES_MAX / KIB),
        ("{} a second", request_limits.SECOND_NS / request_limits.BY_ADDRESS.interval_ns),
        ("{} at once", request_limits.BY_ADDRESS.burst),
        ("{} wait to be folded", capacity.BACKLOG_UPLOADS_MAX),
    ],
    "the upload itself": [
        ("{} KiB", wire.WIRE_BYTES_MAX / KIB),
        ("inflated {} MiB", wire.INFLATED_BYTES_MAX / MIB),
        ("{} groups", wire.GROUPS_MAX),
        ("{} reports", wire.REPORTS_MAX),
        ("{} commas", reading.VALUES_MAX),
        ("{} uploads", service.WAITING_UPLOADS_MAX),
        ("{} MiB wait", service.WAITING_BYTES_MAX / MIB),
        ("for {} s", endpoints.ACKNOWLEDGE_WITHIN_S),
    ],
    "pages and API: addresses and queries": [
        ("a head of {} KiB", http_server.HEADER_BYTES_MAX / KIB),
        ("{} requests wait", reader_pool.WAITING_MAX),
        ("{} days", query_parameters.DAYS_MAX),
        ("{} values by name", NAMED_MAX),
        ("{} s until its turn", reader_pool.WAIT_WITHIN_S),
        ("{} s for an answer", reader_pool.ANSWER_WITHIN_S),
    ],
    "`/embed`": [
        ("a head of {} KiB", http_server.HEADER_BYTES_MAX / KIB),
        ("at most {} days", embed_links.DAYS_MAX),
    ],
    "the webhook that `dither report` posts to": [
        ("{} KiB", sending.ANSWER_BYTES_MAX / KIB),
        ("attempts of {} s", report.POST_WITHIN_S),
    ],
    "questions: `/ask`, `/v1/query`": [
        ("a head of {} KiB", http_server.HEADER_BYTES_MAX / KIB),
        ("a body {} KiB", process_messages.ASKED_BYTES_MAX / KIB),
        ("{} questions of", queries.QUESTIONS_MAX),
        ("of {} characters", language.CHARACTERS_MAX),
        ("each of {} parts", language.TERMS_MAX),
        ("{} parts times", answering.WORK_MAX),
        ("{} days", answering.WINDOW_DAYS_MAX),
    ],
    "posted candidates": [
        ("{} MiB", http_server.BODY_BYTES_MAX / MIB),
        ("{} texts", CANDIDATES_MAX),
        ("of {} characters", VALUE_CHARACTERS_MAX),
        ("more than {} one", reader_pool.CANDIDATES_MAX),
        ("{} s", reader_pool.LONG_WITHIN_S),
    ],
    "`X-Forwarded-For`": [("last {} addresses", request_limits.HOPS_MAX)],
    "`X-Forwarded-Prefix`": [("a path of {} characters", addresses.BASE_PATH_CHARACTERS_MAX)],
    "`/login`": [
        ("{} KiB", authentication.FORM_BYTES_MAX / KIB),
        ("{} fields", authentication.FIELDS_MAX),
        ("{} at once", request_limits.FAILED_LOGINS.burst),
        ("one in {} s", request_limits.FAILED_LOGINS.interval_ns / request_limits.SECOND_NS),
        ("{} at once and 5", request_limits.ALL_FAILED_LOGINS.burst),
        ("{} a second in all", request_limits.SECOND_NS / request_limits.ALL_FAILED_LOGINS.interval_ns),
        ("after {} hours", authentication.SESSION_S / 3600),
    ],
    "`/v1/admin`, keys and marks": [
        ("{} KiB by its", process_messages.ASKED_BYTES_MAX / KIB),
        ("{} ids", IDS_MAX),
        ("{} marks", MARKS_MAX),
        ("of {} characters", MARK_CHARACTERS_MAX),
    ],
    "health": [
        ("bodies {} KiB", http_messages.HEALTH_BODY_BYTES_MAX / KIB),
        ("{} connections", http_messages.HEALTH_CONNECTIONS_MAX),
    ],
    "key files": [("{} KiB", serving.FILE_BYTES_MAX / KIB)],
    "settings: file, variables, flags": [
        ("{} KiB", settings.FILE_BYTES_MAX / KIB),
        ("a secret {} KiB", settings.SECRET_BYTES_MAX / KIB),
    ],
    "a registry and its `values_file`": [
        ("{} MiB", registry.REGISTRY_BYTES_MAX / MIB),
        ("{} metrics", registry.METRICS_MAX),
        ("{} values", VALUES_MAX),
        ("{} parts of keys, lists and tables", files.KEYS_MAX),
        ("{} items", files.ITEMS_MAX),
        ("keys of {} parts", files.KEY_PARTS_MAX),
    ],
    "a registry over `/v1/admin`, or at a SIGHUP": [
        ("{} MiB over HTTP", http_server.BODY_BYTES_MAX / MIB),
        ("with {} MiB", registry_process.MEMORY_BYTES_MAX / MIB),
        ("{} s of a processor", registry_process.PROCESSOR_S),
        ("{} s by the clock", registry_process.READ_WITHIN_S),
    ],
    "the records of a backup": [
        ("a line {} MiB", dump.LINE_BYTES_MAX / MIB),
        ("{} values in a line", dump.VALUES_MAX),
    ],
    "the broker's queues": [("a message {} KiB", MESSAGE_BYTES_MAX / KIB), ("{} that wait", FLOOD)],
    "a long list that the broker carries, and its answer": [
        ("a list {} MiB", http_server.BODY_BYTES_MAX / MIB),
        ("an answer {} MiB", http_messages.ANSWER_BYTES_MAX / MIB),
        ("{} KiB around it", candidate_jobs.HEADS_BYTES_MAX / KIB),
    ],
    "the server that `dither doctor` asks": [
        ("{} KiB as they come", sending.ANSWER_BYTES_MAX / KIB),
        ("{} checks", diagnosis.SERVERS_CHECKS_MAX),
        ("{} characters", diagnosis.SERVERS_WORDS_MAX),
        ("{} s for each", diagnosis.ASK_WITHIN_S),
    ],
    "a server's or proxy's answer": [
        ("{} KiB as they come", sending.ANSWER_BYTES_MAX / KIB),
        ("{} s for all", sending.EXCHANGE_TIMEOUT_S),
    ],
    "the file, its log, its lock": [("log {} KiB", LOG_BYTES_MAX / KIB)],
}


def doors() -> dict[str, list[str]]:
    """Return the cells of each row of the tables of doors, by the first."""
    tables = PAGE.read_text(encoding="utf-8").partition("\n## Directories")[0]
    rows = [line.strip("| ").split(" | ") for line in tables.splitlines() if line.startswith("| ")]
    return {first: cells for first, *cells in rows if first != "door"}


@cache
def names_of(file: str) -> frozenset[str]:
    tree = ast.walk(ast.parse((TESTS / file).read_text(encoding="utf-8")))
    return frozenset(node.name for node in tree if isinstance(node, ast.FunctionDef))


def missing(held: str) -> list[str]:
    """Return the tests of a cell that are not there; its whole where it names none."""
    found = re.findall(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)", held)
    named = [(file, name) for file, names in found for name in re.findall(r"\w+", names)]
    absent = [name for file, name in named if not (TESTS / file).exists() or name not in names_of(file)]
    return absent if named and len(named) == len(re.findall(r"`test_\w+`", held)) else [held]


@pytest.mark.parametrize("door", doors())
def test_each_door_is_held_by_tests_that_are_there(door: str) -> None:
    assert missing(doors()[door][-1]) == []


def test_a_test_that_is_gone_is_missed() -> None:
    assert missing("`test_doors.py`: `test_a_test_that_is_gone_is_missed`, `test_gone`") == ["test_gone"]
    assert missing("`gone.py`: `test_gone`") == ["test_gone"]
    assert missing("nothing") == ["nothing"]


@pytest.mark.parametrize("door", FIGURES)
def test_the_figures_of_a_door_are_those_of_the_code(door: str) -> None:
    said = " | ".join(doors()[door][:-1])
    for words, figure in FIGURES[door]:
        wanted = re.escape(words.format(f"{figure:,.0f}"))
        assert re.search(rf"(?<![\d,.]){wanted}", said), (door, words, figure)
    assert http_messages.SHARE == 3 / 4
    assert request_admission.NETWORK_RATE == 4
