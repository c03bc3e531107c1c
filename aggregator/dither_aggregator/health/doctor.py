"""The checks that `dither doctor` reads: of a store, of the machine that it runs on, and of a server if there is one.

Nothing is changed, and the store may be in use meanwhile.
"""

import os
import platform
import resource
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import requests

from dither_aggregator.analysis.quality.verdict import ALPHA, days
from dither_aggregator.analysis.windows import Window
from dither_aggregator.health.checks import HealthFinding, Observed, Teller, findings
from dither_aggregator.health.expiry import SOON, Expiries
from dither_aggregator.health.status import Audit, StoreStatus
from dither_aggregator.store import Store, open_store
from dither_aggregator.store.opening import is_redis
from dither_aggregator.store.records import OtherLayout
from dither_aggregator.store.sqlite.file import NAMES
from dither_aggregator.web import bounds
from dither_shared import ownership
from dither_shared.errors import DitherError
from dither_shared.harmless import visible

FAULTS_SHOWN = 3
ASK_WITHIN_S = 10.0
SERVERS_WORDS_MAX = 500
"""Characters of each of a server's words that are shown."""
FILES = bounds.CONNECTIONS_MAX + bounds.OTHER_FILES


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
    hint = (
        "Is --data the store that the server uses, and does it run where that can be reached? `dither init` makes one."
    )
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
        yield from _tried("reading", lambda: _look(store))
        yield _expiry(store)
        yield from _tried("files", lambda: [_files(store)])
        yield from _tried("quality", lambda: [_quality(store)])


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


def _tried(what: str, look: Callable[[], list[HealthFinding]]) -> list[HealthFinding]:
    """Return what a look tells, or that it failed."""
    try:
        return look()
    except (DitherError, ValueError) as error:
        hint = "`dither fsck` says what is damaged; `dither restore` makes a store of a backup."
        return [HealthFinding(what, str(error), "can be read", False, hint)]


def _versions(store: Store) -> HealthFinding:
    """Tell the versions; a store of another layout does not open."""
    value = f"dither {version('dither')}, Python {platform.python_version()}, {store.kind} of layout {store.layout}"
    return HealthFinding(
        "versions", value, f"layout {store.layout}", True, "deploy/upgrading.md has the order of upgrades."
    )


def _look(store: Store) -> list[HealthFinding]:
    status, audit = StoreStatus.of(store), Audit.of(store)
    return findings(Teller.DOCTOR, Observed(status, status.trouble, audit.total, audit, asked=store))


def _expiry(store: Store) -> HealthFinding:
    found = Expiries.of(store.plans(), store.clock_day())
    return HealthFinding(
        "expiry",
        found.words or f"no metric expires within {SOON.days} days",
        "a metric that has not expired",
        not found.all_over,
        "Devices report nothing more: load a registry with later dates, and ship it. deploy/registry.md has the order.",
    )


def _files(store: Store) -> HealthFinding:
    faults = list(islice(store.integrity(), FAULTS_SHOWN))
    return HealthFinding(
        "files",
        "; ".join(faults) or "whole",
        "whole",
        not faults,
        "`dither fsck` names all that is damaged; `dither restore` makes a store of a backup.",
    )


def _quality(store: Store) -> HealthFinding:
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
    return HealthFinding(
        "quality",
        f"{', '.join(wrong)} on {window.last}"
        if wrong
        else f"nothing found in {len(least):,} tallies of {window.last}",
        "counts that honest devices send",
        not wrong,
        "A broken build of the app, or made-up reports: /v1/metrics/NAME/quality has what is off, and since when.",
    )


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
        found = ownership.keep(directory, NAMES, mend=False)
    except ownership.NotOurs as error:
        found = [str(error)]
    yield HealthFinding(
        "secrecy",
        "; ".join([f"mode {mode & 0o777:o}", *found]),
        "700, and files of mode 600",
        not (mode & ownership.OTHERS_MAY or found),
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
        ready, found = _asked(health, "/readyz"), _asked(health, "/version")
        waits = [check for check in ready["checks"] if not check["ok"]]
        theirs = _line(f"dither {found['dither']}, Python {found['python']}")
    except (requests.RequestException, ValueError, KeyError, TypeError) as error:
        yield HealthFinding("server", f"no answer ({type(error).__name__})", "ready", False, hint)
        return
    yield HealthFinding(
        "server", _line(ready["status"]), "ready", ready["status"] == "ready", "Its checks below say why."
    )
    for check in waits:
        what, value, limit, hint = (_line(check[key]) for key in ("check", "value", "limit", "hint"))
        yield HealthFinding(f"server's {what}", value, limit, False, hint)
    ownership = f"dither {version('dither')}, Python {platform.python_version()}"
    yield HealthFinding(
        "server's version", theirs, ownership, theirs == ownership, "Restart it: another version was installed since."
    )


def _line(message: object) -> str:
    """Return a server's words as a part of one line."""
    return visible(str(message))[:SERVERS_WORDS_MAX]


def _asked(health: str, path: str) -> Any:
    with requests.Session() as session:
        session.trust_env = False  # no proxy stands between a monitor and what it looks at
        return session.get(health.removesuffix("/readyz").rstrip("/") + path, timeout=ASK_WITHIN_S).json()
