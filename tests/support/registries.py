"""Registries for the tests."""

from datetime import date, timedelta

from dither_shared.registry import Registry, utc_today

VALUES = ("red", "green", "blue")


def registry_text(
    *,
    app: str = "example",
    device_epsilon: str = "40.0",
    quiet_days: int = 0,
    rev: int = 1,
    values: tuple[str, ...] = VALUES,
    epsilon: str = "2.0",
    reports: int = 3,
    schedule: str = "early",
    period: str = "1d",
    expires: date | None = None,
) -> str:
    """Return a registry with a choice, `color`, and a flag, `dark`."""
    listed = ", ".join(f'"{value}"' for value in values)
    until = expires or utc_today() + timedelta(days=180)
    common = f"""
rev = {rev}
epsilon = {epsilon}
reports = {reports}
schedule = "{schedule}"
presence = "public"
period = "{period}"
owners = ["team@example.org"]
sensitivity = "low"
expires = {until}
"""
    return f"""
[registry]
app = "{app}"
device_epsilon = {device_epsilon}
quiet_days = {quiet_days}

[metric.color]
kind = "choice"
question = "Which colour do people choose?"
values = [{listed}]
{common}

[metric.dark]
kind = "flag"
question = "Do people use the dark theme?"
{common}
"""


def registry(**changes: object) -> Registry:
    """Return that registry, parsed."""
    return Registry.parse(registry_text(**changes))  # type: ignore[arg-type]  # the same keywords
