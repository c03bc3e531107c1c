"""Frozen records: the part of `dataclasses` that this project needs, for less; and the JSON that stands for documents.

The SDK is imported whenever an app starts. dataclasses, with the `inspect` that it imports and the methods that it
compiles for each class, would take a quarter of that time; here classes share their methods. Type checkers know
`@frozen` as they know `@dataclass(frozen=True)`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache

from dither_shared.installed import load
from dither_shared.light_typing import Any, Literal, TypeVar, dataclass_transform

T = TypeVar("T")

_REQUIRED = object()
_DERIVED = object()


def derived(*, init: Literal[False] = False) -> Any:
    """Return the mark of a field that is no argument: `__post_init__` sets it with `object.__setattr__`."""
    return _DERIVED


@dataclass_transform(frozen_default=True, field_specifiers=(derived,))
def frozen(cls: type[T]) -> type[T]:
    """Make a class's annotated attributes its fields, after those of its bases.

    An instance takes them by place or by name, calls `__post_init__`, is equal to one of the same class with equal
    fields, and refuses to be changed.
    """
    fields: dict[str, object] = {}
    for base in reversed(cls.__mro__[1:]):
        fields |= vars(base).get("_fields", {})
    for name in _annotated(cls):
        default = vars(cls).get(name, _REQUIRED)
        if default is _DERIVED:
            delattr(cls, name)
        else:
            fields[name] = default
    for attribute, value in {"_fields": fields, **_METHODS}.items():
        if attribute not in vars(cls):
            setattr(cls, attribute, value)
    return cls


def _annotated(cls: type) -> list[str]:
    if sys.version_info >= (3, 14) or "__annotations__" in vars(cls):
        return list(cls.__annotations__)
    return []  # below 3.14 the attribute would be that of a base


def as_dict(record: Any) -> dict[str, Any]:
    """Return a record's fields and their values, in order."""
    return {name: getattr(record, name) for name in record._fields}


def replaced(record: T, **changes: object) -> T:
    """Return a record with some of its fields changed, checked as any other."""
    return type(record)(**{**as_dict(record), **changes})


def _init(self: Any, *args: object, **kwargs: object) -> None:
    fields = self._fields
    # All by name, or all in order, is the usual case, and a quick one.
    by_name = not args and kwargs.keys() == fields.keys()
    if by_name or (not kwargs and len(args) == len(fields)):
        self.__dict__.update(kwargs if by_name else zip(fields, args, strict=True))
        if hasattr(self, "__post_init__"):
            self.__post_init__()
        return
    if len(args) > len(fields):
        raise TypeError(f"{type(self).__name__} takes {len(fields)} fields, got {len(args)}")
    given = dict(zip(fields, args, strict=False))
    for name, value in kwargs.items():
        if name in given or name not in fields:
            raise TypeError(f"{type(self).__name__} has no field {name!r}, or got it twice")
        given[name] = value
    if len(given) < len(fields):
        for name, default in fields.items():
            if given.setdefault(name, default) is _REQUIRED:
                raise TypeError(f"{type(self).__name__} needs the field {name!r}")
    self.__dict__.update(given)
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in as_dict(self).items())})"


def _eq(self: Any, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return as_dict(self) == as_dict(other)


def _hash(self: Any) -> int:
    return hash(tuple(as_dict(self).values()))


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be changed")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be deleted")


_METHODS = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
}


# Documents: the one byte string, and the one digest, that stand for what JSON can say.


def canonical_json(document: object) -> bytes:
    """Return the one byte string that stands for a document: sorted keys, no spaces, ASCII."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def sha256(document: object) -> str:
    """Return SHA-256, in hex, of a document's canonical JSON."""
    digest: str = _sha256()(canonical_json(document)).hexdigest()
    return digest


@cache
def _sha256() -> Callable[[bytes], Any]:
    """Return SHA-256 by Python's own C, as `random` has it: `hashlib` loads OpenSSL, which takes as long as SQLite.

    The first name is Python 3.12's and 3.13's, the second one 3.11's; neither is documented.
    """
    for module in ("_sha2", "_sha256", "hashlib"):
        try:
            found: Callable[[bytes], Any] = load(f"{module}:sha256")
        except ImportError:
            continue
        return found
    raise AssertionError("hashlib has SHA-256")
