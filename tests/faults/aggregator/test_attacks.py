"""`make bench ARGS=attacks`, a second of each or less: no wait below a second is asserted here but in a soak.

Acknowledged uploads are counted once, most good uploads get through in ten seconds, memory and the log are bounded,
health answers in five, and the server takes uploads again when the attackers have gone, fast or not. A server without
a bound is told from one with it.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.benchmarks import attacks, outcomes, steady, watching
from tests.benchmarks.attackers import ADMINS, APART, ATTACKERS
from tests.benchmarks.attacks import ATTACKS, Attack, measure, seed
from tests.benchmarks.outcomes import Outcome
from tests.support.soaking import MEMORY, SOAK, thinned

pytestmark = pytest.mark.slow

PLANTED_S = (0.5, 8.0)
"""A server without a bound shows it in the shorter attack, or in the longer one where the machine has little time."""
QUIET = ("slow", "idle")
"""Attackers that take a second to do what they do, and little of a core; the others take one whole."""
RATE = 80
"""Good uploads a second, in the place of 200: half a second of them in a row shows that the server is back."""
STARTING_S = 0.05
"""A process has less processor time than this before it is made less urgent, and more before it reads anything."""
FAULTS = {
    "forgets": ("wrong-keys", "the ledger has 0 of"),
    "hoards": ("pipelining", "MiB, more than"),
    "chats": ("wrong-keys", "it logged"),
    "sulks": ("wrong-keys", "questions for its health failed"),
    "breaks": ("wrong-keys", "it did not come back"),
}
"""For each planted server, the attack that shows its fault, and the words for it. None of them stores anything."""


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm up, and take the base, for a moment: the server is back here when it takes uploads as before, fast or not.

    The base shows how fast that was, and none of the stalls that a busy machine has later.
    """
    monkeypatch.setattr(attacks, "wait_max_s", lambda _: steady.WITHIN_S)
    if not SOAK:
        monkeypatch.setattr(attacks, "WARM_S", 0.2)
        monkeypatch.setattr(attacks, "BASE_MIN_S", 0.3)
        monkeypatch.setattr(attacks, "RATE", RATE)
        monkeypatch.setattr(attacks, "BACK_UPLOADS", RATE // 2)


@pytest.fixture(scope="module")
def seeded() -> Iterator[Path]:
    with TemporaryDirectory(dir=MEMORY) as directory:
        seed(Path(directory))
        yield Path(directory)


SURVIVED = [attack for attack in ATTACKS if attack.attackers not in ADMINS]


@pytest.mark.parametrize("attack", thinned(SURVIVED, 0, 2, 4), ids=lambda attack: attack.name)
def test_an_attack_is_survived(attack: Attack, seeded: Path) -> None:
    outcome = measure(attack, seconds_of(attack), seeded)
    _check_attacked(attack, outcome)
    assert not outcome.unsound(), "; ".join(outcome.unsound())


@pytest.mark.parametrize("attackers", thinned(APART, 0))
def test_uploads_hardly_wait_beside_hostile_registries_bodies_and_candidates(
    attackers: str, seeded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a soak, alone on its machine: half of them, and all but one of a hundred, at most twice as long as without.

    Beside other tests how long they wait says little. There no process works on what is hostile that is as urgent as
    the one that takes uploads.
    """
    (attack,) = (attack for attack in ATTACKS if attack.attackers == attackers)
    if not SOAK:
        outcome = measure(attack, 1.0, seeded, apart_s=STARTING_S)
        _check_attacked(attack, outcome)
        assert not outcome.unsound(), "; ".join(outcome.unsound())
        assert outcome.spent.urgent_s < STARTING_S <= outcome.spent.apart_s
        return
    monkeypatch.setattr(attacks, "BASE_MIN_S", 1.0)
    measured: list[list[tuple[float, float]]] = []
    for _ in range(4):
        outcome = measure(attack, 30.0, seeded)
        _check_attacked(attack, outcome)
        assert not outcome.unsound(), "; ".join(outcome.unsound())
        measured.append([(outcome.base.percentile_s(at), outcome.attacked.percentile_s(at)) for at in (50, 99)])
        if all(attacked <= 2 * quiet for quiet, attacked in measured[-1]):
            return
    raise AssertionError(measured)


def seconds_of(attack: Attack) -> float:
    """Return how long to attack."""
    if SOAK:
        return 30.0
    return 1.0 if attack.attackers in QUIET else 0.6


def _check_attacked(attack: Attack, outcome: Outcome) -> None:
    """Check that the attack took place."""
    done = outcome.done
    assert done["opened"] >= ATTACKERS[attack.attackers].number
    if attack.attackers != "idle":
        assert done["bytes sent"] > done["opened"]
    if attack.attackers != "wrong-keys":
        assert not done["401"] + done["303"]  # nobody was only turned away


@pytest.mark.parametrize("fault", thinned([*FAULTS], 0, 1, 4))
def test_a_server_without_a_bound_is_caught(fault: str, seeded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own words: the one with no other fault than theirs yields none of them, under the same short limits."""
    monkeypatch.setattr(attacks, "RECOVERY_S", 1.0)
    monkeypatch.setattr(steady, "SETTLED_WITHIN_S", 1.0)
    monkeypatch.setattr(watching, "HEALTH_WITHIN_S", 1.0)
    monkeypatch.setattr(outcomes, "MEMORY_MAX_MIB", 128)  # a server that does so little has a third of it
    name, words = FAULTS[fault]
    attack = next(each for each in ATTACKS if each.attackers == name)
    bad = [sys.executable, "-m", "tests.faults.aggregator.unbounded", fault]
    for seconds in PLANTED_S:
        outcome = measure(attack, seconds, seeded, before=bad)
        _check_attacked(attack, outcome)
        caught = any(words in each for each in outcome.unsound())
        if caught := caught and (fault != "forgets" or len(outcome.unsound()) == 1):
            break
    assert caught, outcome.unsound()
