"""Randomizing, parsing, folding, decoding: each beside a naive version and, where there are any, peers."""

import json
import secrets
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np

from dither_aggregator.analysis.pure import estimate_shares
from dither_aggregator.counting import fold, hyperplane_sums, support_counts
from dither_aggregator.web.endpoints import parse_upload
from dither_shared.domains import Verbatim
from dither_shared.kinds import TextKind
from dither_shared.mechanisms import (
    DEVICE,
    OUE,
    RAPPOR,
    SUE,
    Cells,
    Mechanism,
    Memoized,
    Part,
    PureMechanism,
    SubsetSelection,
    choose,
    one_cell,
)
from dither_shared.mechanisms.pgr import PGR
from dither_shared.plan import Plan
from dither_shared.rng import Rng
from dither_shared.shapes import Bits, ReportShape, Subsets, Symbols
from dither_shared.wire import encode_upload, new_upload_id
from tests.benchmarks import naive
from tests.benchmarks.peers import ask
from tests.benchmarks.timing import each, seconds

SIZES = (16, 128, 1024)
EPSILON = Decimal(1)
VALUE = 3
FOLDED = 100_000
FOLDED_NAIVELY = 200
PEERS = {
    "grr": (("pure_ldp", "grr"), ("multi_freq_ldpy", "grr")),
    "oue": (("pure_ldp", "oue"), ("multi_freq_ldpy", "oue")),
    "sue": (("pure_ldp", "sue"), ("multi_freq_ldpy", "sue")),
    "ss": (("multi_freq_ldpy", "ss"),),
    "pgr": (("pure_ldp", "olh"), ("multi_freq_ldpy", "olh")),
}
"""The peers' counterparts of each mechanism: local hashing where we have projective geometry response."""

_UNITS = {"randomize_us": "us", "fold_us": "us a report", "estimate_ms": "ms"}

FindPlan = Callable[[str, str], Plan]
Speeds = dict[tuple[str, str, int], dict[str, float]]


def run() -> None:
    """Print the four tables."""
    peers = ask_peers()
    print("\n  randomize: microseconds a value, epsilon 1 (a system call for 16 random bytes is part of each)")
    print(f"  {'':22}{'dither':>9}{'naive':>10}{'ratio':>8}   peers")
    for d in SIZES:
        for mechanism in mechanisms(d):
            _randomize(mechanism, d, peers)
    print("\n  parse: microseconds an upload")
    print(f"  {'':50}{'dither':>9}{'one by one':>12}{'ratio':>8}{'its JSON alone':>16}")
    for one in parsed():
        for reports, groups in ((1_000, 1), (20, 1), (20, 20)):
            _parse(one, reports, groups)
    print(f"\n  fold: millions of reports a second, {FOLDED:,} at once")
    print(f"  {'':22}{'dither':>9}{'naive':>10}{'ratio':>8}{'unpackbits':>12}{'ratio':>8}   peers")
    for shape in (Symbols(128), Symbols(1024), Symbols(151_740), Subsets(128, 2), *(Bits(size) for size in SIZES)):
        _fold(shape, peers)
    print("\n  decode and estimate: milliseconds for all values")
    print(f"  {'':34}{'dither':>9}{'one FFT':>10}{'ratio':>8}   peers")
    for d, epsilon in (
        (128, "2"),
        (1024, "0.5"),
        (1024, "1"),
        (1024, "4"),
        (65_536, "1"),
        (65_536, "2"),
        (65_536, "4"),
    ):
        _decode(d, Decimal(epsilon), peers)


def mechanisms(d: int) -> list[PureMechanism]:
    """Return one of each kind."""
    return [
        choose(d, EPSILON, name="grr"),
        SubsetSelection.for_epsilon(d, EPSILON),
        choose(d, EPSILON, name="pgr"),
        OUE.for_epsilon(d, EPSILON),
        SUE.for_epsilon(d, EPSILON),
        choose(d, EPSILON, permanent=Decimal(3), name="oue"),
        choose(d, EPSILON, ticks=3, name="privset"),
    ]


def ask_peers() -> Speeds:
    """Measure the peers, in their own environments."""
    found: Speeds = {}
    for peer in ("pure_ldp", "multi_freq_ldpy"):
        names = sorted({name for pairs in PEERS.values() for whose, name in pairs if whose == peer})
        asked = [(name, d) for name in names for d in SIZES]
        answers = ask(peer, [{"mechanism": name, "d": d, "epsilon": float(EPSILON)} for name, d in asked])
        found |= {(peer, name, d): answer for (name, d), answer in zip(asked, answers, strict=True)}
    return found


def _beside(ours: float, what: str, scale: float, name: str, d: int, peers: Speeds) -> str:
    """Return the peers' figures, and how many times ours each takes."""
    parts = []
    for peer, theirs in PEERS.get(name, ()):
        figure = peers.get((peer, theirs, d), {}).get(what)
        if figure:
            parts.append(f"{peer} {theirs} {figure:.3g} {_UNITS[what]} ({figure * scale / ours:.2g} of ours)")
    return ", ".join(parts)


def _randomize(mechanism: PureMechanism, d: int, peers: Speeds) -> None:
    rng = Rng(secrets.randbits)
    answer = mechanism.class_of([VALUE])
    work = partial(mechanism.randomize, answer, rng)
    label = mechanism.name
    if isinstance(mechanism, Memoized):
        work = partial(mechanism.repeat, mechanism.permanent.randomize(answer, rng), rng)
        label += " memoized, repeat"
    ours_s = each(work)
    naive_s = each(partial(naive.randomize, mechanism, VALUE, rng), 20)
    beside = _beside(ours_s, "randomize_us", 1e-6, mechanism.name, d, peers)
    print(f"  {f'{label}, {d}':22}{ours_s * 1e6:9.2f}{naive_s * 1e6:10.2f}{naive_s / ours_s:7.1f}x   {beside}")


def parsed() -> list[Mechanism]:
    """Return a mechanism of each shape."""
    half, quarter = Fraction(1, 2), Fraction(1, 4)
    return [
        choose(128, EPSILON, name="grr"),
        choose(65_536, EPSILON, name="pgr"),
        OUE.for_epsilon(128, EPSILON),
        RAPPOR.of_probabilities(128, 2, half, quarter, 1 - quarter),
        choose(16, EPSILON, name="ss"),
        choose(128, Decimal(4), name="ss"),
    ]


def upload_of(mechanism: Mechanism, reports: int, groups: int) -> tuple[bytes, FindPlan]:
    """Return a body with random reports, evenly in groups, and what finds their plan."""
    cells = one_cell(mechanism)
    if mechanism.name == "rappor":
        cells = Cells((Part(mechanism, 64),), DEVICE)
    plan, cell = Plan("color", 1, "public", TextKind(), Verbatim(), cells), 0 if cells.several else None
    shape = mechanism.shape
    column = [shape.to_wire(report) for report in unpack(shape, random_reports(shape, reports), reports)]
    size = reports // groups
    parts = [(plan.metric, plan.digest, column[at : at + size], cell) for at in range(0, reports, size)]
    return encode_upload(new_upload_id(secrets.randbits), parts), lambda metric, digest: plan


def _parse(mechanism: Mechanism, reports: int, groups: int) -> None:
    body, find_plan = upload_of(mechanism, reports, groups)
    ours_s = seconds(partial(parse_upload, body, find_plan), 0.3)
    with naive.one_by_one():
        naive_s = seconds(partial(parse_upload, body, find_plan), 0.3)
    json_s = seconds(partial(json.loads, body), 0.1)
    label = f"{mechanism.name}, {mechanism.shape.size}: {reports} reports in {groups} group{'s' * (groups > 1)}"
    print(f"  {label:50}{ours_s * 1e6:9.0f}{naive_s * 1e6:12.0f}{naive_s / ours_s:7.1f}x{json_s * 1e6:16.0f}")


def random_reports(shape: ReportShape, count: int) -> bytes:
    """Return packed reports, uniform over the shape."""
    rng = np.random.default_rng(1)
    if isinstance(shape, Symbols):
        return rng.integers(0, shape.size, count).astype(f"<u{shape.width}").tobytes()
    if isinstance(shape, Subsets):
        pool = [shape.of(rng.choice(shape.size, shape.weight, replace=False).tolist()) for _ in range(min(1000, count))]
        return shape.pack([pool[place] for place in rng.integers(0, len(pool), count)])
    rows = rng.integers(0, 256, (count, shape.width), dtype=np.uint8)
    rows[:, -1] &= 255 >> -shape.size % 8
    return rows.tobytes()


def unpack(shape: ReportShape, packed: bytes, count: int) -> list[int]:
    """Return the first reports one by one."""
    return [int.from_bytes(packed[at * shape.width : (at + 1) * shape.width], "little") for at in range(count)]


def _fold(shape: ReportShape, peers: Speeds) -> None:
    packed = random_reports(shape, FOLDED)
    ours_s = seconds(partial(fold, shape, packed)) / FOLDED
    few = unpack(shape, packed, FOLDED_NAIVELY)
    naive_s = seconds(partial(naive.fold, shape, few)) / FOLDED_NAIVELY
    line = f"  {shape!s:22}{1e-6 / ours_s:9.1f}{1e-6 / naive_s:10.3f}{naive_s / ours_s:7.0f}x"
    if isinstance(shape, Bits):
        unpacked_s = seconds(partial(naive.unpacked, shape, packed)) / FOLDED
        line += f"{1e-6 / unpacked_s:12.1f}{unpacked_s / ours_s:7.1f}x"
    else:
        line += " " * 20
    name = "oue" if isinstance(shape, Bits) else "grr" if isinstance(shape, Symbols) else ""
    print(f"{line}   {_beside(ours_s, 'fold_us', 1e-6, name, shape.size, peers)}")


def draw_points(mechanism: PGR, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a tally of uniform points."""
    drawn = np.random.default_rng(2).integers(0, mechanism.outputs, count)
    return np.bincount(drawn, minlength=mechanism.outputs)


def _decode(d: int, epsilon: Decimal, peers: Speeds) -> None:
    mechanism = choose(d, epsilon, name="pgr")
    assert isinstance(mechanism, PGR)
    n, tally = 1_000_000, draw_points(mechanism, 1_000_000)

    def ours() -> None:
        estimate_shares(mechanism, support_counts(mechanism, tally, n), n)

    ours_s = seconds(ours)
    naive_s = seconds(partial(naive.hyperplane_sums, tally, mechanism.order, mechanism.dimension), 0.2)
    in_order = hyperplane_sums(tally, mechanism.order, mechanism.dimension, 0)
    assert (in_order == naive.hyperplane_sums(tally, mechanism.order, mechanism.dimension)).all()
    label = f"d {d}, epsilon {epsilon}: {mechanism.outputs} points"
    beside = _beside(ours_s, "estimate_ms", 1e-3, "pgr", d, peers) if epsilon == EPSILON else ""
    print(f"  {label:34}{ours_s * 1e3:9.2f}{naive_s * 1e3:10.1f}{naive_s / ours_s:7.0f}x   {beside}")
