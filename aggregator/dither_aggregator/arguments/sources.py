"""The values of the settings: each from its flag, else its variable, else the file, else the default."""

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from dither_aggregator.arguments.settings import FILE_VARIABLE, OF_DEVICES, SETTINGS, Setting
from dither_aggregator.arguments.values import with_replicas
from dither_shared.errors import ConfigurationError
from dither_shared.file_permissions import check_named
from dither_shared.files import parse_toml

FILE_BYTES_MAX = 64 * 1024
SECRET_BYTES_MAX = 4 * 1024
DEFAULT = "default"
_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
Read = Callable[[str], object]


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
