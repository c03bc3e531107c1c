"""The errors that dither raises. A message says what was needed, then what came, and never a private value."""

from __future__ import annotations


class DitherError(Exception):
    """The root of every error that dither raises on purpose."""


class InvalidParameter(DitherError, ValueError):
    """A parameter outside what a mechanism's proof covers."""


class InvalidAnswer(DitherError, ValueError):
    """An answer that its metric does not list: said where tests ask for it, never to a host app."""


class RegistryError(DitherError, ValueError):
    """A registry that cannot be used: its file, its metric and its key are named."""


class ConfigurationError(DitherError, ValueError):
    """An argument, option or environment that cannot work, with the next step to take."""


PROBLEM_CHARACTERS_MAX = 2_000
"""A name that came with a registry may be all of it."""


def refusal_of(source: str, problem: str) -> RegistryError:
    """Return the error for a problem of a registry's file, in at most PROBLEM_CHARACTERS_MAX printable characters."""
    if not problem.isprintable():
        some = problem[: PROBLEM_CHARACTERS_MAX + 1]
        problem = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in some)
    if len(problem) > PROBLEM_CHARACTERS_MAX:
        problem = f"{problem[: PROBLEM_CHARACTERS_MAX - 3]}..."
    return RegistryError(f"{source}: {problem}")


def reason_of(error: Exception) -> str:
    """Return why something failed, without the number and the path that Python writes around it."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
