"""dither beside other telemetry SDKs: what one costs an app, and what becomes of an event when things go wrong.

Ratios and counts are asserted. Seconds are not: they belong to the machine.
"""

import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median, quantiles

from tests.benchmarks.peers import SDKS, PeerUnavailable, build_project, environment
from tests.benchmarks.peers.sdks.program import CALLS, LATER_S, WARM
from tests.benchmarks.programs import TIMEOUT_S, TOML, Sdk, arrived, deaf, play, up

STARTS = 15
RECORDERS = 10
TRIALS = 3
SLOW_S = 1.0
"""An exit that takes longer is not tried again."""
FORKED = ("event_0", "event_1", "event_2")
"""A program that forks records these."""
NOT_THEIRS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
"""Each venv comes with these."""

START_RATIO_MAX = 0.45
NOISY_MAX = 0.6
"""A start may come out above its aim by chance, but not above this."""
DISTRIBUTIONS_MAX = 6
LOADED_MIB_MAX = 0.3
LOADED_MIB_KNOWN = 0.52
"""An app loads less than this, which misses the aim."""
P50_US_MAX, P99_US_MAX = 60.0, 300.0
SILENT_P50_US_MAX = 8.0
BARE_MORE_US = 30.0
"""If a bare commit of the same bytes is slow itself, an accepted answer may take so much more than that."""
EXIT_S_MAX = 0.1
MIB = 1024 * 1024
SERVERS = ("up", "closed", "hung")
OWN = ("dither", "dither_shared")


@dataclass(frozen=True)
class Aim:
    """An aim of dither, and the figure that it reached."""

    what: str
    came: str
    wanted: str
    holds: bool
    asserted: bool = True


@dataclass(frozen=True)
class Start:
    """The CPU time of a process that imports and starts an SDK: medians."""

    whole_s: float
    own_s: float
    """Without that of a bare process."""
    ratio: float
    """Compared with `import requests`."""


@dataclass
class Figures:
    """The measurements of one SDK."""

    start: Start
    distributions: int
    size_mib: float
    loaded_mib: float
    """The MiB of its sources that a program loads, from the start to the end of an upload."""
    first_us: list[float] = field(default_factory=list)
    fresh_us: list[float] = field(default_factory=list)
    again_us: list[float] = field(default_factory=list)
    exits_s: list[float] = field(default_factory=list)
    """With each of SERVERS."""
    fork: str = ""
    offline: str = ""
    kills: list[str] = field(default_factory=list)
    """At once, and LATER_S later."""


def run() -> None:
    """Print the table and dither's aims; raise AssertionError when one is missed that is a ratio or a count."""
    with tempfile.TemporaryDirectory(prefix="dither-sdk-") as directory:
        scratch = Path(directory)
        sdks = _installed(scratch / "venv")
        ours = sdks[0]
        beside = [Sdk(name, ours.python) for name in ("nothing", "requests", TOML)]
        starts = start_costs([*beside, *sdks], scratch)
        _print_head(starts)
        found: dict[str, Figures] = {}
        for sdk in (sdk for sdk in sdks if sdk.name in starts):
            with _or_why_not(sdk):
                found[sdk.name] = _measure(sdk, starts[sdk.name], scratch / sdk.name)
                _print_figures(sdk.name, found[sdk.name])
        assert ours.name in found, "dither could not be measured"
        aims = aims_of(ours, found[ours.name])
        _print_code(ours, found[ours.name])
        _print_aims(aims)
    missed = [f"{aim.what}: {aim.came}" for aim in aims if aim.asserted and not aim.holds]
    assert not missed, "; ".join(missed)


def _installed(home: Path) -> list[Sdk]:
    """Return dither, installed at `home` as this tree has it, and the peers that can be installed."""
    sdks = [Sdk("dither", build_project(home))]
    for peer in SDKS:
        try:
            sdks.append(Sdk(peer, environment(peer)))
        except PeerUnavailable as error:
            print(f"  without {peer}: {error}")
    return sdks


@contextmanager
def _or_why_not(sdk: Sdk) -> Iterator[None]:
    try:
        yield
    except PeerUnavailable as error:
        print(f"  {sdk.name:14} {error}")


def _measure(sdk: Sdk, start: Start, scratch: Path) -> Figures:
    found = Figures(start, *sizes(sdk), _loaded_mib(sdk, scratch))
    _time_records(sdk, found, scratch)
    _time_exits(sdk, found, scratch)
    found.fork = _forked(sdk, scratch)
    found.kills = [
        _kept(_killed(sdk, scenario, scratch / f"{scenario}-{trial}") for trial in range(TRIALS))
        for scenario in ("killed", "killed_later")
    ]
    return found


def start_costs(sdks: list[Sdk], scratch: Path) -> dict[str, Start]:
    """Return what starting each costs, by name. "nothing" and "requests" must be among them.

    Ratios are taken turn by turn, for a turn is short and a busy machine slows all of it.
    """
    taken: dict[str, list[float]] = {sdk.name: [] for sdk in sdks}
    for turn in range(STARTS + 1):
        for sdk in [each for each in sdks if len(taken[each.name]) == turn]:  # not one that has failed
            with _or_why_not(sdk), up(sdk) as (endpoint, _):
                ended = play(sdk, "start", endpoint, scratch / sdk.name / f"start-{turn}", linger_s=0)
                taken[sdk.name].append(ended.cpu_s)
    # Without the first turn, which read all files from the disk.
    bare, requests = taken["nothing"][1:], taken["requests"][1:]
    found = {}
    for name, seconds in taken.items():
        if len(seconds) > STARTS:
            own = [with_it - without for with_it, without in zip(seconds[1:], bare, strict=True)]
            ratios = [each / (theirs - without) for each, theirs, without in zip(own, requests, bare, strict=True)]
            found[name] = Start(median(seconds[1:]), median(own), median(ratios))
    return found


def sizes(sdk: Sdk) -> tuple[int, float]:
    """Return how many distributions are installed and their MiB, bytecode included, without what a venv has anyway."""
    theirs = [path for path in sdk.packages.iterdir() if path.name.split("-")[0].split(".")[0] not in NOT_THEIRS]
    return sum(path.suffix == ".dist-info" for path in theirs), sum(map(_bytes, theirs)) / MIB


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())


def sources_mib(sdk: Sdk) -> float:
    """Return the MiB of our own packages' sources."""
    files = (file for package in OWN for file in (sdk.packages / package).rglob("*.py"))
    return sum(file.stat().st_size for file in files) / MIB


def _loaded_mib(sdk: Sdk, scratch: Path) -> float:
    with up(sdk) as (endpoint, _):
        return float(play(sdk, "loaded", endpoint, scratch / "loaded").answer["bytes"]) / MIB


def _time_records(sdk: Sdk, found: Figures, scratch: Path) -> None:
    for recorder in range(RECORDERS):
        with up(sdk) as (endpoint, _):
            place = scratch / f"record-{recorder}"
            answer = play(sdk, "record", endpoint, place, flags=WARM + CALLS, linger_s=0).answer
        if not answer:
            raise PeerUnavailable(f"record: not done after {TIMEOUT_S:g} s")
        found.first_us.append(answer["first_us"])
        found.fresh_us += answer["fresh_us"]
        found.again_us += answer["again_us"]


def _time_exits(sdk: Sdk, found: Figures, scratch: Path) -> None:
    """Time exits with the server up, closed and hung; see whether what was recorded while it was closed comes later."""
    with up(sdk) as (endpoint, _):
        found.exits_s.append(median(_exits_s(sdk, endpoint, scratch / "up")))
    with deaf(listens=False) as endpoint:
        closed_s = _exits_s(sdk, endpoint, scratch / "closed")
    found.exits_s.append(median(closed_s))
    with deaf(listens=True) as endpoint:
        found.exits_s.append(median(_exits_s(sdk, endpoint, scratch / "hung")))
    found.offline = _kept(_comes_after_all(sdk, scratch / f"closed-{trial}") for trial in range(len(closed_s)))


def _exits_s(sdk: Sdk, endpoint: str, place: Path) -> list[float]:
    taken_s: list[float] = []
    while len(taken_s) < TRIALS and max(taken_s, default=0.0) < SLOW_S:
        taken_s.append(play(sdk, "once", endpoint, Path(f"{place}-{len(taken_s)}"), linger_s=0).exit_s)
    return taken_s


def _killed(sdk: Sdk, scenario: str, place: Path) -> bool:
    """Tell whether an event comes that was recorded by a process that was killed."""
    with deaf(listens=False) as endpoint:
        play(sdk, scenario, endpoint, place, linger_s=0)
    return _comes_after_all(sdk, place)


def _comes_after_all(sdk: Sdk, place: Path) -> bool:
    """Start once more where something was recorded, with a server; tell whether the event comes."""
    with up(sdk) as (endpoint, requests):
        play(sdk, "again", endpoint, place)
        return arrived(requests)[FORKED[0]] > 0


def _kept(trials: Iterable[bool]) -> str:
    came = list(trials)
    return "kept" if all(came) else f"{sum(came)} of {len(came)}" if any(came) else "lost"


def _forked(sdk: Sdk, scratch: Path) -> str:
    """Return how many events around a fork came, and how many copies too many: of some trials the worst."""
    lost, copies, hung = 0, 0, False
    for trial in range(TRIALS):
        with up(sdk) as (endpoint, requests):
            hung = play(sdk, "fork", endpoint, scratch / f"fork-{trial}").killed
            came = arrived(requests)
        lost = max(lost, sum(event not in came for event in FORKED))
        copies = max(copies, came.total() - len(came))
        if hung:
            break
    return f"{len(FORKED) - lost} of {len(FORKED)}" + (f" +{copies}" if copies else "") + (" hung" if hung else "")


# The table.


def _print_head(starts: dict[str, Start]) -> None:
    bare_ms, requests_ms = starts["nothing"].whole_s * 1e3, starts["requests"].own_s * 1e3
    print(f"\n  start: CPU time of a process that imports and starts, less that of a bare one, {bare_ms:.0f} ms,")
    print(f"    by that of `import requests`, {requests_ms:.0f} ms; medians of {STARTS} turns")
    print(f"    dither's is from a compiled registry; from TOML it is {starts[TOML].ratio:.2f}")
    print(
        f"  record: us a call, {RECORDERS * CALLS:,} in {RECORDERS} processes after {WARM} each; first: ms of the first"
    )
    print("  exit: s from the last line of a program that recorded once to its end, with the server up, closed, hung")
    print(f"  fork: of an event before it and one on each side, which came, worst of {TRIALS}")
    print("  offline, kill -9: whether what was recorded with the server closed, or right before and")
    print(f"    {LATER_S} s before being killed, comes after the next start")
    print(
        f"\n  {'':14}{'start':>7}{'ms':>6}{'dists':>7}{'MiB':>7}{'p50':>8}{'p99':>8}{'first':>8}"
        f"{'up':>8}{'closed':>8}{'hung':>8}  {'fork':18}{'offline':9}kill -9, later"
    )


def _print_figures(name: str, found: Figures) -> None:
    exits = "".join(f"{f'>{TIMEOUT_S:.0f}' if each >= TIMEOUT_S else f'{each:.2f}':>8}" for each in found.exits_s)
    p50, p99 = percentiles(found.fresh_us)
    print(
        f"  {name:14}{found.start.ratio:7.2f}{found.start.own_s * 1e3:6.0f}{found.distributions:7}"
        f"{found.size_mib:7.1f}{p50:8.0f}{p99:8.0f}{median(found.first_us) / 1e3:8.1f}{exits}"
        f"  {found.fork:18}{found.offline:9}{', '.join(found.kills)}"
    )


def percentiles(times: list[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile."""
    cuts = quantiles(times, n=100)
    return cuts[49], cuts[98]


@cache
def bare_commits_us() -> list[float]:
    """Return what bare commits of an answer's bytes take, to a file with the pages and the log of a device's."""
    taken_us = []
    with tempfile.TemporaryDirectory(prefix="dither-bare-") as directory:
        for recorder in range(RECORDERS):
            with closing(sqlite3.connect(f"{directory}/{recorder}", isolation_level=None)) as db:
                for pragma in ("page_size = 1024", "journal_mode = WAL", "synchronous = NORMAL"):
                    db.execute(f"PRAGMA {pragma}")
                db.execute("CREATE TABLE slot (metric TEXT PRIMARY KEY, report TEXT) WITHOUT ROWID")
                db.execute("CREATE TABLE metric (name TEXT PRIMARY KEY, terms TEXT) WITHOUT ROWID")
                for number in range(WARM + CALLS):
                    started = time.perf_counter_ns()
                    db.execute("BEGIN IMMEDIATE")
                    db.execute("INSERT INTO slot VALUES (?, ?)", (f"event_{number}", "x" * 60))
                    db.execute("INSERT INTO metric VALUES (?, ?)", (f"event_{number}", "x" * 40))
                    db.execute("COMMIT")
                    taken_us.append((time.perf_counter_ns() - started) / 1000)
    return taken_us


def _print_code(ours: Sdk, found: Figures) -> None:
    bare_p50_us, bare_p99_us = percentiles(bare_commits_us())
    print(f"\n  a bare commit of as many bytes to such a file: {bare_p50_us:.0f} / {bare_p99_us:.0f} us")
    print(
        f"  sources: an app loads {found.loaded_mib:.2f} MiB; with the commands, and dither.testing for its tests, "
        f"{sources_mib(ours):.2f} MiB are installed, with bytecode and metadata "
        f"{sum(map(_bytes, ours.packages.glob('dither*'))) / MIB:.2f} MiB"
    )


def _print_aims(aims: list[Aim]) -> None:
    print("\n  dither must:")
    for aim in aims:
        verdict = "" if aim.holds else "missed" if aim.asserted else "missed (not asserted)"
        print(f"    {aim.what:24}{aim.came:>10}   {aim.wanted:20}{verdict}".rstrip())


def aims_of(ours: Sdk, found: Figures) -> list[Aim]:
    """Return what dither must reach, beside what it did."""
    p50_us, p99_us = percentiles(found.fresh_us)
    bare_p50_us, bare_p99_us = percentiles(bare_commits_us())
    ratio, count, own_mib = found.start.ratio, found.distributions, found.loaded_mib
    all_of_them = f"{len(FORKED)} of {len(FORKED)}"
    return [
        Aim("start", f"{ratio:.2f}", f"<= {START_RATIO_MAX} of requests", ratio <= START_RATIO_MAX, ratio > NOISY_MAX),
        Aim("distributions", str(count), f"<= {DISTRIBUTIONS_MAX}", count <= DISTRIBUTIONS_MAX),
        Aim(
            "sources that an app loads",
            f"{own_mib:.2f}",
            f"<= {LOADED_MIB_MAX} MiB",
            own_mib <= LOADED_MIB_MAX,
            own_mib > LOADED_MIB_KNOWN,
        ),
        Aim("around a fork", found.fork, all_of_them, found.fork == all_of_them),
        Aim("offline", found.offline, "kept", found.offline == "kept"),
        *(Aim("kill -9", kill, "kept", kill == "kept") for kill in found.kills),
        _time("silent p50, us", percentiles(found.again_us)[0], SILENT_P50_US_MAX),
        _time("accepted p50, us", p50_us, max(P50_US_MAX, bare_p50_us + BARE_MORE_US)),
        _time("accepted p99, us", p99_us, max(P99_US_MAX, bare_p99_us + BARE_MORE_US)),
        *(_time(f"exit, {how}, s", each, EXIT_S_MAX) for how, each in zip(SERVERS, found.exits_s, strict=True)),
    ]


def _time(what: str, came: float, most: float) -> Aim:
    return Aim(what, f"{came:.2f}" if most < 1 else f"{came:.0f}", f"<= {most:g}", came <= most, asserted=False)
