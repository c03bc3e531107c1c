"""`start()`: a registry, what the app says and what the environment says become a telemetry object."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from os import PathLike

from dither.app_process import DEBUG, LOGGER, WARNING, say
from dither.sending.transport import DryRun, HttpTransport, Transport
from dither.session import Settings
from dither.telemetry import Telemetry
from dither_shared.errors import ConfigurationError
from dither_shared.files import absolute
from dither_shared.frozen import frozen
from dither_shared.kinds import PublicColumn
from dither_shared.registry import Registry
from dither_shared.text_normalization import normal

# The environment's word.

YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
"""The words that DITHER_TELEMETRY takes, in any case."""


@frozen
class Environment:
    """The environment variables that a host app's user or developer sets."""

    silent: str
    """Why nothing is recorded, kept or sent, whatever else was chosen; "" if nothing forbids it."""
    mistake: str
    """The fault of a DITHER_TELEMETRY that is no word it takes, and so a refusal; "" if there is none."""
    nobody: bool
    """Whether this is no person's device, so that nothing may reach theirs, a choice neither: CI, or a test."""
    endpoint: str | None
    """DITHER_ENDPOINT: in place of the app's."""
    data_dir: str | None
    """DITHER_DATA_DIR: holds a folder for each app, in place of the directory that the app gives."""
    debug: bool
    """DITHER_DEBUG: say on stderr what telemetry does."""
    dry_run: bool
    """DITHER_DRY_RUN: show on stderr what would be sent, send and keep nothing."""

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> Environment:
        """Read the variables, in the order of their weight: DO_NOT_TRACK, DITHER_TELEMETRY, then CI and pytest."""
        mistake = _mistake(variables)
        refused, nobody = _refused(variables), _nobody(variables)
        return cls(
            silent=refused or mistake or nobody,
            mistake=mistake,
            nobody=bool(nobody),
            endpoint=variables.get("DITHER_ENDPOINT") or None,
            data_dir=variables.get("DITHER_DATA_DIR") or None,
            debug=_is_set(variables, "DITHER_DEBUG"),
            dry_run=_is_set(variables, "DITHER_DRY_RUN"),
        )


def _refused(variables: Mapping[str, str]) -> str:
    if _is_set(variables, "DO_NOT_TRACK"):
        return "DO_NOT_TRACK is set"
    return "DITHER_TELEMETRY is 0" if _word(variables, "DITHER_TELEMETRY") in NO else ""


def _mistake(variables: Mapping[str, str]) -> str:
    # A word that nobody foresaw is rather meant to refuse: `disabled`, `n`, `never`.
    if _word(variables, "DITHER_TELEMETRY") in ("", *YES, *NO):
        return ""
    return f"DITHER_TELEMETRY must be {', '.join(YES)} to allow it, or {', '.join(NO)}: any other word refuses"


def _nobody(variables: Mapping[str, str]) -> str:
    if _word(variables, "DITHER_TELEMETRY") in YES:
        return ""
    # PYTEST_VERSION is there for a whole run of pytest 8.2 and later, the other one during a test of any.
    for variable in ("CI", "PYTEST_VERSION", "PYTEST_CURRENT_TEST"):
        if _is_set(variables, variable):
            return f"{variable} is set: this is no person's device (DITHER_TELEMETRY=1 overrules it)"
    return ""


def _is_set(variables: Mapping[str, str], name: str) -> bool:
    return _word(variables, name) not in ("", *NO)


def _word(variables: Mapping[str, str], name: str) -> str:
    return variables.get(name, "").strip().lower()


# The start.

IN_MEMORY = ":memory:"


def start(
    registry: Registry | str | PathLike[str],
    *,
    endpoint: str,
    key: str,
    data_dir: str | PathLike[str] | None = None,
    consent: bool | None = None,
    strict: bool = False,
    public: Mapping[str, str] | None = None,
    development: bool = False,
    proxy: str | None = None,
    ca_file: str | PathLike[str] | None = None,
) -> Telemetry:
    """Return the app's telemetry. Starts no thread and opens no connection until there is something to send.

    `registry` is the path of `metrics.toml` or of its compiled form, or a Registry. `endpoint` is the aggregator's
    https address (http only on loopback) and `key` the one it takes reports with. `data_dir` is the directory of the
    device's file, by default one for the app in the user's data directory; ":memory:" keeps nothing beyond this process
    and has no quiet days. `consent` is the person's answer if the app asked for it, and counts until `set_consent` is
    called. Without either nothing is recorded, kept or sent. `public` is the device's value of the registry's public
    column, {"arm": "b"}, which reports of tables say in the clear: it must not come from an answer. `development` is
    for a developer's machine: metrics answer at once, without quiet days and drawn periods, the device's file is in a
    folder `development` of its own, and the endpoint must be on loopback. `proxy` is the address of an HTTP proxy,
    "http://proxy.example.org:3128", and `ca_file` a PEM file of the certificate authorities to trust in place of the
    usual ones; without them the environment's count, HTTPS_PROXY, NO_PROXY and REQUESTS_CA_BUNDLE. The environment goes
    before everything else: `client/consent.md` has the variables.

    Raises RegistryError for a registry that cannot be used, and ConfigurationError for a `consent` that is no choice.
    After that nothing raises into the app, and `status()` says why it is silent; with `strict`, for tests, everything
    raises, answers that are not listed too.
    """
    if consent is not None and consent is not True and consent is not False:
        raise ConfigurationError(f"consent must be True, False or None (not asked), got a {type(consent).__name__}")
    if not isinstance(registry, Registry):
        registry = Registry.load(registry)
    environment = Environment.read()
    if environment.debug or environment.dry_run:
        _log_to_stderr()
    if environment.mistake:
        say(WARNING, "telemetry is off: %s", environment.mistake)
    if development:
        from dither import development as developing  # only on a developer's machine
    silent, directory, place = environment.silent, None, 0
    transport: Transport = DryRun()
    try:
        place = _place_of(public, registry.public)
        if not (environment.dry_run or environment.nobody):
            directory = _directory(environment.data_dir, data_dir, registry.app)
            if development and directory:
                directory = os.path.join(directory, developing.FOLDER)
        if not environment.dry_run:
            address = environment.endpoint or endpoint
            if development:
                developing.check_here(address)
            transport = HttpTransport(address, key, proxy, ca_file)
    except (ConfigurationError, OSError, RuntimeError, TypeError, ValueError) as error:
        # No home or working directory, no path, or a public value, address or key that cannot be. The person's choices
        # still go to the file.
        if strict:
            raise
        say(WARNING, "telemetry is off: %s", error)
        silent = silent or str(error)
    if environment.dry_run:
        consent = consent is not False
    if development:
        registry = developing.without_waiting(registry)
    return Telemetry(Settings(registry, transport, directory, consent, silent, strict, place, development))


def _place_of(public: Mapping[str, str] | None, column: PublicColumn | None) -> int:
    """Return the place of the device's public value."""
    if column is None:
        if public:
            raise ConfigurationError("the registry has no public column: leave public out")
        return 0
    value = public.get(column.name) if isinstance(public, Mapping) and len(public) == 1 else None
    if not isinstance(value, str) or normal(value) not in column.values:
        choices = " or ".join(f'{{"{column.name}": "{value}"}}' for value in column.values)
        raise ConfigurationError(f"public must be {choices}")
    return column.values.index(normal(value))


def _directory(of_apps: str | None, data_dir: str | PathLike[str] | None, app: str) -> str | None:
    """Return the directory of the device's file: the environment's has a folder for each app that runs there."""
    if (of_apps or data_dir) == IN_MEMORY:
        return None
    if data_dir and not isinstance(data_dir, str | PathLike):
        raise ConfigurationError(f"data_dir must be the path of a directory, got one of type {type(data_dir).__name__}")
    try:
        directory = os.path.join(of_apps, app) if of_apps else data_dir or default_data_dir(app)
    except RuntimeError as error:
        raise ConfigurationError(f"data_dir is needed, or DITHER_DATA_DIR: {error}") from None
    # Absolute: where the app goes later, its device stays.
    return absolute(directory)


def default_data_dir(app: str) -> str:
    """Return the directory of an app's device file, where this system keeps a user's application data."""
    if sys.platform == "win32":
        base = _absolute("LOCALAPPDATA") or os.path.join(_home(), "AppData", "Local")
    elif sys.platform == "darwin":
        base = os.path.join(_home(), "Library", "Application Support")
    else:
        base = _absolute("XDG_DATA_HOME") or os.path.join(_home(), ".local", "share")
    return os.path.join(base, "dither", app)


def _home() -> str:
    home = os.path.expanduser("~")
    if home.startswith("~"):
        raise RuntimeError("Could not determine home directory.")
    return home


def _absolute(variable: str) -> str | None:
    """Return the directory that a variable names; None for an empty or relative one, as the XDG specification has it.

    A relative one would be another device in each working directory.
    """
    path = os.environ.get(variable, "")
    return path if os.path.isabs(path) else None


def _log_to_stderr() -> None:
    """Say on stderr what telemetry does, once however often it is started."""
    LOGGER.setLevel(DEBUG)
    if not any(type(handler) is logging.StreamHandler for handler in LOGGER.handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("dither: %(message)s"))
        LOGGER.addHandler(handler)
