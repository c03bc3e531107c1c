"""The errors that dither raises. A message says what was needed, then what came, and never a private value."""


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


def reason_of(error: Exception) -> str:
    """Return why something failed, without the number and the path that Python writes around it."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
