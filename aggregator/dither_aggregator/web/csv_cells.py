"""CSV that a spreadsheet shows and does not run."""

import csv
import io
from collections.abc import Iterable, Sequence

RUNS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet may take a text that begins with one of these for a formula."""
_TRUTH = {True: "true", False: "false"}


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a header and rows as CSV (RFC 4180).

    Texts that a spreadsheet might run get a leading apostrophe. Numbers are written as they are, negative ones too;
    None is an empty cell.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str):
        return "'" + value if value.startswith(RUNS) else value
    return _TRUTH[value] if isinstance(value, bool) else value
