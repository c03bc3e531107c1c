"""Every setting of the aggregator, once: its flag, its environment variable, its key in a file, and its default.

    --limit-address 50     DITHER_LIMIT_ADDRESS=50     limit_address = 50     in this order; the first one counts

`sources.py` finds out which one is in force. `deploy/settings.md` has this table for operators.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dither_aggregator.arguments import values
from dither_aggregator.health.capacity import BACKLOG_UPLOADS_MAX, Capacity, FreeSpaceFloor
from dither_aggregator.operations.log import LEVELS
from dither_aggregator.operations.scopes import SCOPES

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
        values.store_name,
        "the store: a directory (SQLite), redis://HOST:PORT/DB, or redis+cluster://HOST:PORT,HOST:PORT",
        secret=True,
    ),
    Setting(
        "replicas",
        "N",
        values.replicas,
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
    Setting("host", "ADDRESS", str, "the address to listen on", values.LOOPBACK),
    Setting("port", "PORT", values.port_number, "the port to listen on; 0 for any free one", "8080"),
    Setting(
        "health",
        "[HOST:]PORT",
        values.place,
        "where monitors ask for /livez and /readyz",
        default_text=f"{values.LOOPBACK}, and the port after --port",
    ),
    Setting(
        "allow_host",
        "NAME",
        values.host_name,
        "a name, beside localhost, under which pages, estimates and health are read; may be repeated; * for any",
        several=True,
    ),
    Setting(
        "allow_origin",
        "ORIGIN",
        values.origin,
        "an origin whose pages may send reports from a browser, as https://app.example.org; may be repeated",
        several=True,
    ),
    Setting(
        "trusted_proxy",
        "CIDR",
        values.network,
        "a proxy, or a network of proxies alone, whose X-Forwarded-For says who sends an upload; may be repeated",
        several=True,
    ),
    Setting(
        "base_path",
        "PATH",
        values.base_path,
        "the path of a site below which all stands, as /telemetry; a trusted proxy's X-Forwarded-Prefix overrides it",
    ),
    Setting(
        "limit_address",
        "RATE",
        values.rate_of_addresses,
        "uploads a second from one address, as 20 or, with how many at once, 20:1200; off",
        values.AUTO,
        default_text="20:1200; off for loopback while no proxy is trusted",
    ),
    Setting("limit_key", "RATE", values.rate, "uploads a second with one key, as for an address; off", values.OFF),
    Setting(
        "backlog_max",
        "UPLOADS",
        values.uploads,
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
        values.directory,
        "the directory of a site that `dither publish` writes: it is shown at /public, to everybody and without a key",
    ),
    Setting("log_format", "FORMAT", values.log_format, "text: lines for people; json: an object a line", "text"),
    Setting("log_level", "LEVEL", values.log_level, f"the least that is logged, of {', '.join(LEVELS)}", "warning"),
    Setting("processes", "N", values.processes, "how many processes", values.AUTO, default_text="one a CPU"),
    Setting("queues", "NAMES", values.queues, "what a worker does, of fold,estimate,maintain,look,read", "all"),
    Setting(
        "shards", "N", values.shards, "of a new store in Redis, for ever: so many can fold at once", default_text="16"
    ),
    Setting(
        "smtp",
        "URL",
        values.mail_server,
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
