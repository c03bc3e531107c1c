"""Tables as CSV that a spreadsheet opens and does not run.

A spreadsheet takes a cell that begins with one of = + - @ for a formula, also behind a tab or a carriage return. Texts
are strangers': such a one gets an apostrophe before it, which a spreadsheet reads as "this is text". Numbers stay
numbers. A text with a separator of any locale is in quotes, so that no part of it becomes a cell of its own.
"""

from collections.abc import Iterable, Sequence

_RUN = ("=", "+", "-", "@", "\t", "\r", *"\uff1d\uff0b\uff0d\uff20")
"""The last four are the wide forms of the first, which some spreadsheets take for them."""
_SEPARATORS = frozenset(',;\t\r\n"')
_WORDS = {None: "", True: "true", False: "false"}


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV with a header (RFC 4180). None is an empty cell."""
    return "".join(",".join(map(_cell, row)) + "\r\n" for row in (columns, *rows))


def _cell(content: object) -> str:
    if not isinstance(content, str):
        return _WORDS[content] if content is None or isinstance(content, bool) else str(content)
    text = f"'{content}" if content.startswith(_RUN) else content
    if _SEPARATORS.isdisjoint(text):
        return text
    return '"' + text.replace('"', '""') + '"'
