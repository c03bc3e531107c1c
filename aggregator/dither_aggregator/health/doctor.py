"""The checks that `dither doctor` reads: of a store, of the machine that it runs on, and of a server if there is one.

Nothing is changed, and the store may be in use meanwhile.
"""

import json
import os
import platform
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from dither.sending.connection import get
from dither_aggregator.analysis.quality.verdict import ALPHA, days
from dither_aggregator.analysis.reading_cache import readings_check
from dither_aggregator.analysis.windows import Window
from dither_aggregator.health import checks
from dither_aggregator.health.checks import HealthCheck
from dither_aggregator.health.expiry import SOON, Expiries
from dither_aggregator.health.status import Audit, StoreStatus
from dither_aggregator.store import Store, open_store
from dither_aggregator.store.day_reset import EXPIRES_WITHIN
from dither_aggregator.store.opening import is_redis
from dither_aggregator.store.packing import day_at
from dither_aggregator.store.records import OtherLayout
from dither_aggregator.store.sqlite.file import NAMES
from dither_aggregator.web import bounds
from dither_shared import ownership
from dither_shared.errors import DitherError
from dither_shared.harmless import visible

CLOCK_OFF_MAX_S = 60.0
FAULTS_SHOWN = 3
ASK_WITHIN_S = 10.0
SERVERS_WORDS_MAX = 500
"""Characters of each of a server's words that are shown."""
SERVERS_CHECKS_MAX = 50
FILES = bounds.CONNECTIONS_MAX + bounds.OTHER_FILES


def examine(data: str, health: str | None) -> Iterator[HealthCheck]:
    """Yield all checks, those of the store first."""
    yield from _store(data)
    if not is_redis(data):
        yield from _directory(Path(data))
    yield _file_limit()
    if health:
        yield from _server(health)


# The store.


def _store(data: str) -> Iterator[HealthCheck]:
    hint = (
        "Is --data the store that the server uses, and does it run where that can be reached? `dither init` makes one."
    )
    try:
        store = open_store(data, read_only=True, allow_lossy_store=True)
    except OtherLayout as error:
        yield _other_layout(error)
        return
    except DitherError as error:
        yield HealthCheck("opening", str(error), "opens", False, hint)
        return
    with closing(store):
        yield HealthCheck("opening", "opens", "opens", True, hint)
        yield _versions(store)
        yield from _tried("reading", lambda: _look(store))
        yield _expiry(store)
        yield from _tried("files", lambda: [_files(store)])
        yield from _tried("quality", lambda: [_quality(store)])


def _other_layout(error: OtherLayout) -> HealthCheck:
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
    return HealthCheck("opening", value, "opens, or can be brought to this layout", bool(error.serve_brings), hint)


def _tried(what: str, look: Callable[[], list[HealthCheck]]) -> list[HealthCheck]:
    """Return what a look tells, or that it failed."""
    try:
        return look()
    except (DitherError, ValueError) as error:
        hint = "`dither fsck` says what is damaged; `dither restore` makes a store of a backup."
        return [HealthCheck(what, str(error), "can be read", False, hint)]


def _versions(store: Store) -> HealthCheck:
    """Tell the versions; a store of another layout does not open."""
    value = f"dither {version('dither')}, Python {platform.python_version()}, {store.kind} of layout {store.layout}"
    return HealthCheck(
        "versions", value, f"layout {store.layout}", True, "deploy/upgrading.md has the order of upgrades."
    )


def _look(store: Store) -> list[HealthCheck]:
    store_status = StoreStatus.of(store)
    return [
        *checks.of_store(store_status, store_status.trouble),
        _time(store.ahead_s(), store_status.last_expiry),
        *checks.of_ledger(Audit.of(store), time.monotonic()),
        readings_check(store),
    ]


def _expiry(store: Store) -> HealthCheck:
    found = Expiries.of(store.plans(), store.clock_day())
    return HealthCheck(
        "expiry",
        found.words or f"no metric expires within {SOON.days} days",
        "a metric that has not expired",
        not found.all_over,
        "Devices report nothing more: load a registry with later dates, and ship it. deploy/registry.md has the order.",
    )


def _time(ahead_s: float, expires: date | None) -> HealthCheck:
    now = time.time()
    days = {"the store's": day_at(now + ahead_s), "this machine's": day_at(now)}
    wrong = [whose for whose, day in days.items() if expires and not expires - EXPIRES_WITHIN <= day <= expires]
    which = f"It is {wrong[0]} that is wrong, by the dates of the registry. " if len(wrong) == 1 else ""
    return HealthCheck(
        "time",
        f"the store's clock is {abs(ahead_s):,.1f} s {'ahead of' if ahead_s >= 0 else 'behind'} this machine's",
        f"within {CLOCK_OFF_MAX_S:.0f} s",
        abs(ahead_s) <= CLOCK_OFF_MAX_S,
        f"{which}Have NTP set the clocks of both machines: days begin and end by the store's.",
    )


def _files(store: Store) -> HealthCheck:
    faults = list(islice(store.integrity(), FAULTS_SHOWN))
    return HealthCheck(
        "files",
        "; ".join(faults) or "whole",
        "whole",
        not faults,
        "`dither fsck` names all that is damaged; `dither restore` makes a store of a backup.",
    )


def _quality(store: Store) -> HealthCheck:
    """Tell of which metrics honest devices hardly ever send the counts of the last closed day.

    Over all metrics, and so of sound ones on one day in 1 / ALPHA at most.
    """
    window = Window.ending(store.sealed(), 1)
    least = [
        (min(each.p_value for each in day.checks), stored.plan.metric)
        for stored in store.plans()
        for day in days(store, stored, window)
        if day.checks
    ]
    wrong = sorted({metric for p_value, metric in least if p_value <= ALPHA / len(least)})
    return HealthCheck(
        "quality",
        f"{', '.join(wrong)} on {window.last}"
        if wrong
        else f"nothing found in {len(least):,} tallies of {window.last}",
        "counts that honest devices send",
        not wrong,
        "A broken build of the app, or made-up reports: /v1/metrics/NAME/quality has what is off, and since when.",
    )


# The machine.


def _directory(directory: Path) -> Iterator[HealthCheck]:
    """Yield what a directory's rights tell. One that cannot be looked at does not open either."""
    try:
        mode = directory.stat().st_mode
    except OSError:
        return
    may = os.access(directory, os.W_OK | os.X_OK) and all(os.access(path, os.W_OK) for path in directory.iterdir())
    yield HealthCheck(
        "permission",
        f"{'may' if may else 'may not'} be written by user {os.geteuid()}",
        "may be written",
        may,
        "Run this as the user that serves the store; if it is that one, give the directory and its files to it.",
    )
    try:
        found = ownership.keep(directory, NAMES, mend=False)
    except ownership.NotOurs as error:
        found = [str(error)]
    yield HealthCheck(
        "secrecy",
        "; ".join([f"mode {mode & 0o777:o}", *found]),
        "700, and files of mode 600",
        not (mode & ownership.OTHERS_MAY or found),
        "The directory holds keys and reports of devices that can still be told apart: `chmod 700` it.",
    )


def _file_limit() -> HealthCheck:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = hard == resource.RLIM_INFINITY
    return HealthCheck(
        "file limit",
        "none" if endless else f"{hard:,} files",
        f"at least {FILES:,} files",
        endless or hard >= FILES,
        "A server takes as many connections as files allow: set `LimitNOFILE=` in its systemd unit, or `ulimit -n`.",
    )


# A server.


def _server(health: str) -> Iterator[HealthCheck]:
    hint = "Is it the address of --health, and does the server run? Its log says why it does not answer."
    try:
        ready, found = _asked(health, "/readyz"), _asked(health, "/version")
        waits = [
            [_line(check[key]) for key in ("check", "value", "limit", "hint")]
            for check in ready["checks"]
            if not check["ok"]
        ]
        status, theirs = _line(ready["status"]), _line(f"dither {found['dither']}, Python {found['python']}")
    except Exception as error:  # whatever answers there says what it likes
        yield HealthCheck("server", f"no answer ({type(error).__name__})", "ready", False, hint)
        return
    yield HealthCheck("server", status, "ready", status == "ready", "Its checks below say why.")
    for what, value, limit, hint in waits[:SERVERS_CHECKS_MAX]:
        yield HealthCheck(f"server's {what}", value, limit, False, hint)
    ownership = f"dither {version('dither')}, Python {platform.python_version()}"
    yield HealthCheck(
        "server's version", theirs, ownership, theirs == ownership, "Restart it: another version was installed since."
    )


def _line(message: object) -> str:
    """Return a server's words as a part of one line."""
    return visible(str(message))[:SERVERS_WORDS_MAX]


def _asked(health: str, path: str) -> Any:
    return json.loads(get(health.removesuffix("/readyz").rstrip("/") + path, ASK_WITHIN_S))
