"""Arguments that several commands have in common."""

import argparse
from collections.abc import Callable

DIGITS_MAX = 20
"""A number of more digits is refused before it is read: Python takes long for some, and refuses some."""


def is_number(text: str) -> bool:
    """Tell whether a text is a number of digits alone, and not of too many."""
    return text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX


def number(least: int, most: int) -> Callable[[str], int]:
    """Return what reads a number from `least` to `most`."""

    def read(text: str) -> int:
        if not is_number(text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be a number from {least} to {most}, got {text!r}")
        return int(text)

    return read
