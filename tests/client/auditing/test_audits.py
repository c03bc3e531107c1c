"""Audits of what is sound: exact laws are those declared, bounds are those expected, and nothing is found."""

import multiprocessing
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from dither.auditing import devices as of_devices
from dither.auditing.auditing import ALPHA, Finding, Sampling, audit
from dither.auditing.black_box import EVENTS, best_of_laws
from dither.auditing.claims import Claim, Never, Repetition, claims_of, exactly
from dither.auditing.laws import Likelier, Outcome, Paths
from dither.auditing.samples import WORTH, over_cores
from dither_aggregator.simulate.populations import browsers, census
from dither_shared.frozen import replaced
from dither_shared.registry import Registry, utc_today
from dither_shared.rng import Rng
from tests.support.audits import EVERY, audited, devices, of_metric, reports, seeded, verdicts
from tests.support.soaking import SOAK, scaled, thinned

N = scaled(500, 2_000)


@pytest.mark.parametrize("name", thinned(list(EVERY), 1, 3, 6, 9, 20))
def test_the_exact_loss_is_the_declared_one_and_samples_prove_about_what_they_should(name: str) -> None:
    """With seeds: a bound is 4 standard deviations below its mean in one of 30,000 cases; learned ones are above."""
    for found in audited(reports(of_metric(EVERY[name])), scaled(N // 4, N) if name == "rappor" else N):
        assert (found.verdict, found.equal) == ("", True)
        assert found.expected is not None
        assert found.bound > found.expected.mean - 4 * found.expected.deviation


@pytest.mark.slow
@pytest.mark.parametrize("name", thinned(["browsers", "census"], 0))
def test_the_demos_metrics_have_the_declared_loss_wherever_their_laws_are_small_enough(name: str) -> None:
    """Two of ten pairs of the census' columns are told by subsets, of which there are too many to try each."""
    population = browsers() if name == "browsers" else census()
    registry = Registry.parse(population.registry(utc_today()))
    unequal: list[tuple[str, str, bool]] = []
    tried: set[tuple[str, str]] = set()
    for metric in registry.metrics.values():
        if metric.cells.tally_size > 100_000:  # hashed texts: `make bench ARGS=audit` has them
            continue
        claims = list(claims_of(metric))
        for claim in thinned(claims, *sorted({0, len(claims) - 1})):  # cells differ in which columns they are of
            tried.add((claim.subject, claim.part))
            law = exactly(claim, Paths(scaled(10_000, 80_000)))  # enough for some dozens of browsers
            if isinstance(law, str) or law.ratio != claim.exp_own:
                unequal.append((claim.subject, claim.part, isinstance(law, str) and "sequences of decisions" in law))
    expected = [("earnings", "report, cell 7", True), ("earnings", "report, cell 9", True)]
    assert unequal == [each for each in expected if each[:2] in tried]
    assert ("earnings", "report, cell 9") in tried or name != "census"


SOUND = {
    "flag, hidden": scaled(60, 250),
    "number": 120,
    "choices by privset": 120,
    "flag again": 50,
    "rappor": 50,
    "number again": 50,
    "pgr again": 200,
}
"""Metrics, and as many devices as it takes for one of their bounds to be above 0 for sure."""


@pytest.mark.parametrize("name", thinned(list(SOUND), 3))  # `make soak` has them all
def test_whole_devices_prove_about_what_they_should(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With seeds, as above."""
    keys = EVERY[name]
    if not SOAK:  # reports tell more, so that fewer devices do, and fewer reports tell a memo
        for quiet, loud in (("1\n", "2.8\n"), ("2\nmemoize", "3.8\nmemoize")):
            keys = keys.replace(f"epsilon = {quiet}", f"epsilon = {loud}")
        monkeypatch.setattr(of_devices, "REPEATS", 4)
        monkeypatch.setattr(of_devices, "UNTIL", 2)
    asked = of_metric(keys, 'name = "beside"\nkind = "flag"\nepsilon = 1\nreports = 1')
    least: list[float] = []
    for found in audited(devices(asked), SOUND[name]):
        assert found.verdict == ""
        if found.expected:
            least.append(found.expected.mean - 4 * found.expected.deviation)
            assert found.bound > least[-1]
    assert max(least) > 0  # no bound is below it, so that less would assert nothing


def test_many_audits_of_sound_mechanisms_find_nothing() -> None:
    """At a family-wise error of 1e-3, for any number of samples.

    The thousand of the benchmark have found no more than they may.
    """
    names = [name for name in EVERY if name not in ("table", "rappor")]
    found = [
        verdict
        for seed in range(scaled(len(names) // 5, 2 * len(names)))
        for verdict in verdicts(
            audited(reports(of_metric(EVERY[names[5 * seed % len(names)]])), scaled(200, 1_000), seed)
        )
    ]
    assert set(found) == {""}


@pytest.mark.skipif(
    sys.platform != "linux", reason="an audit starts processes on Linux alone, and these are what is tried"
)
def test_processes_draw_together_what_one_draws(tmp_path: Path) -> None:
    """The coins are the system's: a bound is further from its mean than 6 deviations in 2 of ten million runs.

    By the binomial laws of 2,000 samples a side, for the two events together; further below is rarer still.
    """
    drew = {os.getpid()}
    both = multiprocessing.get_context("fork").Barrier(2)
    (claim,) = reports(of_metric(EVERY["grr"]))

    def draw(value: Any, rng: Rng) -> Outcome:
        if os.getpid() not in drew:  # a process that was forked begins: it waits for the other one
            drew.add(os.getpid())
            both.wait(20)
            (tmp_path / str(os.getpid())).touch()
        return claim.draw(value, rng)

    n = max(N, 2 * WORTH)
    together: list[Finding] = audit([replaced(claim, draw=draw)], Sampling(n, 0, spread=over_cores(2)))
    assert len(list(tmp_path.iterdir())) >= 4  # two for each input, and an event tells two apart
    assert verdicts(together) == [""]
    (found,) = together
    hits, others = (int(count.replace(",", "")) for count in found.pair.rpartition(": ")[2].split(" and "))
    assert 0 < others < hits < n
    assert found.expected is not None
    assert abs(found.bound - found.expected.mean) < 6 * found.expected.deviation


def test_an_audit_says_what_it_does() -> None:
    said: list[str] = []
    audit(reports(of_metric(EVERY["number"])), Sampling(0, 0, rng=seeded(1)), said.append)
    assert said == ["1 of 2: asked, report, cell 0", "2 of 2: asked, report, cell 1"]


# The p-values of many audits.

SMALL = ["flag", "flag, hidden", "number", "flag again", "flag again, hidden", "grr again", "choices by oue", "rappor"]
SMALL = SMALL if SOAK else SMALL[:6]
AUDITS, SMALL_REPORTS, SMALL_DEVICES = scaled(50, 100), scaled(100, 400), scaled(10, 400)
WHOLE = ("device", "device, lives", "device, draws") if SOAK else ("device",)
RATE = 1e-6
"""How often one of these tests is wrong."""


@cache
def foreseen(name: str) -> tuple[Claim, Likelier]:
    """Return a claim about reports without its law, and the best event of that law, for all audits of it."""
    claim = reports(of_metric(EVERY[name]))[0]
    law = exactly(claim)
    assert not isinstance(law, str)
    event = best_of_laws(claim, law, 2_000, ALPHA / EVENTS)
    assert event
    return replaced(claim, law=None, foresee=lambda n, alpha: event), event.event


def small_audits(
    times: int = AUDITS, spoil: Callable[[Claim], Claim] = lambda claim: claim
) -> Iterator[tuple[Finding, list[float]]]:
    """Yield what each of many small audits finds of reports, and where the hits of its event lie in their exact laws.

    The last is a number that is uniform for any discrete law: P[fewer hits] + V P[as many], with V uniform.
    """
    for seed in range(times):
        claim, likelier = foreseen(SMALL[seed % len(SMALL)])
        (found,) = audited([spoil(claim)], SMALL_REPORTS, seed)
        (test,) = (each for each in found.tests if each.event == "foreseen")
        yield (
            found,
            [
                float(
                    stats.binom.cdf(hits - 1, test.n, p) + stats.binom.pmf(hits, test.n, p) * random.Random(v).random()
                )
                for hits, p, v in ((test.hits, likelier.p, 2 * seed), (test.others, likelier.q, 2 * seed + 1))
            ],
        )


def more_than_they_may(p_values: Sequence[float]) -> bool:
    """Tell whether more p-values of independent audits are small than may be, at RATE.

    Bounds of discrete counts make them rarer than uniform ones: no more than t of them are below t.
    """
    levels = (0.5, 0.1, 0.01)
    return any(
        stats.binom.sf(sum(p <= level for p in p_values) - 1, len(p_values), level) < RATE / len(levels)
        for level in levels
    )


def test_many_small_audits_of_sound_metrics_raise_no_alarm_and_have_the_p_values_that_they_should() -> None:
    """The numbers are uniform by Kolmogorov and Smirnov at RATE; of p-values no more are small than may be."""
    found = list(small_audits())
    claims: dict[str, list[Claim | Repetition | Never]] = {}
    for name in SMALL:
        of_whole = [claim for claim in devices(of_metric(EVERY[name])) if claim.part in WHOLE]
        claims[name] = [once_told(each) if isinstance(each, Claim) else each for each in of_whole]
    whole = [
        each
        for seed in range(scaled(12, AUDITS))
        for each in audited(claims[SMALL[seed % len(SMALL)]], SMALL_DEVICES, seed)
    ]
    assert {each.verdict for each in (*whole, *(report for report, _ in found))} == {""}
    assert stats.kstest([place for _, places in found for place in places], "uniform").pvalue > RATE
    assert not more_than_they_may([report.p_value for report, _ in found if report.p_value is not None])
    assert not more_than_they_may([each.p_value for each in whole if each.p_value is not None])


def once_told(claim: Claim) -> Claim:
    """Return a claim about devices whose event is told once, for all audits of so many."""
    assert claim.foresee
    event = claim.foresee(SMALL_DEVICES, ALPHA / EVENTS)
    return replaced(claim, foresee=lambda n, alpha: event)


def test_samples_of_another_law_and_a_loss_that_is_larger_are_seen_in_the_p_values() -> None:
    """Planted: coins that fall a sixth more often; claims of half the loss."""

    def louder(claim: Claim) -> Claim:
        return replaced(claim, draw=lambda value, rng: claim.draw(value, _Louder(rng.randbits)))

    def cheaper(claim: Claim) -> Claim:
        return replaced(claim, exp_epsilon=Fraction(exp(log(claim.exp_epsilon) / 2)))

    places = [place for _, places in small_audits(AUDITS, louder) for place in places]
    assert stats.kstest(places, "uniform").pvalue < RATE
    assert more_than_they_may([found.p_value or 0.0 for found, _ in small_audits(50, cheaper)])


class _Louder(Rng):
    def coin(self, threshold: int) -> bool:
        return super().coin(threshold + threshold // 6)

    def coins(self, threshold: int, count: int) -> int:
        return super().coins(threshold + threshold // 6, count)
