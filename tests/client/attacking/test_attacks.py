"""Attacks reach all where nothing protects, and stay at or below their bounds where something does."""

from math import comb, sqrt

import pytest

from dither.attacking import memo_linking
from dither.attacking.attacks import ATTACKS, attack, broken
from dither.attacking.trials import Score, Trial
from dither.auditing import linking
from dither.device import recording
from dither_shared.rng import Rng
from tests.support.attacks import FLAG, MEMO, attacked, trial
from tests.support.audits import EVERY, seeded
from tests.support.soaking import SOAK, scaled, thinned

SIGMAS = 5.0
CLEAR = MEMO if SOAK else MEMO.replace("epsilon = 1\n", "epsilon = 1.9\n")
"""A memo that reports nearly tell: in `make test` few of them make it known. The memo itself tells the same."""


def near(point: Score, share: float) -> bool:
    """Tell whether a measured share is within 5 sigma of an exact one."""
    return abs(point.share - share) <= SIGMAS * sqrt(share * (1 - share) / point.n) + 1e-9


def test_without_noise_everybody_is_guessed_right_on_the_first_day() -> None:
    (line,) = attacked("plain", trial(300, 8)).lines
    assert {point.share for point in line.points} == {1.0}


def test_redrawn_noise_averages_away_and_a_devices_reports_end() -> None:
    endless, capped = attacked("redrawn", trial(scaled(40, 300), scaled(40, 60))).lines
    assert endless.last.share > 0.98
    assert {point.right for point in capped.points if point.x >= 3} == {capped.last.right}
    # Three reports of epsilon 1: two of three are right.
    p = 0.7310585786300049
    assert near(capped.last, p**3 + 3 * p**2 * (1 - p))
    assert capped.last.bound == pytest.approx(0.9525741268224334, abs=1e-6)


def test_averaging_follows_the_exact_law() -> None:
    (line,) = attacked("averaging", trial(scaled(500, 2_000), 50)).lines
    exact = dict(line.computed)
    assert [point.x for point in line.points] == list(exact)
    for point in line.points:
        assert near(point, exact[point.x])
        assert point.bound is not None
        assert exact[point.x] <= point.bound + 1e-12
    assert exact[1] == pytest.approx(line.points[0].bound)  # a flag's report reaches it
    assert exact[50] > 0.999


DARK = 'name = "dark"\nkind = "flag"\nmemoize = true\nepsilon = 1.9\nepsilon_permanent = 2\nanswers = 2'
DARK = DARK.replace("1.9", "1") if SOAK else DARK


@pytest.mark.parametrize(("metric", "reaches"), [(DARK, True), (f"{CLEAR}\nanswers = 2", False)])
def test_all_copies_of_a_memo_tell_what_the_memo_does(metric: str, reaches: bool) -> None:
    """For a flag that is the bound itself; for more values it is less."""
    (line,) = attacked("memo", trial(scaled(30, 200), scaled(10, 30), metric)).lines
    bound, known = line.last.bound, line.computed[-1][1]
    assert near(line.last, known)
    assert bound == pytest.approx(0.8807970779778823, abs=1e-6)
    assert bound is not None
    assert known <= bound + 1e-12
    assert (known == pytest.approx(bound)) == reaches


def test_the_day_of_a_change_shows_and_its_answers_do_not() -> None:
    whether, day, order = attacked("change", trial(scaled(20, 100), scaled(40, 120), f"{CLEAR}\nanswers = 2")).lines
    assert whether.last.share > 0.85
    assert day.last.share > 0.5
    assert whether.last.bound is None
    assert order.last.bound == pytest.approx(0.9820137900379085, abs=1e-6)
    assert not order.last.above_its_bound(1e-6)


def test_where_one_answer_is_all_a_further_one_repeats_it_and_no_change_shows() -> None:
    whether, *_ = attacked("change", trial(scaled(40, 150), scaled(12, 40), f"{CLEAR}\nanswers = 1")).lines
    assert near(whether.last, 0.5)


def test_new_terms_draw_no_memo_again() -> None:
    devices = scaled(10, 80)
    found = attacked("revs", trial(devices, scaled(240, 360)))
    anew, rev, integer, name = found.lines
    assert anew.last.share > 0.95
    for line in (rev, integer):
        assert line.last.bound == pytest.approx(0.8807970779778823, abs=1e-6)
        assert not line.last.above_its_bound(1e-6)
    assert f"{devices} still speak" in found.measured
    assert found.measured.count("and 0 speak") == 2  # another integer; and of another name the third does not fit
    # Two names of two answers each fit into an epsilon of 10, and the third asks in vain.
    assert name.last.share < anew.last.share


def test_linking_is_what_the_formula_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among fewer devices in `make test`: `test_linking.py` measures the whole crowd."""
    monkeypatch.setattr(memo_linking, "CROWDS", scaled(1, 2))
    if not SOAK:
        monkeypatch.setattr(linking, "BEFORE", 4)
        monkeypatch.setattr(memo_linking, "SIZES", (2, 5, 10, 20, 40, 120))
        for module in (memo_linking, linking):
            monkeypatch.setattr(module, "POPULATION", 120)
    found = attacked("linking", trial(1, 8, f"{CLEAR}\nanswers = 2", FLAG))
    (line,) = found.lines
    for point in line.points:
        assert point.bound is not None
        assert near(point, point.bound)


def test_a_report_that_is_surrounded_is_told_as_if_it_were_read_alone_and_no_better() -> None:
    """A flag's report reaches its bound; among a hundred of others it tells hardly more than a coin."""
    (line,) = attacked("surrounding", trial(scaled(150, 4_000), 8)).lines
    alone = 0.7310585786300049
    assert [point.bound for point in line.points] == pytest.approx([alone] * 7, abs=1e-6)
    assert near(line.last, alone)
    assert near(line.points[0], 0.5 + _gain(100, alone))
    assert [point.x for point in line.points] == [0, 50, 80, 90, 95, 98, 99]


def _gain(reports: int, p: float) -> float:
    """Return how much more often than a coin a device is guessed right by how many of so many flags say yes."""
    others: list[float] = [comb(reports - 1, yes) / 2.0 ** (reports - 1) for yes in range(reports)]
    one, other = ([*(q * each for each in others), 0.0] for q in (1 - p, p))
    up, down = ([0.0, *(q * each for each in others)] for q in (p, 1 - p))
    return sum(abs(a + b - c - d) for a, b, c, d in zip(one, up, other, down, strict=True)) / 4


def test_no_attack_is_above_its_bound_whatever_is_asked() -> None:
    """Mechanisms of each form, hidden presence, cohorts; at 1e-6 for each.

    It takes 60 devices to be above a bound. In `make test` there are 4, and each attack is only carried out.
    """
    for fresh, memo in thinned((("flag, hidden", "rappor"), ("ss", "oue again"), ("number", "flag again, hidden")), 0):
        asked = trial(
            scaled(4, 80),
            scaled(8, 20),
            f'name = "fresh"\n{EVERY[fresh]}',
            f'name = "memo"\n{EVERY[memo]}',
            epsilon="1000.0",
        )
        names = [name for name in ATTACKS if name != "linking"]
        found = attack(asked, names)
        assert [each.name for each in found] == names
        assert list(broken(found)) == []


if SOAK:  # else by audits (auditing/test_catches.py, test_lives.py); test_attack_command.py shows what is said of one

    def test_a_memo_that_is_drawn_each_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
        fresh = seeded(7)

        def redrawn(secret: bytes, context: bytes) -> Rng:
            return fresh

        monkeypatch.setattr(recording, "keyed_rng", redrawn)
        found = attacked("memo", trial(150, 40))
        assert [line for _, line in broken([found])] == ["theme: all reports of one memo"]


def test_what_there_is_no_metric_for_is_left_out() -> None:
    only_fresh: Trial = trial(10, 8, FLAG)
    assert [each.name for each in attack(only_fresh, list(ATTACKS))] == ["plain", "redrawn", "averaging", "surrounding"]


def test_a_seed_gives_the_same_again() -> None:
    one, other = (attacked("memo", trial(scaled(8, 20), scaled(5, 10), seed=5)) for _ in range(2))
    assert one == other
    assert one != attacked("memo", trial(scaled(8, 20), scaled(5, 10), seed=6))
