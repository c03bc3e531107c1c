"""The power of an audit: the smallest planted fault of each kind that it finds in nine of ten runs.

Each fault is planted ever smaller, in the code that devices run, and audited with the sizes and the error that
`dither audit` has by default. The table is that of `client/audit.md`.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fractions import Fraction
from typing import Any
from unittest.mock import patch

from dither.auditing.adapters import claim_of
from dither.auditing.auditing import ERROR, Claims, Sampling, audit
from dither.auditing.claims import Claim, Never, claims_of
from dither.auditing.devices import device_claims
from dither.commands.audit import DEVICES, REPORTS
from dither.device import Device, outbox, recording
from dither.device.recording import Days, Slots
from dither_shared import wire as writing
from dither_shared.frozen import frozen, replaced
from dither_shared.registry import Metric, Registry
from dither_shared.rng import SCALE, Rng, keyed_rng
from tests.support.audits import EVERY, of_metric, seeded

RUNS, ENOUGH = 10, 9
CLAIMS = 4
"""Claims of a metric with events, which share the error of an audit."""
BESIDE = 'name = "beside"\nkind = "flag"\nepsilon = 1\nreports = 4'
SHARES = tuple(Fraction(1, 10 * 2**place) for place in range(10))
"""Shares of devices or of reports."""


@frozen
class Fault:
    """A kind of fault, which may be ever smaller."""

    name: str
    sizes: Sequence[Any]
    """From the largest down."""
    plant: Callable[[Any], AbstractContextManager[object]]
    claims: Callable[[Any], Claims]


def run() -> None:
    """Print the table."""
    print("  | planted | the smallest that is found in nine of ten runs | not found in as many |")
    print("  |---|---|---|")
    for fault in faults():
        started = time.perf_counter()
        least, less = "-", "-"
        for size in fault.sizes:
            with fault.plant(size):
                if not _is_found(fault.claims(size)):
                    less = str(size)
                    break
            least = str(size)
        print(f"  | {fault.name} | {least} | {less} |  ({time.perf_counter() - started:.0f} s)", flush=True)


def _is_found(claims: Claims) -> bool:
    """Tell whether enough of the runs find something; it stops when too many have not."""
    missed = 0
    for seed in range(RUNS):
        missed += not any(_shows(claim, seed) for claim in claims)
        if missed > RUNS - ENOUGH:
            return False
    return True


def _shows(claim: Any, seed: int) -> bool:
    rng = seeded(seed)
    if isinstance(claim, Never):
        return any(claim.look(rng) for _ in range(max(claim.least, DEVICES // claim.takes)))
    exact = Sampling(0, 0, error=ERROR / CLAIMS, rng=rng)
    return any(audit([claim], each)[0].verdict for each in (exact, replaced(exact, reports=REPORTS, devices=DEVICES)))


def faults() -> Iterator[Fault]:
    """Yield the kinds."""
    flag, hidden = of_metric(EVERY["flag"], BESIDE), of_metric(EVERY["flag, hidden"], BESIDE)
    memo, grr = of_metric(EVERY["flag again"], BESIDE), of_metric(EVERY["grr"], BESIDE)
    yield Fault(
        "a coin of the SDK is off by so much of its threshold's scale", ["2^-64"], _off_by_one, lambda _: _reports(flag)
    )
    yield Fault(
        "a randomizer of others that says its answer in so many of its reports",
        [Fraction(1, 500 * 2**place) for place in range(8)],
        nullcontext,
        lambda share: [claim_of("shame", _Shame(share))],
    )
    yield Fault(
        "a coin of others, at epsilon 1, that is off by so much of its threshold",
        [Fraction(1, 10 * 2**place) for place in range(6)],
        nullcontext,
        lambda share: [claim_of("coin", _Louder(share))],
    )
    yield Fault(
        "a device's report is the answer itself, in so many reports",
        SHARES,
        _clear,
        _parts(grr, "device, draws", "device"),
    )
    yield Fault(
        "a memo is drawn anew every so many days",
        [20, 40, 60, 80, 90, 100, 120, 180],
        _anew,
        _parts(memo, "device, draws"),
    )
    yield Fault(
        "a hidden answer opens its period, on so many devices", SHARES, _opening, _parts(hidden, "device, lives")
    )
    yield Fault(
        'the "none" of a period is lost, on so many devices',
        SHARES,
        _losing,
        _parts(hidden, "device, presence", "device, lives"),
    )
    yield Fault(
        "a hidden answer plans an upload, on so many devices",
        SHARES,
        _planning,
        _parts(hidden, "device, presence", "device, lives"),
    )
    yield Fault(
        "the length of an upload says the answer, on so many devices",
        SHARES,
        _longer,
        _parts(flag, "device", "device, lives"),
    )


def _reports(registry: Registry) -> list[Claim]:
    return list(claims_of(registry.metrics["asked"]))


def _parts(registry: Registry, *parts: str) -> Callable[[Any], Claims]:
    claims = [claim for claim in device_claims(registry, registry.metrics["asked"]) if claim.part in parts]
    return lambda _: claims


class _Shame:
    inputs, epsilon = ("yes", "no"), 1

    def __init__(self, share: Fraction) -> None:
        self._threshold = round(SCALE * share)

    def randomize(self, value: str, rng: Rng) -> str:
        return value if rng.coin(self._threshold) else "nothing"


class _Louder:
    inputs, epsilon = (0, 1), 1

    def __init__(self, share: Fraction) -> None:
        threshold = of_metric(EVERY["flag"]).metrics["asked"].mechanism.parameters()["threshold"]
        self._threshold = round(threshold * (1 + share))

    def randomize(self, value: int, rng: Rng) -> int:
        return value if rng.coin(self._threshold) else 1 - value


def _off_by_one(_: object) -> AbstractContextManager[object]:
    return patch.object(Rng, "coin", lambda self, threshold: self.randbits(self.coin_bits) <= threshold)


@contextmanager
def _bad(share: Fraction) -> Iterator[Callable[[Any], bool]]:
    """Yield what tells whether something is of a bad device: a share of all are, however often they start again."""
    made, coins = Device.__init__, random.Random(1)
    files: dict[int, bool] = {}

    def make(self: Device, *given: Any, **more: Any) -> None:
        made(self, *given, **more)
        if not more.get("goes_on"):
            files[id(self._file)] = coins.random() < share

    with patch.object(Device, "__init__", make):
        yield lambda part: files[id(part._file)]


@contextmanager
def _recording(before: Callable[[Device, Metric, object], object], share: Fraction) -> Iterator[None]:
    """Do something before each answer, on a share of all devices."""
    record = Device.record
    with _bad(share) as bad:

        def spoiled(self: Device, metric: Metric, answer: object, *given: Any) -> str:
            if bad(self):
                before(self, metric, answer)
            return record(self, metric, answer, *given)

        with patch.object(Device, "record", spoiled):
            yield


def _opening(share: Fraction) -> AbstractContextManager[object]:
    def opens(device: Device, metric: Metric, answer: object) -> None:
        if metric.hidden:
            with device._file.transaction():
                device._slots.open_periods()

    return _recording(opens, share)


def _planning(share: Fraction) -> AbstractContextManager[object]:
    def plans(device: Device, metric: Metric, answer: object) -> None:
        if metric.hidden:
            with device._file.transaction():
                device._send_schedule.planned(lambda: 0.0)

    return _recording(plans, share)


@contextmanager
def _longer(share: Fraction) -> Iterator[None]:
    last: list[object] = [None]

    def keep(device: Device, metric: Metric, answer: object) -> None:
        last[0] = answer if metric.name == "asked" else last[0]

    encode = writing.encode_upload
    with (
        _recording(keep, share),
        patch.object(outbox, "encode_upload", lambda *upload: encode(*upload) + b" " * (last[0] is True)),
    ):
        yield


@contextmanager
def _losing(share: Fraction) -> Iterator[None]:
    opens = Slots.open_periods
    with _bad(share) as bad:

        def losing(self: Slots) -> None:
            if bad(self):
                self._file.execute("DELETE FROM slot WHERE replaceable AND leaves <= ?", (self._days.today(),))
            opens(self)

        with patch.object(Slots, "open_periods", losing):
            yield


@contextmanager
def _clear(share: Fraction) -> Iterator[None]:
    """Put the answer's own symbol in the place of a report, by coins that no law knows of."""
    coins = random.Random(3)
    build = outbox.Outbox.build
    last: list[object] = [0]

    def keep(device: Device, metric: Metric, answer: object) -> None:
        if metric.name == "asked":
            known = isinstance(answer, str) and answer in metric.values
            last[0] = metric.values.index(answer) if known else None

    def clear(self: Any) -> bool:
        if coins.random() < share and last[0] is not None:
            self._file.execute("UPDATE slot SET report = ? WHERE metric = 'asked'", (str(last[0]),))
        return build(self)

    with _recording(keep, Fraction(1)), patch.object(outbox.Outbox, "build", clear):
        yield


@contextmanager
def _anew(days: int) -> Iterator[None]:
    noted, whole = [0], Days.today

    def noting(self: Days) -> int:
        noted[0] = whole(self)
        return noted[0]

    def anew(secret: bytes, context: bytes) -> Rng:
        return keyed_rng(secret, context + b" %d" % (noted[0] // days))

    with patch.object(Days, "today", noting), patch.object(recording, "keyed_rng", anew):
        yield
