"""The checks that `dither doctor` reads: of a store, of the machine that it runs on, and of a server if there is one.

Nothing is changed, and the store may be in use meanwhile.
"""

import json
import os
import platform
import resource
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from dither.sending.connection import get
from dither_aggregator.analysis.closed_days import ALPHA, days
from dither_aggregator.analysis.reading import Window
from dither_aggregator.health.checks import HealthCheck, HealthFinding, Observed, Teller, found, told
from dither_aggregator.health.status import REASONS_IN_WORDS, SOON, Audit, Expiries, StoreStatus
from dither_aggregator.store import Store, is_redis, open_store
from dither_aggregator.store.records import OtherLayout, sum_refused
from dither_aggregator.store.sqlite.schema import NAMES
from dither_aggregator.web import http_messages
from dither_shared import files
from dither_shared.errors import DitherError
from dither_shared.safe_output import visible

_UNREADABLE = (DitherError, ValueError)
FAULTS_SHOWN = 3
REFUSED_DAYS = 2
"""Today and the day before."""
ASK_WITHIN_S = 10.0
SERVERS_WORDS_MAX = 500
"""Characters of each of a server's words that are shown."""
SERVERS_CHECKS_MAX = 50
ALWAYS_TOLD = ("origins", "keys")
"""The checks of a server that are told where they are well, too."""
FILES = http_messages.CONNECTIONS_MAX + http_messages.OTHER_FILES


def examine(data: str, health: str | None) -> Iterator[HealthFinding]:
    """Yield all checks, those of the store first."""
    yield from _store(data)
    if not is_redis(data):
        yield from _directory(Path(data))
    yield _file_limit()
    if health:
        yield from _server(health)


# The store.


def _store(data: str) -> Iterator[HealthFinding]:
    hint = "Is --data the store that the server uses, and does it run where that can be reached?"
    try:
        store = open_store(data, read_only=True, allow_lossy_store=True)
    except OtherLayout as error:
        yield _other_layout(error)
        return
    except DitherError as error:
        yield HealthFinding("opening", str(error), "opens", False, hint)
        return
    with closing(store):
        yield HealthFinding("opening", "opens", "opens", True, hint)
        yield _versions(store)
        seen = Observed(asked=store)
        try:
            status, audit = StoreStatus.of(store), Audit.of(store)
            seen = Observed(status, status.trouble, audit.total, audit, asked=store)
        except _UNREADABLE as error:
            yield _unreadable("reading", error)
        for check in told(Teller.DOCTOR, seen):
            try:
                yield check.find(seen)
            except _UNREADABLE as error:
                yield _unreadable(check.name, error)


def _other_layout(error: OtherLayout) -> HealthFinding:
    """Tell whether `dither serve` takes a store of another layout: it is asked before an upgrade."""
    if error.serve_brings:
        value = f"`dither serve` brings it from {error.serve_brings}; no more is checked before"
    else:
        value = str(error)
    hint = (
        "A newer dither made it: go on with that one, or restore a backup of before. deploy/upgrading.md says how."
        if error.newer
        else "An older dither made it: deploy/upgrading.md has the way for stores of before."
    )
    return HealthFinding("opening", value, "opens, or can be brought to this layout", bool(error.serve_brings), hint)


def _unreadable(what: str, error: Exception) -> HealthFinding:
    hint = "`dither fsck` says what is damaged; `dither restore` makes a store of a backup."
    return HealthFinding(what, str(error), "can be read", False, hint)


def _versions(store: Store) -> HealthFinding:
    """Tell the versions; a store of another layout does not open."""
    value = f"dither {version('dither')}, Python {platform.python_version()}, {store.kind} of layout {store.layout}"
    return HealthFinding(
        "versions", value, f"layout {store.layout}", True, "deploy/upgrading.md has the order of upgrades."
    )


@HealthCheck(
    "expiry",
    "a metric that has not expired",
    "Devices report nothing more: load a registry with later dates, and ship it. deploy/registry.md has the order.",
    Teller.DOCTOR,
    unread=Teller.DOCTOR,
)
def _expiry(seen: Observed) -> HealthFinding:
    ending = Expiries.of(seen.store.plans(), seen.store.clock_day())
    return found(ending.words or f"no metric expires within {SOON.days} days", not ending.all_over)


@HealthCheck(
    "files",
    "whole",
    "`dither fsck` names all that is damaged; `dither restore` makes a store of a backup.",
    Teller.DOCTOR,
    unread=Teller.DOCTOR,
)
def _files(seen: Observed) -> HealthFinding:
    faults = list(islice(seen.store.integrity(), FAULTS_SHOWN))
    return found("; ".join(faults), not faults)


@HealthCheck(
    "quality",
    "counts that honest devices send",
    "A broken build of the app, or made-up reports: /v1/metrics/NAME/quality has what is off, and since when.",
    Teller.DOCTOR,
    unread=Teller.DOCTOR,
)
def _quality(seen: Observed) -> HealthFinding:
    """Tell of which metrics honest devices hardly ever send the counts of the last closed day.

    Over all metrics, and so of sound ones on one day in 1 / ALPHA at most.
    """
    store = seen.store
    window = Window.ending(store.sealed(), 1)
    least = [
        (min(each.p_value for each in day.checks), stored.plan.metric)
        for stored in store.plans()
        for day in days(store, stored, window)
        if day.checks
    ]
    wrong = sorted({metric for p_value, metric in least if p_value <= ALPHA / len(least)})
    if wrong:
        return found(f"{', '.join(wrong)} on {window.last}", False)
    return found(f"nothing found in {len(least):,} tallies of {window.last}")


@HealthCheck(
    "refusals",
    "less than half of what comes",
    "Load the registry that the app ships: `dither metrics load metrics.toml`. The page /pipeline has the metrics.",
    Teller.DOCTOR,
    unread=Teller.DOCTOR,
)
def _refusals(seen: Observed) -> HealthFinding:
    """Tell of which reports groups were refused since yesterday, by reason, and whether these are most of what came."""
    store = seen.store
    since = Window.ending(store.today(), REFUSED_DAYS)
    refused = sum_refused(
        {key.reason: count} for key, count in store.refused(since.first, since.last).items()
    )  # strangers without a key are not among them
    accepted = sum(count.accepted for (_, epoch), count in store.counted().items() if epoch in since)
    reports = sum(count.reports for count in refused.values())
    most = sorted(refused.items(), key=lambda each: -each[1].reports)
    parts = [f"{count.reports:,} {REASONS_IN_WORDS.get(reason, (reason,))[0]}" for reason, count in most]
    hint = REASONS_IN_WORDS[most[0][0]][1] if most and most[0][0] in REASONS_IN_WORDS else ""
    value = (
        f"{', '.join(parts)}, of {reports + accepted:,} reports since yesterday" if parts else "none since yesterday"
    )
    return found(value, reports <= accepted, hint=hint)


# The machine.


def _directory(directory: Path) -> Iterator[HealthFinding]:
    """Yield what a directory's rights tell. One that cannot be looked at does not open either."""
    try:
        mode = directory.stat().st_mode
    except OSError:
        return
    may = os.access(directory, os.W_OK | os.X_OK) and all(os.access(path, os.W_OK) for path in directory.iterdir())
    yield HealthFinding(
        "permission",
        f"{'may' if may else 'may not'} be written by user {os.geteuid()}",
        "may be written",
        may,
        "Run this as the user that serves the store; if it is that one, give the directory and its files to it.",
    )
    try:
        open_ = files.keep(directory, NAMES, mend=False)
    except files.NotOurs as error:
        open_ = [str(error)]
    yield HealthFinding(
        "secrecy",
        "; ".join([f"mode {mode & 0o777:o}", *open_]),
        "700, and files of mode 600",
        not (mode & files.OTHERS_MAY or open_),
        "The directory holds keys and reports of devices that can still be told apart: `chmod 700` it.",
    )


def _file_limit() -> HealthFinding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = hard == resource.RLIM_INFINITY
    return HealthFinding(
        "file limit",
        "none" if endless else f"{hard:,} files",
        f"at least {FILES:,} files",
        endless or hard >= FILES,
        "A server takes as many connections as files allow: set `LimitNOFILE=` in its systemd unit, or `ulimit -n`.",
    )


# A server.


def _server(health: str) -> Iterator[HealthFinding]:
    hint = "Is it the address of --health, and does the server run? Its log says why it does not answer."
    try:
        ready, versions = _asked(health, "/readyz"), _asked(health, "/version")
        foreign = int(ready["keys"]["wrong"]) > int(ready["keys"]["taken"]) if "keys" in ready else False
        waits = [
            (
                [_line(check[key]) for key in ("check", "value", "limit", "hint")],
                bool(check["ok"]) and not (foreign and check["check"] == "keys"),
            )
            for check in ready["checks"]
            if not check["ok"] or check["check"] in ALWAYS_TOLD
        ]
        status, theirs = _line(ready["status"]), _line(f"dither {versions['dither']}, Python {versions['python']}")
    except Exception as error:  # whatever answers there says what it likes
        yield HealthFinding("server", f"no answer ({type(error).__name__})", "ready", False, hint)
        return
    yield HealthFinding("server", status, "ready", status == "ready", "Its checks below say why.")
    for (what, value, limit, hint), well in waits[:SERVERS_CHECKS_MAX]:
        yield HealthFinding(f"server's {what}", value, limit, well, hint)
    ownership = f"dither {version('dither')}, Python {platform.python_version()}"
    yield HealthFinding(
        "server's version", theirs, ownership, theirs == ownership, "Restart it: another version was installed since."
    )


def _line(message: object) -> str:
    """Return a server's words as a part of one line."""
    return visible(str(message))[:SERVERS_WORDS_MAX]


def _asked(health: str, path: str) -> Any:
    return json.loads(get(health.removesuffix("/readyz").rstrip("/") + path, ASK_WITHIN_S))
