"""Linking, measured by whole devices: it is what the formula says, and a mark that is larger is found."""

from math import ceil

import pytest
from scipy.stats import binom

from dither.auditing import linking
from dither.auditing.linking import BEFORE, POPULATION, Crowd, linkable, linking_claims, paired
from dither_shared.accounting.linking import linked_share
from dither_shared.mechanisms import OUE
from dither_shared.registry import Metric, Registry
from dither_shared.rng import SCALE, Rng
from tests.pinned.registries import HEAD, registry_of
from tests.support.audits import EVERY, audited, of_metric, seeded, verdicts
from tests.support.soaking import SOAK, scaled

WITHIN = 0.02
"""How far a measurement may be off."""
ALARM = 1e-3
"""The probability that a measurement of so many devices is further off, if the formula holds, by the binomial law.

Devices of a crowd depend on each other: where few are linked their number varies less than that, else it may vary more.
"""


def asked(*names: str) -> Registry:
    return Registry.parse(registry_of(*(f'name = "m{at}"\n{EVERY[name]}' for at, name in enumerate(names)), head=HEAD))


def crowds_for(share: float) -> int:
    """Return how many crowds make a measurement that is further off than WITHIN in one of 1 / ALARM cases."""
    crowds = 1
    while True:
        n = crowds * POPULATION
        low, high = ceil(n * (share - WITHIN)) - 1, int(n * (share + WITHIN))
        if float(binom.cdf(low, n, share) + binom.sf(high, n, share)) <= ALARM:
            return crowds
        crowds += 1


ALONE = ["rappor", "flag again", "number again", "pgr again"]
MEMO = "memoize = true\nepsilon = 1\nepsilon_permanent"
FLAG = f'name = "a"\nkind = "flag"\nanswers = 1\n{MEMO}'
CHOICE = f'name = "b"\nkind = "choice"\nanswers = 1\nvalues = ["x", "y", "z"]\n{MEMO}'
NUMBER = f'name = "b"\nkind = "number"\nunit = "s"\nlow = 0\nhigh = 8\nbuckets = 2\n{MEMO}'
CODED = f'kind = "choice"\nanswers = 1\nmechanism = "oue"\nvalues = {[f"v{at}" for at in range(24)]}\n{MEMO}'
PAIRS = {"flag and number": [f"{FLAG} = 2", f"{NUMBER} = 2"], "flag and choice": [f"{FLAG} = 2", f"{CHOICE} = 2"]}


if SOAK:  # else one crowd of fewer devices, beside the formula too (attacking/test_attacks.py)

    @pytest.mark.parametrize("what", [*PAIRS, *ALONE])
    def test_metrics_link_as_many_as_the_formula_says_alone_and_together(what: str) -> None:
        metrics = PAIRS.get(what, ())
        measure(Registry.parse(registry_of(*metrics, head=HEAD)) if metrics else asked(what))


def test_where_14_reports_do_not_tell_the_memo_fewer_are_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The formula is what many reports come to: at (1/2, 3) this memo links half by it, and a twelfth when measured.

    Less than a quarter is neither by chance: binomial laws have it otherwise in less than one of a billion runs, and in
    1e-7 of them with a quarter of the devices at (1/4, 3), of which a twentieth are linked.
    """
    epsilon, population = (0.5, POPULATION) if SOAK else (0.25, POPULATION // 4)
    monkeypatch.setattr(linking, "POPULATION", population)
    registry = Registry.parse(registry_of(f"{CODED} = 3".replace("epsilon = 1", f"epsilon = {epsilon}"), head=HEAD))
    crowd = Crowd(registry, tuple(registry.metrics.values()))
    assert crowd.expected > 1 / 2
    assert crowd.joined(seeded(4)) / population < 1 / 4


def test_of_what_is_hidden_as_many_reports_are_kept_before_and_after() -> None:
    registry = asked("flag again, hidden", "flag again")
    life = Crowd(registry, tuple(registry.metrics.values()))._live(seeded(1))
    kept = [sum(count for _, count in mark.memo.summary) for trace in life for mark in trace if mark.memo]
    assert kept == [BEFORE] * 4


def measure(registry: Registry) -> None:
    """Measure one crowd after the other: whom each metric links, and, if they are several, all of them together."""
    metrics = tuple(registry.metrics.values())
    crowd, rng = Crowd(registry, metrics), seeded(3)
    parts = [slice(at, at + 1) for at in range(len(metrics))] if len(metrics) > 1 else []
    shares = [(part, _share_of(metrics[part])) for part in (*parts, slice(None))]
    assert shares[-1][1] == crowd.expected
    crowds = max(crowds_for(share) for _, share in shares)
    lives = [crowd.lives(rng) for _ in range(crowds)]
    for part, share in shares:
        joined = sum(
            paired([trace[part] for trace in before], [trace[part] for trace in after], rng) for before, after in lives
        )
        assert abs(joined / (crowds * POPULATION) - share) <= WITHIN
    assert joined, "of all together, 3 % or more, none of 400 are linked in less than one of a million runs"


def _share_of(metrics: tuple[Metric, ...]) -> float:
    share = linked_share(tuple(metric.cells for metric in metrics))
    assert share is not None
    return share


def test_a_public_column_is_a_mark_and_fresh_noise_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The column shows in the first report as in the last."""
    monkeypatch.setattr(linking, "BEFORE", scaled(2, BEFORE))
    head = f'{HEAD}public = {{ arm = ["control", "treatment"] }}\n'
    columns = 'kind = "table"\nepsilon = 2\nreports = 1\ncolumns.a = ["x", "y"]\ncolumns.b = ["x", "y"]'
    registry = Registry.parse(registry_of(columns, head=head))
    (metric,) = registry.metrics.values()
    crowd = Crowd(registry, [metric])
    assert crowd.expected == pytest.approx(2 / POPULATION)
    assert crowd.joined(seeded(1)) < 20


def test_what_links_is_claimed_alone_and_together() -> None:
    registry = asked("flag again", "flag", "grr again")
    assert [name for name, _ in linkable(tuple(registry.metrics.values()))] == ["m0", "m2", "(all)"]
    assert linkable(tuple(asked("flag").metrics.values())) == []


def test_a_sound_metric_holds_and_a_larger_mark_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: permanent bits by fair coins, which hide the answer, and mark the device. It takes 200 devices.

    Three reports show it as well if one tells nearly as much as the memo.
    """
    monkeypatch.setattr(linking, "BEFORE", scaled(3, BEFORE))
    keys = EVERY["oue again"] if SOAK else EVERY["oue again"].replace("epsilon = 1\n", "epsilon = 2.8\n")
    registry = of_metric(keys)

    def claims(population: int) -> list[str]:
        monkeypatch.setattr(linking, "POPULATION", population)
        return verdicts(audited(linking_claims(registry, tuple(registry.metrics.values())), population))

    assert claims(scaled(60, POPULATION)) == [""]

    def by_coins(self: OUE, answer: int, rng: Rng) -> int:
        return rng.coins(SCALE // 2, self.d)

    monkeypatch.setattr(OUE, "randomize", by_coins)
    assert claims(scaled(200, POPULATION)) == ["more devices can be linked"]


def test_of_too_few_devices_nothing_is_claimed() -> None:
    registry = asked("flag again")
    (found,) = audited(linking_claims(registry, tuple(registry.metrics.values())), POPULATION - 1)
    assert (found.samples, found.verdict) == (0, "")
