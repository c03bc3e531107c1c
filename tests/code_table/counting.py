"""Counts which character follows which in free English texts. README.md names them and their licences.

    python -m tests.code_table.counting BOOK ZONEINFO

BOOK is the folder of "The Rust Programming Language" as HTML, ZONEINFO that of the time zone database's tables. Writes
counts.csv: a row for each context and a column for each symbol, in the order of the code.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from math import log2
from pathlib import Path

import numpy as np

from dither_shared.words.alphabets import CONTEXTS, symbols_of

COUNTS = Path(__file__).with_name("counts") / "english.csv"
CHAPTERS = "ch[0-9][0-9]-*.html"
_PROSE = {"p", "li"}
_HEADINGS = {"h1", "h2", "h3"}
_WORD = re.compile(r"[^\s]+")
_EDGES = ".,;:!?()[]{}\"'\u201c\u201d\u2018\u2019\u2014\u2026"


class _Page(HTMLParser):
    """The words of a page's paragraphs, and its headings as they stand."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.headings: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _PROSE | _HEADINGS | {"pre", "nav", "script"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            del self._open[self._open.index(tag) :]

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[0] in ("pre", "nav", "script"):
            return
        if self._open[-1] in _PROSE:
            self.words += (word.strip(_EDGES) for word in _WORD.findall(data))
        elif self._open[-1] in _HEADINGS and data.strip():
            self.headings.append(data.strip())


def texts(book: Path, zoneinfo: Path) -> Iterator[tuple[str, float]]:
    """Yield texts like those that people answer, each with its weight: a word that is used 2^k times has 1 + k."""
    words: Counter[str] = Counter()
    for chapter in sorted(book.glob(CHAPTERS)):
        page = _Page()
        page.feed(chapter.read_text(encoding="utf-8"))
        words.update(filter(None, page.words))
        yield from ((heading, 1.0) for heading in page.headings)
    yield from ((word, 1 + log2(count)) for word, count in words.items())
    for name, column in (("iso3166.tab", 1), ("zone1970.tab", 2)):
        for line in (zoneinfo / name).read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                yield from ((part, 1.0) for part in line.split("\t")[column].split("/"))


def main() -> None:
    """Count, and write."""
    book, zoneinfo = map(Path, sys.argv[1:])
    counts = np.zeros((CONTEXTS, CONTEXTS))
    for text, weight in texts(book, zoneinfo):
        for context, symbol in symbols_of(text.encode("utf-8")):
            counts[context, symbol] += weight
    np.savetxt(COUNTS, np.rint(counts), fmt="%d", delimiter=",")


if __name__ == "__main__":
    main()
