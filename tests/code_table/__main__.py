"""Writes the tables of dither_shared/words from their counts. `make test` holds one against the other.

A count is mixed with what follows any symbol, so that a context seldom seen takes the usual lengths; ESC has at least a
share of its own, since answers need not be like the texts; and nothing is impossible. Lengths are the best of at most
16 bits for these shares, by package-merge: Larmore, Hirschberg 1990.
"""

import json
from pathlib import Path

import numpy as np

import dither_shared.words
from dither_shared.words.alphabets import ESC
from tests.code_table.counting import COUNTS
from tests.code_table.lengths import lengths, shares
from tests.code_table.making import tables

TABLE = Path(dither_shared.words.__file__).with_name("letters.bin")
TABLES = TABLE.with_name("tables")


def table() -> bytes:
    """Return letters.bin: English, whose characters outside ASCII are several escaped bytes, and neighbours."""
    counts = np.loadtxt(COUNTS, delimiter=",")
    return bytes(length for row in shares(counts, escaped=ESC, again=0.7, anything=0.05) for length in lengths(row))


def written(document: object) -> str:
    """Return the text of a table's file."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


if __name__ == "__main__":
    TABLE.write_bytes(table())
    for name, document in tables().items():
        (TABLES / f"{name}.json").write_text(written(document), encoding="utf-8")
