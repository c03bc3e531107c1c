"""Settings of a command that serves: where, under which names it is read, whom it believes, how much may come."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dither_aggregator.arguments.settings import LOOPBACK, add_settings
from dither_aggregator.health.capacity import Capacity
from dither_aggregator.operations.administration import Administration
from dither_aggregator.store import Store, is_redis
from dither_aggregator.store.document_kinds import SCOPES, WRITE, new_text, text_fault
from dither_aggregator.store.sqlite import KEY_NAME, keep_key, kept_key
from dither_aggregator.web.addresses import BasePath, is_local
from dither_aggregator.web.listeners import Listener
from dither_aggregator.web.request_limits import Limits
from dither_shared.errors import ConfigurationError
from dither_shared.files import check_named

if TYPE_CHECKING:
    from dither_aggregator.store import Store


def add_listening_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --host, --port, --health, --allow-host, --allow-origin, --trusted-proxy and --base-path."""
    add_settings(parser, "host", "port", "health", "allow_host", "allow_origin", "trusted_proxy", "base_path")


def listeners(args: argparse.Namespace) -> tuple[Listener, Listener]:
    """Return the public listener and health's. Raises ConfigurationError when an address cannot be had."""
    host, port = args.health or (LOOPBACK, _next_port(args.port))
    if port and port == args.port:  # also at another address: they are told apart by the port
        raise ConfigurationError(f"--health must have another port than {port}")
    public = Listener(args.host, args.port)
    try:
        return public, Listener(host, port, "--health")
    except ConfigurationError:
        public.socket.close()
        raise


def base_path(args: argparse.Namespace) -> BasePath:
    """Return the path of a site below which all stands, also as a trusted proxy says it."""
    return BasePath(args.base_path or "", args.trusted_proxy)


def reachable_reason(args: argparse.Namespace, public: Listener) -> str:
    """Return why readers may come from beyond this machine, as the start of a sentence; "" where they may not."""
    if public.reachable_from_elsewhere:
        return f"--host {args.host} can be reached from elsewhere"
    if args.trusted_proxy:
        return "--trusted-proxy passes on what comes from elsewhere"
    beyond = [name for name in args.allow_host if not is_local(name)]
    return f"--allow-host {beyond[0]} is a name for readers elsewhere" if beyond else ""


def must_have_read_key(store: "Store", data: str, reason: str) -> None:
    """Raise ConfigurationError where there is a reason to need a read key, and none was ever made.

    One that was revoked is enough: then nobody may read, and uploads are taken.
    """
    if reason and not store.keys.reading_needs_key:
        if is_redis(data):  # its address may have a password in it, and `dither api` takes over no keys from files
            cure = "make one with `dither keys create read`, for the same store as here"
        else:
            cure = f"make one with `dither keys create read --data {data}`, or name a file in DITHER_READ_KEY_FILE"
        raise ConfigurationError(f"{reason}, so reading must need a key: {cure}")


def _next_port(port: int) -> int:
    return port + 1 if 0 < port < 65_535 else 0


def add_limit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --limit-address, --limit-key, --backlog-max and --disk-floor."""
    add_settings(parser, "limit_address", "limit_key", "backlog_max", "disk_floor")


def limits(args: argparse.Namespace) -> Limits:
    """Return how often uploads may come."""
    by_address, this_machine = args.limit_address
    return Limits(args.limit_key, by_address, this_machine, tuple(args.trusted_proxy), tuple(args.allow_origin))


def capacity(args: argparse.Namespace) -> Capacity:
    """Return what the store must have left."""
    return Capacity(args.backlog_max, args.disk_floor)


# Keys that a store is given before its first start: by files that settings name, else a first write key.
#
# The files are for machines that are set up without anybody at a terminal. They may be changed: a key that is new there
# is taken over at the next start, and one that was revoked stays revoked.


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
