"""Registries for the tests."""

import json
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
    kind: str = "choice",
    color: str = "",
    epsilon_permanent: str | None = None,
    answers: int = 2,
    candidates: tuple[str, ...] = (),
    presence: str = "public",
) -> str:
    """Return a registry with a choice, `color`, and a flag, `dark`.

    `color` is further lines for the first of them. With `epsilon_permanent` both are memoized, for `answers` answers.
    """
    listed = ", ".join(f'"{value}"' for value in values)
    until = expires or utc_today() + timedelta(days=180)
    life = f'reports = {reports}\nschedule = "{schedule}"'
    if epsilon_permanent:
        life = f"memoize = true\nepsilon_permanent = {epsilon_permanent}\nanswers = {answers}"
    common = f"""
rev = {rev}
epsilon = {epsilon}
{life}
presence = "{presence}"
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
kind = "{kind}"
question = "Which colour do people choose?"
{f"candidates = {json.dumps(candidates)}" if kind == "text" and candidates else ""}
{"" if kind in ("text", "words") else f"values = [{listed}]"}
{color}
{common}

[metric.dark]
kind = "flag"
question = "Do people use the dark theme?"
{common}
"""


def registry(**changes: object) -> Registry:
    """Return that registry, parsed."""
    return Registry.parse(registry_text(**changes))  # type: ignore[arg-type]  # the same keywords
