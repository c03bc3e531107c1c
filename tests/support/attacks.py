"""Attacks for the tests: seeded, in this process."""

from dither.attacking.attacks import ATTACKS
from dither.attacking.trials import Attack, Trial
from dither_shared.registry import Registry
from tests.pinned.registries import HEAD, registry_of
from tests.support.audits import seeded

FLAG = 'name = "crashed"\nkind = "flag"\nepsilon = 1\nreports = 3'
MEMO = 'name = "theme"\nkind = "choice"\nvalues = ["light", "dark"]\nmemoize = true\nepsilon = 1\nepsilon_permanent = 2'
EPSILON = "10.0"


def trial(devices: int, days: int, *metrics: str, seed: int = 1, epsilon: str = EPSILON) -> Trial:
    """Return a trial of the first metric of fresh noise and the first memoized one."""
    registry = Registry.parse(registry_of(*(metrics or (FLAG, f"{MEMO}\nanswers = 2")), head=_head(epsilon)))
    chosen = {metric.memoized: metric for metric in reversed([*registry.metrics.values()])}
    return Trial(registry, chosen.get(False), chosen.get(True), days, devices, seeded(seed))


def _head(epsilon: str) -> str:
    return HEAD.replace("1000.0", epsilon)


def attacked(name: str, trial: Trial) -> Attack:
    """Return what came of an attack."""
    found = ATTACKS[name](trial)
    assert found
    return found
