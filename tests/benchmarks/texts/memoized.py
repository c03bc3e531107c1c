"""Memoized texts: a bucket of the device's cohort beside RAPPOR's bits, where the first of them is chosen.

Devices have the first half of the candidates, by one law or another; nobody has the other half. Reports are first ones.
The error is the mean square against the share among the devices, over the bound of any mechanism. Found are strings
that devices have, by the decoder's verdicts; the share of false ones among all found is measured over all cases.

A hashed memo has few cohorts, so that few devices can be joined: it may find a fifth fewer strings than RAPPOR does.
Little of its error is to be the decoder's: with as many cohorts as RAPPOR has, 1.2 times the bound at most.

In the last rows the list misses as many texts as it has, which three devices in ten have. They lie in the candidates'
buckets, in each of a few cohorts another one, and no fit takes them off: this is told, and held to nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import exp
from typing import cast

import numpy as np

from dither_aggregator.analysis.texts import candidate_bits, decode_candidates
from dither_shared.accounting import linked_share
from dither_shared.domains import Verbatim
from dither_shared.kinds.text_memo import choose_memo
from dither_shared.mechanisms import DEVICE, DEVICE_CELLS_MAX, RAPPOR, Cells, MemoizedTwoLevel, Part
from tests.benchmarks.texts.drawn import LAWS, Devices, draw_bits, draw_buckets

SEEDS = 20
MEMOS = (("1", "2", 100), ("1", "4", 300), ("2", "4", 100), ("2", "4", 300))
"""Epsilon of a report and of all, and the candidates: where a hashed memo is chosen."""
FOUND_MIN = 0.8
"""As a part of RAPPOR's finds."""
ERROR_MAX = 1.2
"""Over the bound, with RAPPOR's cohorts. Four standard errors of a mean of as many squares are added."""
COVERAGE = (0.93, 0.97)
FALSE_MAX = 0.05


@dataclass(frozen=True)
class Run:
    """One decoding beside the truth."""

    error: float
    holds: float
    true: int
    false: int


def run(n: int) -> list[str]:
    """Print a row for each memo and law; return what is missed."""
    print(
        "\n  memoized, first reports                  bits   R(200)   error / bound   holds   true found   false\n"
        "  (in brackets: with RAPPOR's cohorts)"
    )
    missed, runs = [], list[Run]()
    for epsilon, permanent, candidates in MEMOS:
        hashed, rappor = choose_memo(Decimal(epsilon), Decimal(permanent), candidates)
        assert isinstance(hashed.mechanism, MemoizedTwoLevel)
        assert rappor is not None
        as_many = Cells((Part(hashed.mechanism, DEVICE_CELLS_MAX),), DEVICE)
        bound = 4 * exp(float(epsilon)) / (n * (exp(float(epsilon)) - 1) ** 2)
        for law, unlisted in (*((law, 0.0) for law in LAWS), ("zipf", 0.3)):
            case = f"eps {epsilon}, {permanent}, {candidates}, {law}" + (", 30 % unlisted" if unlisted else "")
            each = {
                name: [_decoded(cells, Devices(candidates // 2, n, seed, law, unlisted)) for seed in range(SEEDS)]
                for name, cells in (("hashed", hashed), ("RAPPOR", rappor), ("as many", as_many))
            }
            ratio, of_rappor, of_many = (_mean(some, "error") / bound for some in each.values())
            _print(case, "hashed", hashed, each["hashed"], f"{ratio:.2f} ({of_many:.2f})")
            _print("", "RAPPOR", rappor, each["RAPPOR"], f"{of_rappor:.2f}")
            if unlisted:
                continue
            runs += each["hashed"]
            holds, part = _mean(each["hashed"], "holds"), _mean(each["hashed"], "true") / _mean(each["RAPPOR"], "true")
            missed += [f"{case}: {part:.2f} of what RAPPOR finds"] if part < FOUND_MIN else []
            missed += [f"{case}: coverage {holds:.3f}"] if not COVERAGE[0] <= holds <= COVERAGE[1] else []
            if of_many > ERROR_MAX + 4 * (2 / candidates / SEEDS) ** 0.5:
                missed.append(f"{case}: error {of_many:.2f} with RAPPOR's cohorts")
    false = float(np.mean([run.false / max(run.true + run.false, 1) for run in runs]))
    print(f"  share of false ones among those found by hashed memos: {false:.3f}")
    return [*missed, *([f"memoized: {false:.3f} of those found are false"] if false > FALSE_MAX else [])]


def _decoded(cells: Cells, devices: Devices) -> Run:
    """Decode first reports of these cells."""
    mechanism = cells.mechanism
    candidates = (*devices.names[: devices.listed], *(f"stranger {number}" for number in range(devices.listed)))
    if isinstance(mechanism, RAPPOR):
        bits = candidate_bits(devices.names, mechanism.k, mechanism.h, cells.count)
        rows = decode_candidates(
            Verbatim(), mechanism, draw_bits(devices, mechanism, cells.count, bits), candidates
        ).rows
    else:
        domain, tally = draw_buckets(devices, cast("MemoizedTwoLevel", mechanism), cells.count)
        rows = decode_candidates(domain, mechanism, tally, candidates).rows
    absent = np.zeros(devices.listed)
    held = np.concatenate([devices.held, absent])
    truth = np.concatenate([devices.shares[: devices.listed], absent])
    found = np.array([row.significant for row in rows])
    return Run(
        error=float(np.mean((np.array([row.estimate for row in rows]) - held) ** 2)),
        holds=float(np.mean([row.lower <= share <= row.upper for row, share in zip(rows, truth, strict=True)])),
        true=int(found[: devices.listed].sum()),
        false=int(found[devices.listed :].sum()),
    )


def _print(case: str, name: str, cells: Cells, runs: Sequence[Run], error: str) -> None:
    print(
        f"    {case:36}{name:7}{cells.report_bits:4}{linked_share((cells,)):8.2f}{error:>16}"
        f"{_mean(runs, 'holds'):8.3f}{_mean(runs, 'true'):12.1f}{_mean(runs, 'false'):9.1f}",
        flush=True,
    )


def _mean(runs: Sequence[Run], name: str) -> float:
    return float(np.mean([getattr(run, name) for run in runs]))
