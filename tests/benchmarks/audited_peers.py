"""Randomizers of other libraries, audited in their own environments, on their own code and randomness."""

from tests.benchmarks.peers import AUDITED, PeerUnavailable, audit_peer

REPORTS_MAX = 100_000
"""Some take a tenth of a millisecond a report."""


def run(n: int) -> None:
    """Print what samples prove of each, and the verdict."""
    print(f"\n  other libraries, {min(n, REPORTS_MAX):,} reports a side")
    for peer in AUDITED:
        try:
            for found in audit_peer(peer, min(n, REPORTS_MAX)):
                print(
                    f"  {peer:16} {found['name']:22} declared {found['declared']:7.4f}  proved {found['proved']:7.4f}"
                    f"  {found['verdict'] or 'holds'}: {found['event']}",
                    flush=True,
                )
        except PeerUnavailable as error:
            print(f"  {peer}: {error}")
