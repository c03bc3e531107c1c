"""The wire, version 1: one POST of reports, grouped by metric and plan, under a fresh random id.

    {"v": 1, "upload": "<128 random bits, base64url>",
     "groups": [{"metric": "browser", "plan": "<16 hex digits>", "reports": [17]},
                {"metric": "homepage", "plan": "<16 hex digits>", "cell": 5, "reports": ["q83vEg"]}]}

The device writes it (`writing`); the aggregator reads it, once (`reading`), and says what it refuses.
`shared/wire.md` has the format with its bytes, limits and answers.
"""

VERSION = 1
PATH = "/v1/reports"
PROBLEM_PREFIX = "urn:dither:problem:"
REASONS = ("malformed", "unknown-metric", "unknown-plan", "expired", "retired", "bad-report")
"""Why a group is refused: there is no other reason."""

WIRE_BYTES_MAX = 256 * 1024
INFLATED_BYTES_MAX = 1024 * 1024
GROUPS_MAX = 50
REPORTS_MAX = 2_000
PADDED_BYTES_MIN = 512
SYMBOL_DIGITS = 7
"""Any symbol has at most so many digits, and takes room for as many in the length of an upload."""
CELL_DIGITS = 5
"""The same of the number of a cell."""
ID_BITS = 128
