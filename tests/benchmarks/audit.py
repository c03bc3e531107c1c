"""Audits of a metric of every mechanism and memo form, of both demos' registries, and of sound mechanisms many times.

With N reports a side the bound at alpha .01 is held against .98 of epsilon for symbols from epsilon 1 up, elsewhere
against the bound that the exact law lets expect; whole devices likewise. No audit may find anything, and of many audits
of sound mechanisms at a family-wise error of 1e-3 hardly one may. Then randomizers of other libraries are audited.
"""

import argparse
import multiprocessing
import time
from collections.abc import Iterator, Sequence

from dither.auditing.auditing import ALPHA, Finding, Sampling, audit
from dither.auditing.black_box import EVENTS, best_of_laws
from dither.auditing.claims import Claim, Never, Repetition, claims_of, exactly
from dither.auditing.devices import device_claims
from dither.auditing.samples import over_cores
from dither_aggregator.simulate.populations import browsers, census
from dither_shared.frozen import replaced
from dither_shared.registry import Registry, utc_today
from dither_shared.shapes import Symbols
from tests.benchmarks.peers import AUDITED, PeerUnavailable, audit_peer
from tests.support.audits import ERROR, EVERY, LARGE, audited, of_metric, reports

REPORTS, DEVICES, TIMES = 1_000_000, 10_000, 1_000
SHARE_MIN = 0.98
DEVIATIONS_MAX = 3.0
ALARMS_MAX = 4
SAMPLES_OF_MANY = 10_000
PEERS_REPORTS_MAX = 100_000
"""Some take a tenth of a millisecond a report."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the options of this section."""
    parser.add_argument("--audit-reports", type=int, default=REPORTS, help="reports a side of an audit")
    parser.add_argument("--audit-devices", type=int, default=DEVICES, help="devices a side of an audit")
    parser.add_argument("--audit-times", type=int, default=TIMES, help="audits of sound mechanisms")


def run(n: int = REPORTS, devices: int = DEVICES, times: int = TIMES) -> None:
    """Print the tables; raise AssertionError when an aim is missed."""
    missed: list[str] = []
    for name, registry in registries():
        missed += audit_registry(name, registry, n, devices)
    missed += many(times)
    _audit_peers(min(n, PEERS_REPORTS_MAX))
    assert not missed, "; ".join(missed)


def registries() -> Iterator[tuple[str, Registry]]:
    """Yield what is audited."""
    for name, keys in {**EVERY, **LARGE}.items():
        yield name, of_metric(keys)
    for population in (browsers(), census()):
        yield f"demo, {type(population).__name__.lower()}", Registry.parse(population.registry(utc_today()))


def audit_registry(name: str, registry: Registry, n: int, devices: int) -> list[str]:
    """Print the findings of a registry; return the aims that it misses."""
    missed = []
    claims: list[Claim | Repetition | Never] = []
    for metric in registry.metrics.values():
        claims += claims_of(metric)
        claims += device_claims(registry, metric) if devices else ()
    symbols = {
        metric.name
        for metric in registry.metrics.values()
        if all(isinstance(part.mechanism.shape, Symbols) for part in metric.cells.parts)
    }
    for claim in claims:
        started = time.perf_counter()
        (found,) = audit([claim], Sampling(n, devices, spread=over_cores()))
        expected = f"{found.expected.mean:7.4f} ± {found.expected.deviation:.4f}" if found.expected else "-"
        exact = "-" if found.exact_loss is None else f"{found.exact_loss:.4f}{'=' if found.equal else ' '}"
        took = time.perf_counter() - started
        print(
            f"  {name[:24]:24} {found.subject[:12]:12} {found.part:20} {found.declared:8.4f} {exact:>9}"
            f" {found.bound:8.4f}  {expected:18} {took:6.1f} s  {found.verdict or found.missing_reason}",
            flush=True,
        )
        missed += [
            f"{name}, {found.subject}, {found.part}: {what}" for what in _missed(found, found.subject in symbols)
        ]
    return missed


def _missed(found: Finding, symbols: bool) -> Iterator[str]:
    if found.verdict:
        yield found.verdict
    if found.exact is not None and not found.equal:
        yield "the exact loss is not the declared one"
    if found.samples < REPORTS or found.expected is None:
        return
    if symbols and found.declared >= 0.999:
        if found.bound < SHARE_MIN * found.declared:
            yield f"{found.bound:.4f} is below {SHARE_MIN} of {found.declared:.4f}"
    elif abs(found.bound - found.expected.mean) > DEVIATIONS_MAX * found.expected.deviation:
        yield f"{found.bound:.4f} is not what was to be expected"


# Many audits of sound mechanisms.

_prepared: dict[str, list[Claim]] = {}


def many(times: int) -> list[str]:
    """Audit sound mechanisms with fixed seeds, each some times; return what is missed."""
    started = time.perf_counter()
    for name, keys in EVERY.items():
        _prepared[name] = [prepared(claim, SAMPLES_OF_MANY) for claim in reports(of_metric(keys))]
    with multiprocessing.get_context("fork").Pool() as pool:
        alarms = pool.map(_alarms, range(times), chunksize=4)
    found = sum(map(bool, alarms))
    print(
        f"  {times:,} audits of sound mechanisms, {SAMPLES_OF_MANY:,} reports a side, family-wise error {ERROR:g}: "
        f"{found} alarms, {time.perf_counter() - started:.0f} s"
    )
    return [f"{found} alarms in {times:,} audits of sound mechanisms"] if found > ALARMS_MAX else []


def prepared(claim: Claim, n: int) -> Claim:
    """Return a claim with its foreseen event, told once."""
    law = exactly(claim)
    assert not isinstance(law, str)
    foreseen = best_of_laws(claim, law, n, ALPHA / EVENTS)
    return replaced(claim, law=None, foresee=lambda n, alpha: foreseen)


def _alarms(seed: int) -> Sequence[str]:
    names = list(_prepared)
    findings = audited(_prepared[names[seed % len(names)]], SAMPLES_OF_MANY, seed)
    return [f"{each.subject}, {each.part}: {each.verdict}" for each in findings if each.verdict]


def _audit_peers(n: int) -> None:
    """Print what samples prove of randomizers of other libraries, in their own environments, and the verdict."""
    print(f"\n  other libraries, {n:,} reports a side")
    for peer in AUDITED:
        try:
            for found in audit_peer(peer, n):
                print(
                    f"  {peer:16} {found['name']:22} declared {found['declared']:7.4f}  proved {found['proved']:7.4f}"
                    f"  {found['verdict'] or 'holds'}: {found['event']}",
                    flush=True,
                )
        except PeerUnavailable as error:
            print(f"  {peer}: {error}")
