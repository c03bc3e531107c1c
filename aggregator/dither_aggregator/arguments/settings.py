"""Every setting of the aggregator, once: its flag, its environment variable, its key in a file, and its default.

    --limit-address 50     DITHER_LIMIT_ADDRESS=50     limit_address = 50     in this order; the first one counts

The functions at the end find out which one is in force. `deploy/settings.md` has this table for operators.
"""

import argparse
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from dither_aggregator.arguments import is_number, number
from dither_aggregator.health.capacity import BACKLOG_UPLOADS_MAX, Capacity, FreeSpaceFloor
from dither_aggregator.operations.signal_handling import FORMATS, LEVELS
from dither_aggregator.store.document_kinds import SCOPES
from dither_aggregator.web.request_limits import BY_ADDRESS, Network, Rate
from dither_shared.errors import ConfigurationError
from dither_shared.files import check_named, parse_toml

if TYPE_CHECKING:
    from dither_aggregator.store.contract import Store

# How settings are read: each function takes the text of a value, and raises ArgumentTypeError or ConfigurationError.
#
# None of them repeats a text that may hold a password.


_ORIGIN = re.compile(
    r"https?://(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:]+\])(?::[1-9][0-9]{0,4})?"
    r"|chrome-extension://[a-p]{32}|moz-extension://[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
_OWN_PORT = re.compile(r"https:.*:443|http:.*:80")
CLUSTER_SCHEMES = ("redis+cluster://", "rediss+cluster://")
REDIS_SCHEMES = ("redis://", "rediss://", "unix://", *CLUSTER_SCHEMES)
LOOPBACK = "127.0.0.1"
PROCESSES_MAX = 1_000
OFF, AUTO = "off", "auto"


def store_name(text: str) -> str:
    """Read a store's name."""
    if not text:
        raise argparse.ArgumentTypeError("must name a directory or a Redis")
    if "://" in text and not text.startswith(REDIS_SCHEMES):
        raise argparse.ArgumentTypeError("an address must begin with redis://, rediss://, redis+cluster:// or unix://")
    return text


def day(text: str) -> date:
    """Return a day as people write it, and no other way."""
    with suppress(ValueError):
        if (found := date.fromisoformat(text)).isoformat() == text:
            return found
    raise argparse.ArgumentTypeError(f"must be a day such as 2026-11-20, got {text!r}")


def directory(text: str) -> Path:
    """Read a directory's name."""
    if not text:
        raise argparse.ArgumentTypeError("must name a directory")
    if "://" in text:
        raise argparse.ArgumentTypeError("must name a directory; `dither api` serves a store in Redis")
    return Path(text)


def mail_server(text: str) -> str:
    """Read a mail server's address."""
    with suppress(ValueError):
        found = urlsplit(text)
        if found.scheme in ("smtp", "smtps") and found.hostname and found.port != 0 and found.path in ("", "/"):
            return text
    raise argparse.ArgumentTypeError("must be smtp://[USER:PASSWORD@]HOST[:PORT], or smtps:// for TLS from the start")


port_number = number(0, 65_535)


def place(text: str) -> tuple[str, int]:
    """Read HOST:PORT, or a port on loopback."""
    host, colon, port = text.rpartition(":")
    if colon and not host:
        raise argparse.ArgumentTypeError(f"must be HOST:PORT or PORT, got {text!r}")
    return host.removeprefix("[").removesuffix("]") or LOOPBACK, port_number(port)


def host_name(text: str) -> str:
    """Read a host's name."""
    name = text.lower().rstrip(".")
    if not name or not name.isascii() or any(each in name for each in ":/ "):
        raise argparse.ArgumentTypeError(f"must be a host's name without scheme and port, got {text!r}")
    return name


def origin(text: str) -> str:
    """Read an origin as browsers say it: scheme, host, and a port that is not the scheme's own; or an extension's."""
    said = text.lower().removesuffix("/")
    if not _ORIGIN.fullmatch(said) or _OWN_PORT.fullmatch(said):
        raise argparse.ArgumentTypeError(
            f"must be an origin, as https://app.example.org, http://localhost:8000, chrome-extension://ID; got {text!r}"
        )
    return said


def base_path(text: str) -> str:
    """Read the path of a site."""
    from dither_aggregator.web.addresses import read_base_path  # and with it Flask: only where it is used

    return read_base_path(text)


def network(text: str) -> Network:
    """Read an address, or a network."""
    try:
        return ip_network(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an address or a network, as 10.0.0.0/8, got {text!r}") from None


def processes(text: str) -> int:
    """Read how many processes there are to be."""
    if text == AUTO:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not is_number(text) or not 1 <= int(text) <= PROCESSES_MAX:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to {PROCESSES_MAX}, or {AUTO}, got {text!r}")
    return int(text)


def shards(text: str) -> int:
    """Read how many shards there are to be; the store says how many it may have."""
    if not is_number(text.removeprefix("-")):
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}")
    return int(text)


def replicas(text: str) -> int:
    """Read how many replicas each primary of a cluster has."""
    from dither_aggregator.store.redis.client import REPLICAS_MAX  # and with it redis-py: only where it is used

    return number(0, REPLICAS_MAX)(text)


def with_replicas(store: str, number: int | None) -> str:
    """Return a store's name with a number of replicas, if it is the address of a cluster."""
    return f"{store}?replicas={number}" if store.startswith(CLUSTER_SCHEMES) and number is not None else store


def queues(text: str) -> tuple[str, ...]:
    """Read what workers do."""
    from dither_aggregator.workers.tasks import QUEUES  # and with it Celery: only where it is used

    if text == "all":
        return QUEUES
    asked = tuple(dict.fromkeys(text.split(",")))
    if not set(asked) <= set(QUEUES):
        raise argparse.ArgumentTypeError(f"must be some of {','.join(QUEUES)}, got {text!r}")
    return asked


def rate(text: str) -> Rate | None:
    """Read a rate, or None where it is off."""
    return None if text == OFF else Rate.parse(text)


def rate_of_addresses(text: str) -> tuple[Rate | None, bool]:
    """Read a rate, and whether it holds for this machine's own addresses, too: by default it does not."""
    return (BY_ADDRESS, False) if text == AUTO else (rate(text), True)


def uploads(text: str) -> int | None:
    """Read how many uploads, or None where that is off."""
    if text == OFF:
        return None
    if not is_number(text) or not int(text):
        raise argparse.ArgumentTypeError(f"must be a number above 0, or {OFF}, got {text!r}")
    return int(text)


def _one_of(words: Collection[str], text: str) -> str:
    if text not in words:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(words)}, got {text!r}")
    return text


FILE_VARIABLE = "DITHER_SETTINGS"
"""Names the file, as --settings does."""
OF_DEVICES = ("DITHER_DATA_DIR", "DITHER_DEBUG", "DITHER_DRY_RUN", "DITHER_ENDPOINT", "DITHER_TELEMETRY")
"""Variables of the SDK, which an aggregator's machine may have, too."""


@dataclass(frozen=True)
class Setting:
    """One setting. `default` is text, as everywhere else; None where there is none, or `default_said` says which."""

    name: str
    metavar: str
    read: Callable[[str], object]
    what: str
    default: str | None = None
    default_text: str = ""
    secret: bool = False
    """Whether it may hold a password: it may stand in a file of its own, and is never shown whole."""
    several: bool = False
    switch: bool = False
    """Whether it is there or not, without a value."""

    @property
    def flag(self) -> str:
        """The option of the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return "DITHER_" + self.name.upper()

    @property
    def shown_default(self) -> str:
        """The default, in words for people."""
        return self.default_text or self.default or ("off" if self.switch else "none")


_ALL = (
    Setting(
        "data",
        "STORE",
        store_name,
        "the store: a directory (SQLite), redis://HOST:PORT/DB, or redis+cluster://HOST:PORT,HOST:PORT",
        secret=True,
    ),
    Setting(
        "replicas",
        "N",
        replicas,
        "how many replicas each primary of a redis+cluster:// has: an upload is acknowledged when all have it; 0: none",
        default_text="1",
    ),
    Setting(
        "broker",
        "REDIS",
        str,
        "the Redis that carries tasks, another one than the store's: redis://HOST:PORT/DB",
        secret=True,
    ),
    Setting("host", "ADDRESS", str, "the address to listen on", LOOPBACK),
    Setting("port", "PORT", port_number, "the port to listen on; 0 for any free one", "8080"),
    Setting(
        "health",
        "[HOST:]PORT",
        place,
        "where monitors ask for /livez and /readyz",
        default_text=f"{LOOPBACK}, and the port after --port",
    ),
    Setting(
        "allow_host",
        "NAME",
        host_name,
        "a name, beside localhost, under which pages, estimates and health are read; may be repeated; * for any",
        several=True,
    ),
    Setting(
        "allow_origin",
        "ORIGIN",
        origin,
        "an origin whose pages may send reports from a browser, as https://app.example.org; may be repeated",
        several=True,
    ),
    Setting(
        "trusted_proxy",
        "CIDR",
        network,
        "a proxy, or a network of proxies alone, whose X-Forwarded-For says who sends an upload; may be repeated",
        several=True,
    ),
    Setting(
        "base_path",
        "PATH",
        base_path,
        "the path of a site below which all stands, as /telemetry; a trusted proxy's X-Forwarded-Prefix overrides it",
    ),
    Setting(
        "limit_address",
        "RATE",
        rate_of_addresses,
        "uploads a second from one address, as 20 or, with how many at once, 20:1200; off",
        AUTO,
        default_text="20:1200; off for loopback while no proxy is trusted",
    ),
    Setting("limit_key", "RATE", rate, "uploads a second with one key, as for an address; off", OFF),
    Setting(
        "backlog_max",
        "UPLOADS",
        uploads,
        "uploads that may wait to be folded before no more are taken; off",
        str(BACKLOG_UPLOADS_MAX),
    ),
    Setting(
        "disk_floor",
        "SIZE",
        FreeSpaceFloor.parse,
        "space that uploads leave free: of the disk, or of a Redis's maxmemory: 1GB, 5%, the lesser of both, or off",
        Capacity().floor.text,
    ),
    *(
        Setting(f"{scope}_key_file", "FILE", str, f"a file whose {scope} key is taken over at the start")
        for scope in SCOPES
    ),
    Setting(
        "public",
        "SITE",
        directory,
        "the directory of a site that `dither publish` writes: it is shown at /public, to everybody and without a key",
    ),
    Setting(
        "log_format", "FORMAT", partial(_one_of, FORMATS), "text: lines for people; json: an object a line", "text"
    ),
    Setting(
        "log_level", "LEVEL", partial(_one_of, LEVELS), f"the least that is logged, of {', '.join(LEVELS)}", "warning"
    ),
    Setting("processes", "N", processes, "how many processes", AUTO, default_text="one a CPU"),
    Setting("queues", "NAMES", queues, "what a worker does, of fold,estimate,maintain,look,read", "all"),
    Setting("shards", "N", shards, "of a new store in Redis, for ever: so many can fold at once", default_text="16"),
    Setting(
        "smtp",
        "URL",
        mail_server,
        "the mail server of reports: smtp://[USER:PASSWORD@]HOST[:PORT], or smtps:// for TLS from the start",
        secret=True,
    ),
    Setting(
        "allow_lossy_store",
        "",
        bool,
        "use a Redis that may lose acknowledged reports; every page then says so",
        switch=True,
    ),
)
SETTINGS = {setting.name: setting for setting in _ALL}


# The values of the settings: each from its flag, else its variable, else the file, else the default.


FILE_BYTES_MAX = 64 * 1024
SECRET_BYTES_MAX = 4 * 1024
DEFAULT = "default"
_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
Read = Callable[[str], object]
Actions: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


@dataclass(frozen=True)
class InForce:
    """A setting's value, as it was read, and who said it."""

    setting: Setting
    value: object
    source: str
    text: str
    """As it was written, for people; without a password."""


def add_settings(
    parser: argparse.ArgumentParser, *names: str, required: bool = False, read: Read | None = None, what: str = ""
) -> None:
    """Add flags of settings, and --settings. `read` and `what` are in place of the table's.

    Their values are in the parsed arguments once `args.settle(args)` was called, as the command line does.
    """
    asked: tuple[_Wanted, ...] = parser.get_default("asked") or ()
    if not asked:
        parser.add_argument(
            "--settings", metavar="FILE", help=f"a TOML file with settings (default: ${FILE_VARIABLE}, or none)"
        )
    if "data" in names and read is None and "replicas" not in names:
        names = (*names, "replicas")
    for setting in (SETTINGS[name] for name in names):
        said = setting.what if setting.name == "replicas" else what or setting.what
        help_text = f"{said} (default: ${setting.variable}, or {setting.shown_default})".replace("%", "%%")
        if setting.switch:
            parser.add_argument(setting.flag, action="store_const", const="true", help=help_text)
        else:
            action = "append" if setting.several else "store"
            check = partial(_checked, read or setting.read)
            parser.add_argument(setting.flag, metavar=setting.metavar, action=action, type=check, help=help_text)
        asked += (_Wanted(setting, read or setting.read, required and setting.name != "replicas"),)
    parser.set_defaults(asked=asked, settle=settle)


@dataclass(frozen=True)
class _Wanted:
    setting: Setting
    read: Read
    required: bool


def _checked(read: Read, text: str) -> str:
    """Return a flag's text, as it is, if it can be read: argparse says which flag it was."""
    try:
        read(text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def settle(args: argparse.Namespace, environment: Mapping[str, str] | None = None) -> None:
    """Put what is in force into parsed arguments. Raises ConfigurationError, which says who said what is wrong."""
    sources = _Sources(os.environ if environment is None else environment, args.settings)
    args.in_force = {}
    for asked in args.asked:
        setting = asked.setting
        found = sources.find(setting, getattr(args, setting.name), asked.read)
        if asked.required and found.value is None:
            raise ConfigurationError(
                f"say {setting.what.partition(':')[0]}: {setting.flag}, {setting.variable}, "
                f"or {setting.name} in the file of --settings"
            )
        args.in_force[setting.name] = found
        setattr(args, setting.name, found.value)
    if args.in_force.keys() >= {"data", "replicas"} and args.data:
        args.data = with_replicas(args.data, args.replicas)


class _Sources:
    """The environment and the file, both without unknown names."""

    def __init__(self, environment: Mapping[str, str], file: str | None) -> None:
        self._environment = environment
        known = {FILE_VARIABLE, *OF_DEVICES}
        for setting in SETTINGS.values():
            known |= {setting.variable} | ({f"{setting.variable}_FILE"} if setting.secret else set())
        for name in environment:
            if name.startswith("DITHER_") and name not in known:
                raise ConfigurationError(f"there is no variable {name}{_nearest(name, known)}")
        self._name = file or environment.get(FILE_VARIABLE) or ""
        self._keys = _read_file(self._name) if self._name else {}

    def find(self, setting: Setting, flag: str | list[str] | None, read: Read) -> InForce:
        """Return what is in force of a setting."""
        texts, source = flag, setting.flag
        if texts is None:
            texts, source = self._of_environment(setting)
        if texts is None:
            texts, source = self._of_file(setting)
        if texts is None:
            texts, source = setting.default, DEFAULT
        if texts is None:
            empty: object = [] if setting.several else False if setting.switch else None
            return InForce(setting, empty, source, setting.shown_default)
        try:
            value = _value(setting, texts, read)
        except (argparse.ArgumentTypeError, ConfigurationError) as error:
            raise ConfigurationError(f"{source}: {error}") from None
        shown = texts if isinstance(texts, str) else " ".join(texts)
        if source == DEFAULT and setting.default_text:
            shown = setting.shown_default
        return InForce(setting, value, source, _without_password(shown) if setting.secret else shown)

    def _of_environment(self, setting: Setting) -> tuple[str | list[str] | None, str]:
        variable = setting.variable
        text = self._environment.get(variable) or None
        path = self._environment.get(f"{variable}_FILE") if setting.secret else None
        if text and path:
            raise ConfigurationError(f"{variable} and {variable}_FILE: one of them, not both")
        if path:
            return _read_secret(path, f"{variable}_FILE"), f"{variable}_FILE"
        return (text.replace(",", " ").split() if text and setting.several else text), variable

    def _of_file(self, setting: Setting) -> tuple[str | list[str] | None, str]:
        name, path_name = setting.name, f"{setting.name}_file"
        source = f"{self._name}: {name}"
        if setting.secret and path_name in self._keys:
            if name in self._keys:
                raise ConfigurationError(f"{source} and {path_name}: one of them, not both")
            return _read_secret(self._keys[path_name], f"{self._name}: {path_name}"), f"{self._name}: {path_name}"
        if name not in self._keys:
            return None, source
        value = self._keys[name]
        if setting.several and isinstance(value, list) and all(isinstance(each, str) for each in value):
            return value, source
        if isinstance(value, bool) != setting.switch or not isinstance(value, str | int | float):
            kind = "true or false" if setting.switch else "a list of texts" if setting.several else "a text or a number"
            raise ConfigurationError(f"{source} must be {kind}")
        text = str(value).lower() if setting.switch else str(value)
        if setting.secret and "@" in text:
            raise ConfigurationError(f"{source} holds a password: put it in a file of its own, named by {path_name}")
        return ([text] if setting.several else text), source


def _value(setting: Setting, texts: str | list[str], read: Read) -> object:
    if setting.switch:
        if str(texts).lower() not in _ON + _OFF:
            raise ConfigurationError(f"must be one of {', '.join(_ON + _OFF)}, got {texts!r}")
        return str(texts).lower() in _ON
    return read(texts) if isinstance(texts, str) else [read(text) for text in texts]


def _read_file(name: str) -> dict[str, object]:
    try:
        check_named(Path(name))
        with Path(name).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"the settings {name} cannot be read: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigurationError(f"{name} must have at most {FILE_BYTES_MAX} bytes")
    try:
        keys = parse_toml(data.decode(), float)
    except ValueError as error:  # TOML's, and that of what is no text
        raise ConfigurationError(f"{name} is not TOML: {error}") from None
    known = set(SETTINGS) | {f"{setting.name}_file" for setting in SETTINGS.values() if setting.secret}
    for key in keys:
        if key not in known:
            raise ConfigurationError(f"{name}: there is no setting {key}{_nearest(key, known)}")
    return keys


def _read_secret(path: object, source: str) -> str:
    """Return the text of a file that holds a secret; raise ConfigurationError, which names the file alone."""
    if not isinstance(path, str) or not path:
        raise ConfigurationError(f"{source} must name a file")
    try:
        check_named(Path(path))
        with Path(path).open("rb") as file:
            data = file.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{source}: {path} cannot be read: {error.strerror}") from None
    try:
        text = data.decode("ascii").strip()
    except ValueError:
        text = ""
    if not text or len(data) > SECRET_BYTES_MAX or not text.isprintable():
        raise ConfigurationError(f"{source}: {path} must hold one line of text") from None
    return text


def _nearest(name: str, known: set[str]) -> str:
    found = get_close_matches(name, sorted(known), 1, 0.5)
    return (f"; did you mean {found[0]}?" if found else ";") + " `dither settings` lists them"


def _without_password(text: str) -> str:
    """Return an address without the parts that may be secret: those before the host, and behind a question mark."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text
    return f"{scheme}://" + ("..." if "?" in rest else rest.rpartition("@")[2])


# Arguments of many commands, and the store that they open.


def add_data_argument(parser: argparse.ArgumentParser, what: str = "the store") -> None:
    """Add --data, the name of a store."""
    add_settings(
        parser,
        "data",
        required=True,
        what=f"{what}: a directory (SQLite), redis://HOST:PORT/DB or redis+cluster://HOST:PORT",
    )


def add_lossy_argument(parser: argparse.ArgumentParser) -> None:
    """Add --allow-lossy-store."""
    add_settings(parser, "allow_lossy_store")


@contextmanager
def opened(args: argparse.Namespace, *, read_only: bool = False) -> "Iterator[Store]":
    """Open the store that a command is to work on, and close it afterwards."""
    from dither_aggregator.store import open_store

    store = open_store(args.data, read_only=read_only, allow_lossy_store=True)
    try:
        yield store
    finally:
        store.close()


# Actions of commands, and where one writes its lines.


def add_action(actions: Actions, name: str, summary: str, example: str) -> argparse.ArgumentParser:
    """Add an action to a command, with what its help says."""
    return actions.add_parser(name, help=summary, description=f"{summary.capitalize()}.", epilog=f"example: {example}")


def add_out_argument(action: argparse.ArgumentParser, what: str) -> None:
    """Add --out."""
    action.add_argument("--out", type=Path, metavar="FILE", help=f"write the {what} to a file (default: stdout)")


# `--broker`, and what else the commands for several machines have in common.


def add_broker_argument(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add --broker."""
    add_settings(parser, "broker", required=required)


def add_processes_argument(parser: argparse.ArgumentParser) -> None:
    """Add --processes."""
    add_settings(parser, "processes")


def must_be_redis(data: str, command: str) -> None:
    """Refuse a directory to a command for several machines."""
    from dither_aggregator.store import StoreError, is_redis

    if not is_redis(data):
        raise StoreError(
            f"`dither {command}` needs a store in Redis, and {data} is a directory: `dither serve` serves it, "
            "`dither store copy` moves it to Redis"
        )
