"""`dither device`: look at a device's file, see its budget, make it forget."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from dither.device.agreement import EVERYTHING, Agreement, Refusals, agreed_metrics
from dither.device.file import DeviceFile
from dither.device.outbox import Outbox, SendSchedule
from dither.device.recording import REASONS, SILENT_DAYS, Budget, Days, Silence, SkipReasons
from dither.device.schema import FILE_NAME, DeviceUnusable
from dither.starting import default_data_dir
from dither.status import day_of
from dither_shared.errors import DitherError
from dither_shared.exact import from_micro
from dither_shared.registry import Registry
from dither_shared.rng import SYSTEM
from dither_shared.terms import Terms

EXAMPLE = "dither device inspect ~/.local/share/dither/example"

_UNKNOWN = Registry("", Decimal(1_000), 0, {})
"""In place of the app's registry: by the file alone the terms count that were agreed to, and no `device_epsilon`."""
_ACTIONS = {
    "inspect": "show what a device keeps, and why it may be silent; it keeps no answer",
    "budget": "show what a device was charged, and what it may still be",
    "forget": "erase secret, memos and what waits; keep what was spent; be silent for 30 days",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary in _ACTIONS.items():
        example = f"example: dither device {name} ~/.local/share/dither/example"
        action = actions.add_parser(name, help=summary, description=summary.capitalize() + ".", epilog=example)
        action.add_argument(
            "directory",
            metavar="DIR",
            type=Path,
            help=f"the app's data_dir, or its folder in DITHER_DATA_DIR, with {FILE_NAME} in it",
        )
        action.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Open the device's file and do what is asked."""
    with _opened(args.directory) as file:
        if args.action == "forget":
            with file.transaction(durable=True):
                _Parts(file).outbox.forget_everything()
            erased = file.erase()
            document: dict[str, object] = {"silent_for_days": SILENT_DAYS, "erased": erased}
            lines = [f"forgotten: secret, memos, cohort, days of use and what waited; silent for {SILENT_DAYS} days"]
            if not erased:
                lines.append("another process reads the file, whose log still has it: the app goes on erasing")
        elif args.action == "budget":
            document = budget(file)
            lines = list(_budget_lines(document))
        else:
            document = inspect(file)
            lines = [f"{name.replace('_', ' '):17}  {_shown(value)}" for name, value in document.items()]
    print(json.dumps(document) if args.json else "\n".join(lines))
    return 0


@contextmanager
def _opened(directory: Path) -> Iterator[DeviceFile]:
    """Open a device's file that is there, and close it."""
    if not (directory / FILE_NAME).is_file():
        by_default = ""
        with suppress(RuntimeError):  # there is no home directory
            by_default = f", by default {default_data_dir('APP')}"
        raise DitherError(f"there is no {FILE_NAME} in {directory}: DIR is the data_dir of the app{by_default}")
    file = DeviceFile(directory, create=False)
    try:
        yield file
    except (KeyError, TypeError, ValueError, OverflowError):
        raise DeviceUnusable(f"the device file in {directory} holds what no device writes") from None
    finally:
        file.close()


class _Parts:
    """The parts of a device as the file alone has them, without the app's registry."""

    def __init__(self, file: DeviceFile) -> None:
        self.refusals = Refusals(file.directory)
        self.days = Days(file)
        self.agreement = Agreement(file, _UNKNOWN, self.refusals)
        budget = Budget(file, self.days, _UNKNOWN, self.agreement, SYSTEM)
        self.outbox = Outbox(file, self.days, budget, SYSTEM)
        self.skip_reasons = SkipReasons(file, self.days, self.agreement, budget, file.get("quiet_days") or 0)


def inspect(file: DeviceFile) -> dict[str, object]:
    """Return what the file holds, as plain values: no answer is among it."""
    with file.peek():
        state = dict(file.execute("SELECT key, value FROM state").fetchall())
        if "app" not in state:
            raise DeviceUnusable("the device file has no app: it was never used")
        used = file.execute("SELECT first, latest, days FROM used_days").fetchone()
        waiting = [row[0] for row in file.execute("SELECT metric FROM slot ORDER BY metric")]
        built = file.execute(
            "SELECT (SELECT COUNT(*) FROM report WHERE upload = id), charged, failures, first_attempt "
            "FROM upload ORDER BY place"
        ).fetchall()
        parts = _Parts(file)
        refused = sorted({*parts.agreement.refused(), *parts.refusals.pending} - {EVERYTHING})
        choice = 0 if EVERYTHING in parts.refusals.pending else state.get("consent")
        counts = file.counts()
        skips = {metric.name: parts.skip_reasons.nothing_leaves(metric) for metric in agreed_metrics(file)}
        silent_until = parts.days.forgotten_until()
        sending = SendSchedule(file).sending()
    return {
        "app": state["app"],
        "first_day": _day(state.get("first_day")),
        "last_day": _day(state.get("last_day")),
        "choice": {None: None, 0: "refused", 1: "agreed"}[choice],
        "refused": refused,
        "metrics": {
            name: {"silent": skip.reason.value if skip.reason else "", "until": _day(skip.until)}
            for name, skip in skips.items()
        },
        "silent_until": _day(silent_until or None),
        "erasing": bool(state.get("erasing")),
        "cohort": state.get("cohort"),
        "used": used and {"first": _day(used[0]), "latest": _day(used[1]), "days": used[2].bit_count()},
        "waiting": waiting,
        "built_uploads": [
            {"reports": reports, "charged": bool(charged), "failed_attempts": failures, "first_attempt": _moment(first)}
            for reports, charged, failures, first in built
        ],
        "last_outcome": sending.outcome or None,
        "last_attempt": _iso(sending.last),
        "next_attempt": _iso(sending.next),
        "counts": counts,
    }


def budget(file: DeviceFile) -> dict[str, object]:
    """Return what was charged and what was agreed to, in epsilon."""
    with file.peek():
        agreed_epsilon = file.get("agreed_epsilon") or 0
        spent = dict(file.execute("SELECT name, spent FROM metric").fetchall())
        terms = dict(file.execute("SELECT metric, terms FROM agreement WHERE terms <> ''").fetchall())
    lifetimes = {name: Terms.from_json(text).lifetime for name, text in terms.items()}
    return {
        "spent": from_micro(sum(spent.values())),
        "agreed": from_micro(agreed_epsilon),
        "metrics": [
            {
                "metric": name,
                "spent": from_micro(spent.get(name, 0)),
                "agreed": from_micro(lifetimes.get(name, 0)),
            }
            for name in sorted({*spent, *lifetimes})
        ],
    }


def _budget_lines(document: dict[str, object]) -> Iterator[str]:
    rows = document["metrics"]
    assert isinstance(rows, list)
    width = max([6, *(len(row["metric"]) for row in rows)])
    yield f"{'metric':{width}}  {'spent':>10}  {'agreed':>10}"
    for row in [*rows, {"metric": "device", **document}]:
        yield f"{row['metric']:{width}}  {row['spent']:10.6g}  {row['agreed']:10.6g}"


def _day(number: int | None) -> str | None:
    day = day_of(number)
    return None if day is None else day.isoformat()


def _iso(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat()


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _silence(metric: dict[str, str | None]) -> str:
    reason = Silence(metric["silent"]) if metric["silent"] else None
    until = f", until {metric['until']}" if metric["until"] else ""
    return f"{reason} ({REASONS[reason]}{until})" if reason else "answers"


def _shown(value: object) -> str:
    if isinstance(value, dict) and all(isinstance(each, dict) for each in value.values()):
        return "; ".join(f"{name}: {_silence(each)}" for name, each in value.items()) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{name} {count}" for name, count in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(_shown(item) if isinstance(item, dict) else str(item) for item in value) or "-"
    return "-" if value is None else str(value)
