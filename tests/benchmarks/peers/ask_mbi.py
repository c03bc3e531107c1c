"""Answer questions about mbi 2.0 (private-pgm), in its own environment: a JSON list on stdin, a JSON list on stdout.

    {"sizes", "n", "iterations", "pairs": [{"columns": [a, b], "shares": [A x B of them], "std_error"}]}
        -> {"weights": [the shares of all cells, the last column fastest], "seconds"}

Mirror descent is what mbi itself recommends. It is told the number of devices, and tables and errors are in devices,
as its users have them.
"""

import json
import sys
import time
import warnings
from typing import Any

import numpy as np

warnings.simplefilter("ignore")  # it says that it computes in 32 bits
from mbi import Domain, LinearMeasurement, estimation  # type: ignore[import-not-found]  # noqa: E402


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Fit a model to the pairs, and return its shares of all cells."""
    began = time.perf_counter()
    n, names = question["n"], [str(place) for place in range(len(question["sizes"]))]
    measured = [
        LinearMeasurement(
            n * np.array(pair["shares"]),
            tuple(names[column] for column in pair["columns"]),
            stddev=n * pair["std_error"],
        )
        for pair in question["pairs"]
    ]
    domain = Domain(names, question["sizes"])
    model = estimation.MirrorDescent().estimate(domain, measured, known_total=n, iters=question["iterations"])
    weights = np.asarray(model.project(names).datavector(), dtype=np.float64)
    return {"weights": (weights / weights.sum()).tolist(), "seconds": time.perf_counter() - began}


if __name__ == "__main__":
    json.dump([answer(question) for question in json.load(sys.stdin)], sys.stdout)
