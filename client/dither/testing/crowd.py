"""A crowd: simulated devices that answer one metric through the SDK, and what comes back out of their reports."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from decimal import Decimal
from types import MappingProxyType

from dither.development import without_waiting
from dither.device import DAY_S, Device
from dither.testing.offline_telemetry import Clock
from dither_shared.estimating import Share, estimate_shares
from dither_shared.exact import MICRO
from dither_shared.registry import Metric, Registry
from dither_shared.rng import RandBits, Rng
from dither_shared.wire.reading import parse_upload


def new_metric(kind: str, **keys: object) -> Metric:
    """Return a metric of a kind, with the registry's keys for it; those left out are as `dither metrics new` has them.

        theme = new_metric("choice", values=["light", "dark"], epsilon=2)

    A memoized metric has other keys than those: take it from a registry.
    """
    from dither.commands.metrics.new import OWNER, registry_text

    exact = {key: Decimal(str(value)) if isinstance(value, float) else value for key, value in keys.items()}
    return Registry.changed(registry_text("crowd", [("asked", kind)], OWNER), "asked", exact)


def ask_crowd(metric: Metric, answers: Sequence[object], randbits: RandBits = secrets.randbits) -> list[Share]:
    """Let a device of its own give each answer once, count the reports, and return what they tell.

        for share in ask_crowd(Registry.load("metrics.toml").metrics["theme"], ["dark"] * 600 + ["light"] * 400):
            print(share.value, share.estimate, share.lower, share.upper)

    Its metric is a flag or a list, of at most some dozens of values if it is to be quick. Raises InvalidParameter for
    another one, and for fewer answers than a normal law needs.
    """
    return estimate_shares(metric.plan, _reports(metric, answers, Rng(randbits)))


def _reports(metric: Metric, answers: Sequence[object], rng: Rng) -> Iterator[int]:
    """Yield the report of each answer's device, off the upload that it would send."""
    metrics = MappingProxyType({metric.name: metric})
    registry = without_waiting(Registry("crowd", Decimal(metric.reservation) / MICRO, 0, metrics, linkable=True))
    asked = registry.metrics[metric.name]
    device: Device | None = None
    for answer in answers:
        clock = Clock()
        device = Device(registry, None, rng, clock, follows=device)
        device.open()
        device.agree_once()
        if metric.hidden:
            device.look()  # opens the period, and the answer leaves when it has closed
        device.record(asked, answer)
        clock.now += DAY_S * metric.period_days * metric.hidden
        upload = device.next_upload()
        assert upload is not None
        (group,) = parse_upload(upload.body, lambda *_: metric.plan).groups
        yield int.from_bytes(group.reports, "little")
    if device:
        device.close()
