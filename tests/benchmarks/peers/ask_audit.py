"""Audit the randomizers of one library in its own environment: its name as the argument, a JSON document on stdout.

    {"reports": samples a side} on stdin -> [{"name", "declared", "proved", "verdict", "event"}]

Our auditor needs nothing but the standard library, so it runs there as it is, on the library's own code and randomness.
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "client"), str(ROOT / "shared")]

from dither.auditing.adapters import claim_of  # noqa: E402
from dither.auditing.auditing import Sampling, audit  # noqa: E402
from dither_shared.rng import Rng  # noqa: E402

REPEATS = 14


class PureLdpRappor:
    """Its RAPPOR of 8 bits and 1 hash, with two values whose bits differ; epsilon by its own conversion."""

    def __init__(self) -> None:
        from pure_ldp.frequency_oracles.rappor import RAPPORClient, RAPPORServer  # type: ignore[import-not-found]

        f, bits, d = 0.5, 8, 16
        hashes = RAPPORServer(f, bits, 1, d, num_of_cohorts=1).get_hash_funcs()
        self._client = RAPPORClient(f, bits, hashes, num_of_cohorts=1)
        self.epsilon = self._client.convert_f_to_eps(f, 1)
        (hashed,) = hashes[0]
        first = 1
        self.inputs = (first, next(value for value in range(2, d) if hashed(str(value - 1)) != hashed(str(first - 1))))

    def randomize(self, value: int, rng: Rng) -> tuple[int, ...]:
        """Return the bits of one report."""
        return tuple(self._client.privatise(value)[0])


class MultiFreqLSue:
    """Its L-SUE of 4 values at (1, 2): one report."""

    inputs, epsilon = (0, 1), 1.0

    def __init__(self) -> None:
        from multi_freq_ldpy.long_freq_est.L_SUE import L_SUE_Client  # type: ignore[import-not-found]

        self._client = L_SUE_Client

    def randomize(self, value: int, rng: Rng) -> Any:
        """Return the bits of one report."""
        return tuple(int(bit) for bit in self._client(value, 4, 2.0, 1.0))


class MultiFreqLSueRepeated(MultiFreqLSue):
    """The same value, 14 times: any number of reports is to cost 2."""

    epsilon = 2.0

    def randomize(self, value: int, rng: Rng) -> Any:
        """Return how often each bit was set."""
        return tuple(int(ones) for ones in sum(self._client(value, 4, 2.0, 1.0) for _ in range(REPEATS)))


class OpenDpBits:
    """Its randomized response of bit vectors of one byte of which at most one bit is set."""

    inputs = (b"\x01", b"\x02")

    def __init__(self) -> None:
        import opendp.prelude as dp  # type: ignore[import-not-found]

        dp.enable_features("contrib")
        make = dp.m.make_randomized_response_bitvec
        self._measurement = make(dp.bitvector_domain(max_weight=1), dp.discrete_distance(), f=0.5)
        self.epsilon = self._measurement.map(1)

    def randomize(self, value: bytes, rng: Rng) -> bytes:
        """Return the bytes that it releases."""
        return bytes(self._measurement(value))


class OpenDpBitsOfAnyLength(OpenDpBits):
    """The same, of one byte and of two: both are in its domain."""

    inputs = (b"\x01", b"\x01\x00")


PEERS: dict[str, tuple[type, ...]] = {
    "pure_ldp": (PureLdpRappor,),
    "multi_freq_ldpy": (MultiFreqLSue, MultiFreqLSueRepeated),
    "opendp": (OpenDpBits, OpenDpBitsOfAnyLength),
}


def main() -> None:
    """Answer on stdout."""
    reports = json.load(sys.stdin)["reports"]
    found = []
    for adapter in PEERS[sys.argv[1]]:
        (finding,) = audit([claim_of(adapter.__name__, adapter())], Sampling(reports, 0))
        found.append(
            {
                "name": finding.subject,
                "declared": finding.declared,
                "proved": finding.bound,
                "verdict": finding.verdict,
                "event": finding.pair,
            }
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
