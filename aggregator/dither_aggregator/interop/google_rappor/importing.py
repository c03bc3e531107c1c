"""Taking over reports that google/rappor's clients made: through the ordinary wire, as if devices sent them.

An upload's id is a digest of what the file holds and of the plan. So a second run, within the seven days that the
aggregator remembers ids, counts nothing twice, and a run that was cut off goes on where it was.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from dither.sending.transport import Answer, Outcome, Transport
from dither_aggregator.interop.google_rappor.files import Params, Report
from dither_shared.errors import DitherError, InvalidParameter
from dither_shared.mechanisms import RAPPOR
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.shapes import Bits
from dither_shared.wire import GROUPS_MAX, ID_BITS, REPORTS_MAX
from dither_shared.wire.writing import WireGroup, encode_upload, new_upload_id

REPORTS_AT_ONCE_MAX = 10_000_000
"""Reports of one file: they are held in memory, at about 200 bytes each."""
UPLOAD_BYTES = 96 * 1024
"""About the bytes of reports in one upload: padded to a power of two it stays below the wire's limit."""
ATTEMPTS = 5
WAIT_S = 2.0


@dataclass(frozen=True)
class Imported:
    """How many reports of a file were counted."""

    counted: int
    counted_before: int
    """By an earlier run with the same file."""


def plan_for(registry: Registry, metric: str, params: Params) -> Plan:
    """Return the plan of a text metric whose parameters are those of the file; raise DitherError where they differ."""
    asked = registry.metrics.get(metric)
    if asked is None:
        raise DitherError(f"the registry has no metric {metric!r}; it has {', '.join(registry.metrics)}")
    if asked.cells.name != RAPPOR.name:
        raise DitherError(f"metric {metric} must be of kind text, got {asked.kind.name}")
    try:
        of_file = RAPPOR.of_probabilities(params.k, params.h, params.f, params.p, params.q)
    except InvalidParameter as error:
        raise DitherError(f"reports with these parameters cannot be counted together with new ones: {error}") from None
    ours = {**asked.mechanism.parameters(), "m": asked.cells.count}
    theirs = {**of_file.parameters(), "m": params.m}
    if theirs != ours:
        differ = ", ".join(f"{name} {theirs[name]}, not {ours[name]}" for name in ours if ours[name] != theirs[name])
        raise DitherError(f"the file's parameters must be those of metric {metric}, got {differ}")
    return asked.plan


def import_reports(
    reports: Iterable[Report],
    plan: Plan,
    transport: Transport,
    on_upload: Callable[[int, int], None] = lambda done, total: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Imported:
    """Send reports and wait for each receipt. Raises DitherError when the aggregator does not take them.

    Calls `on_upload` with the reports that are done and all that there are, after each upload.
    """
    digest, by_cohort = _gather(reports, plan)
    total, done, before = sum(map(len, by_cohort.values())), 0, 0
    for number, groups in enumerate(_uploads(by_cohort, plan)):
        # One digest a place: uploads of a file differ, and those of the next run are the same.
        upload_id = new_upload_id(lambda bits, number=number: _number(digest, number, bits))  # type: ignore[misc]
        answer = _send(transport, upload_id, encode_upload(upload_id, groups), sleep)
        count = sum(len(group[2]) for group in groups)
        done += count
        before += count if answer.duplicate else 0
        on_upload(done, total)
    return Imported(total - before, before)


def _gather(reports: Iterable[Report], plan: Plan) -> tuple[bytes, dict[int, list[str]]]:
    """Return the digest of all reports, and each cohort's as they are on the wire."""
    shape = Bits(plan.mechanism.shape.size)
    digest = hashlib.sha256(f"{plan.metric} {plan.digest}".encode("ascii"))
    by_cohort: dict[int, list[str]] = {}
    for number, report in enumerate(reports):
        if number == REPORTS_AT_ONCE_MAX:
            raise DitherError(f"a file of at most {REPORTS_AT_ONCE_MAX:,} reports can be imported; split it")
        digest.update(f"\n{report.client!r} {report.cohort} {report.bits}".encode())
        by_cohort.setdefault(report.cohort, []).append(shape.to_wire(report.bits))
    return digest.digest(), by_cohort


def _number(digest: bytes, place: int, bits: int) -> int:
    assert bits == ID_BITS
    return int.from_bytes(hashlib.sha256(digest + place.to_bytes(8, "big")).digest()[: bits // 8], "big")


def _uploads(by_cohort: dict[int, list[str]], plan: Plan) -> Iterator[list[WireGroup]]:
    """Yield the groups of each upload, within the wire's limits, in the order of the cohorts."""
    width = max((len(report) + 3 for listed in by_cohort.values() for report in listed[:1]), default=1)
    room_max = min(REPORTS_MAX, UPLOAD_BYTES // width)
    groups: list[WireGroup] = []
    room = room_max
    for cohort, listed in sorted(by_cohort.items()):
        place = 0
        while place < len(listed):
            part = listed[place : place + room]
            groups.append((plan.metric, plan.digest, part, cohort if plan.cells.several else None))
            place += len(part)
            room -= len(part)
            if not room or len(groups) == GROUPS_MAX:
                yield groups
                groups, room = [], room_max
    if groups:
        yield groups


def _send(transport: Transport, upload_id: str, body: bytes, sleep: Callable[[float], None]) -> Answer:
    again = "run it again: what was taken is not counted twice"
    answer = transport.post(upload_id, body, lambda: None)
    for attempt in range(1, ATTEMPTS):
        if answer.outcome is not Outcome.KEPT:
            break
        sleep(WAIT_S * attempt)
        answer = transport.post(upload_id, body, lambda: None)
    if answer.outcome is Outcome.STOPPED:
        made_by = "`dither keys create write` makes one"
        raise DitherError(f"the aggregator did not take the key ({answer.detail}); {made_by}")
    if answer.outcome is not Outcome.ACCEPTED:
        raise DitherError(f"the aggregator did not take an upload ({answer.detail}); {again}")
    if answer.rejected:
        raise DitherError(f"the aggregator refused {answer.rejected} reports; is its registry this one? then {again}")
    return answer
