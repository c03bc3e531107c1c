"""Many tests at once: what is called true is what the definitions say."""

import numpy as np

from dither_aggregator.analysis.multiplicity import benjamini_hochberg, holm, simes


def test_verdicts_are_those_of_the_definitions() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        p_values = rng.random(20) ** rng.integers(1, 9)
        ordered = sorted(p_values.tolist())
        largest = max((p for i, p in enumerate(ordered, 1) if p <= 0.05 * i / 20), default=-1.0)
        assert (benjamini_hochberg(p_values, 0.05) == (p_values <= largest)).all()
        passed = [all(ordered[j] <= 0.05 / (20 - j) for j in range(i + 1)) for i in range(20)]
        assert holm(p_values, 0.05).sum() == sum(passed)
        assert not (holm(p_values, 0.05) & ~benjamini_hochberg(p_values, 0.05)).any()
        assert (simes(p_values) <= 0.05) == benjamini_hochberg(p_values, 0.05).any()


def test_of_nothing_nothing_is_called_true() -> None:
    nothing = np.array([])
    assert benjamini_hochberg(nothing, 0.05).tolist() == holm(nothing, 0.05).tolist() == []
    assert simes(nothing) == 1.0
