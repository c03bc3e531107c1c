"""Audits for the tests: seeded, in this process."""

import random
from collections.abc import Iterable

from dither.auditing.auditing import Finding, Sampling, audit
from dither.auditing.claims import Claim, Never, Repetition, claims_of
from dither.auditing.devices import device_claims
from dither_shared.registry import Registry
from dither_shared.rng import Rng
from tests.pinned.registries import HEAD, registry_of
from tests.support.soaking import SOAK

ERROR = 1e-3


def seeded(seed: int) -> Rng:
    return Rng(random.Random(seed).getrandbits)


def of_metric(*keys: str) -> Registry:
    """Return a registry with the metric `asked`, of these keys; other metrics say their name."""
    return Registry.parse(registry_of(*keys, head=HEAD))


def reports(registry: Registry) -> list[Claim]:
    return list(claims_of(registry.metrics["asked"]))


def devices(registry: Registry, part: str = "") -> list[Claim | Repetition | Never]:
    """Return the claims about whole devices, or the one that is named."""
    found = list(device_claims(registry, registry.metrics["asked"]))
    return [claim for claim in found if part in ("", claim.part)]


def audited(claims: Iterable[Claim | Repetition | Never], n: int, seed: int = 1, error: float = ERROR) -> list[Finding]:
    """Return what an audit finds with n samples a side."""
    return audit(list(claims), Sampling(n, n, error=error, rng=seeded(seed)))


def verdicts(findings: Iterable[Finding]) -> list[str]:
    return [finding.verdict for finding in findings]


def _listed(d: int) -> str:
    return "values = [" + ", ".join(f'"v{place}"' for place in range(d)) + "]"


def _fresh(kind: str, epsilon: str, *more: str) -> str:
    return "\n".join([f'kind = "{kind}"', f"epsilon = {epsilon}", "reports = 1", *more])


def _memo(kind: str, epsilon: str, permanent: str, *more: str) -> str:
    return "\n".join(
        [
            f'kind = "{kind}"',
            f"epsilon = {epsilon}",
            "memoize = true",
            f"epsilon_permanent = {permanent}",
            *(() if kind == "number" else ("answers = 3",)),
            *more,
        ]
    )


def _by(name: str) -> str:
    return f'mechanism = "{name}"'


SECOND_COLUMN = '["x", "y", "z"]' if SOAK else '["x", "y"]'
"""A third value has a table's subsets hold three symbols, not two, of which there are far more to try."""
_RANGES = 'unit = "s"\nlow = 0\nhigh = 8\nbuckets = 8'
EVERY = {
    "flag": _fresh("flag", "1"),
    "flag, hidden": _fresh("flag", "1", 'presence = "hidden"'),
    "grr": _fresh("choice", "2", _by("grr"), _listed(9)),
    "ss": _fresh("choice", "1", _by("ss"), _listed(9)),
    "pgr": _fresh("choice", "2", _by("pgr"), _listed(40)),
    "oue": _fresh("choice", "2", _by("oue"), _listed(12)),
    "choices by privset": _fresh("choices", "2", _by("privset"), "ticks_max = 2", _listed(7)),
    "choices by oue": _fresh("choices", "2", _by("oue"), "ticks_max = 2", _listed(7)),
    "choices by sue": _fresh("choices", "2", _by("sue"), "ticks_max = 5", _listed(7)),
    "number": _fresh("number", "2", _RANGES),
    "mean": _fresh("number", "2", 'unit = "s"\nlow = 0\nhigh = 8\nasks = ["mean"]'),
    "table": _fresh("table", "2", f'columns.a = ["x", "y"]\ncolumns.b = {SECOND_COLUMN}\ncolumns.c = ["x"]'),
    "flag again": _memo("flag", "1", "3"),
    "flag again, hidden": _memo("flag", "1", "3", 'presence = "hidden"'),
    "grr again": _memo("choice", "1", "3", _by("grr"), _listed(9)),
    "ss again": _memo("choice", "1", "3", _by("ss"), _listed(7)),
    "pgr again": _memo("choice", "1", "3", _by("pgr"), _listed(9)),
    "oue again": _memo("choice", "1", "3", _by("oue"), _listed(9)),
    "choices by sue again": _memo("choices", "2", "4", _by("sue"), "ticks_max = 2", _listed(7)),
    "choices by privset again": _memo("choices", "2", "4", _by("privset"), "ticks_max = 2", _listed(5)),
    "number again": _memo("number", "1", "3", _RANGES),
    "rappor": _memo("text", "2", "4", _by("rappor")),
    "text again": _memo("text", "1", "2", _by("pgr"), "candidates_expected = 100"),
}
"""A metric of every mechanism and of every form of a memo whose laws are quickly told."""
LARGE = {"text": _fresh("text", "2"), "words": _fresh("words", "2")}
"""Those of hashed texts, with as many points as take a while."""
