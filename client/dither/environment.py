"""The environment's word: that nobody is to be asked, where else to send, how much to tell the developer."""

import os
from collections.abc import Mapping

from dither_shared.frozen import frozen

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
    def read(cls, variables: Mapping[str, str] = os.environ) -> "Environment":
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
