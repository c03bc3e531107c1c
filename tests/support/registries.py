"""Registries for the tests."""

import json
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal

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


USUAL: dict[str, object] = {
    "rev": 1,
    "question": "What?",
    "presence": "public",
    "period": "1d",
    "owners": ["team@example.org"],
    "sensitivity": "low",
    "expires": date(2027, 6, 30),
}


def metrics_text(metrics: Mapping[str, Mapping[str, object]], **head: object) -> str:
    """Return a registry of metrics, each by the keys that it has besides the usual ones; None leaves a key out.

    A text that begins with "= " is TOML as it stands: = nan.
    """
    tables = {"registry": {"app": "example", "device_epsilon": 400, "quiet_days": 0, **head}}
    tables |= {f"metric.{name}": {**USUAL, **keys} for name, keys in metrics.items()}
    lines = []
    for table, keys in tables.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {_toml(value)}" for key, value in keys.items() if value is not None]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, str) and value.startswith("= "):
        return value.removeprefix("= ")
    return str(value) if isinstance(value, date | Decimal) else json.dumps(value, ensure_ascii=False)
