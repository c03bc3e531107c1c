"""How often the intervals of arms hold, and on how many pages arms that are the same are told to differ."""

import sys

from tests.support.arms import CASES, coverage, false_pages, false_pages_of_uneven_arms

LEAST, MOST = 0.93, 0.97
ALARMS_MAX = 0.05


def run(seeds: int) -> list[str]:
    """Print both; return what is missed."""
    print(f"\n  arms: intervals of 95 % of their shares, means and differences that hold, over {seeds:,} seeds")
    missed = []
    for case, (n, epsilon, design) in enumerate(CASES):
        print(f"\r  case {case}", end="", file=sys.stderr, flush=True)
        held = coverage(case, seeds)
        name = f"{' and '.join(f'{size:,}' for size in n)} reports, eps {epsilon}, {design}"
        print(f"\r  {name:56}{held:7.3f}")
        if not LEAST <= held <= MOST:
            missed.append(f"of the intervals of {name} {held:.3f} hold")
    print("  pages on which any arm is told to differ where none does")
    for arms in (2, 3):
        part = false_pages(seeds, arms)
        print(f"  {arms} arms{'':50}{part:7.3f}")
        if part > ALARMS_MAX:
            missed.append(f"of {arms} arms that are the same {part:.3f} of the pages have a false verdict")
    part = false_pages_of_uneven_arms(seeds)
    print(f"  300 and 30,000 reports, eps 8, 60 cells{'':17}{part:7.3f}")
    if part > ALARMS_MAX:
        missed.append(f"of uneven arms that are the same {part:.3f} of the pages have a false verdict")
    return missed
