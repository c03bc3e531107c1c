"""The names of `typing` that a start needs, without `typing`, which takes a noticeable part of one to load.

Type checkers read the real ones. At run time annotations are texts that nobody reads (`from __future__ import
annotations`), so a name in one may stand for anything.
"""

TYPE_CHECKING = False
"""True for type checkers, which know it by its name."""

if TYPE_CHECKING:
    from typing import (
        Any,
        Final,
        Generic,
        Literal,
        NoReturn,
        ParamSpec,
        Protocol,
        Self,
        TypeVar,
        cast,
        dataclass_transform,
    )
else:
    Any = Final = Literal = NoReturn = Self = object

    class Generic:
        """A base that takes types in brackets and is itself whatever they are."""

        def __class_getitem__(cls, types):
            return cls

    Protocol = Generic

    def TypeVar(name, **how):  # noqa: N802 - typing's name
        """Return what stands for the type."""
        return object

    ParamSpec = TypeVar

    def cast(kind, value):
        """Return the value."""
        return value

    def dataclass_transform(**how):
        """Return what leaves a decorator as it is."""
        return lambda decorator: decorator


__all__ = [
    "TYPE_CHECKING",
    "Any",
    "Final",
    "Generic",
    "Literal",
    "NoReturn",
    "ParamSpec",
    "Protocol",
    "Self",
    "TypeVar",
    "cast",
    "dataclass_transform",
]
