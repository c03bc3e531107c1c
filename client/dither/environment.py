"""The environment's word: that nobody is to be asked, where else to send, how much to tell the developer."""

import os
from collections.abc import Mapping

from dither_shared.frozen import frozen


@frozen
class Environment:
    """The environment variables that a host app's user or developer sets."""

    silent: str
    """Why nothing is recorded, kept or sent, whatever else was chosen; "" if nothing forbids it."""
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
        refused, nobody = _refused(variables), _nobody(variables)
        return cls(
            silent=refused or nobody,
            nobody=bool(nobody),
            endpoint=variables.get("DITHER_ENDPOINT") or None,
            data_dir=variables.get("DITHER_DATA_DIR") or None,
            debug=_is_set(variables, "DITHER_DEBUG"),
            dry_run=_is_set(variables, "DITHER_DRY_RUN"),
        )


def _refused(variables: Mapping[str, str]) -> str:
    if _is_set(variables, "DO_NOT_TRACK"):
        return "DO_NOT_TRACK is set"
    if variables.get("DITHER_TELEMETRY") and not _is_set(variables, "DITHER_TELEMETRY"):
        return "DITHER_TELEMETRY is 0"
    return ""


def _nobody(variables: Mapping[str, str]) -> str:
    if variables.get("DITHER_TELEMETRY"):
        return ""
    # PYTEST_VERSION is there for a whole run of pytest 8.2 and later, the other one during a test of any.
    for variable in ("CI", "PYTEST_VERSION", "PYTEST_CURRENT_TEST"):
        if _is_set(variables, variable):
            return f"{variable} is set: this is no person's device (DITHER_TELEMETRY=1 overrules it)"
    return ""


def _is_set(variables: Mapping[str, str], name: str) -> bool:
    return variables.get(name, "").strip().lower() not in ("", "0", "false", "no", "off")
