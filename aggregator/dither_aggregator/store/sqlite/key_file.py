"""`write.key`: the text of a directory's first write key, which the store itself does not know."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

NAME = "write.key"


def keep(directory: Path, text: str) -> None:
    """Write the key into the directory: whole, on the disk, and for nobody else to read."""
    part = directory / f"{NAME}.{secrets.token_hex(4)}.part"
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(directory / NAME)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def kept(directory: Path) -> str:
    """Return the key in the directory; "" where somebody has taken the file away."""
    with suppress(FileNotFoundError):
        return (directory / NAME).read_text(encoding="utf-8", errors="replace").strip()
    return ""
