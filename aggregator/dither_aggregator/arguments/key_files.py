"""Keys that a store is given before its first start: by files that settings name, else a first write key.

The files are for machines that are set up without anybody at a terminal. They may be changed: a key that is new there
is taken over at the next start, and one that was revoked stays revoked.
"""

import argparse
from pathlib import Path

from dither_aggregator.arguments.sources import add_settings
from dither_aggregator.operations.administration import Administration
from dither_aggregator.operations.scopes import SCOPES, WRITE
from dither_aggregator.store import Store
from dither_aggregator.store.access_keys import new_text, text_fault
from dither_aggregator.store.sqlite import KEY_NAME, keep_key, kept_key
from dither_shared.errors import ConfigurationError
from dither_shared.file_permissions import check_named

FILE_BYTES_MAX = 4_096


def add_key_file_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --write-key-file, --read-key-file and --admin-key-file."""
    add_settings(parser, *(f"{scope}_key_file" for scope in SCOPES))


def register_key_files(store: Store, args: argparse.Namespace) -> None:
    """Take over the keys that files hold. Raises ConfigurationError for one that cannot be."""
    for scope in SCOPES:
        found = args.in_force[f"{scope}_key_file"]
        if not (path := found.value):
            continue
        name = found.source
        text = _read(name, path)
        known = store.keys.find(text.encode())
        if known is None:
            Administration(store).register_key(scope, text, f"from {name}")
        elif known.scope != scope:
            raise ConfigurationError(f"{name}={path}: this is a {known.scope} key of the store, and cannot be another")


def _read(name: str, path: str) -> str:
    try:
        check_named(Path(path))
        with Path(path).open("rb") as file:
            text = file.read(FILE_BYTES_MAX).decode("utf-8", "replace").strip()
    except OSError as error:
        raise ConfigurationError(f"{name}={path} cannot be read: {error.strerror}") from None
    if fault := text_fault(text):
        raise ConfigurationError(f"{name}={path}: {fault}")
    return text


def first_write_key(store: Store, directory: Path | None) -> str:
    """Return the text of a store's first write key, made now if no write key ever was; "" where nobody can tell it.

    A directory keeps it in `write.key`, which is written first: cut off between the two, the next start takes it over.
    Raises ConfigurationError for a file that holds no key.
    """
    text = kept_key(directory) if directory else ""
    if not any(key.scope == WRITE for key in store.keys.by_id.values()):
        if fault := text_fault(text) if text else "":
            raise ConfigurationError(f"{KEY_NAME}: {fault}; take the file away, and one is made")
        if not text:
            text = new_text(WRITE)
            if directory:
                keep_key(directory, text)
        Administration(store).register_key(WRITE, text, "first")
    key = store.keys.find(text.encode())
    return text if key and store.keys.active(key.id, [WRITE]) else ""


def say_write_key(text: str) -> str:
    """Return a line for people about the key that apps show."""
    unknown = "only who made it knows it; `dither keys create write` makes one"
    return f"key for devices: {text or unknown}"
