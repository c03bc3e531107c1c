"""Reading the files that a person names, which may be anything: a pipe, a device, a disk's image."""

from pathlib import Path
from stat import S_ISDIR, S_ISREG

BYTE_ORDER_MARK = "\ufeff"
"""Some editors put it before a text in UTF-8, of which it is no part."""


def read_text(path: Path, bytes_max: int) -> str:
    """Return the text of a regular file in UTF-8, its lines ended by newlines.

    Raises OSError if it cannot be read, UnicodeDecodeError if it is not UTF-8, and ValueError if it is no regular file
    or has more than `bytes_max` bytes.
    """
    mode = path.stat().st_mode
    if not (S_ISREG(mode) or S_ISDIR(mode)):  # a pipe may never be written to; of a directory `open` says what it is
        raise ValueError("it is no regular file")
    with path.open("rb") as file:
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise ValueError(f"it has more than {bytes_max:,} bytes")
    return data.decode().replace("\r\n", "\n").replace("\r", "\n")
