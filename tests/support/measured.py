"""Registries with metrics that a device answers of its own use."""

from datetime import date

from dither_shared.registry import Registry

COMMON = """
rev = 1
epsilon = 1
presence = "{presence}"
period = "{period}"
owners = ["team@example.org"]
sensitivity = "low"
expires = {expires}
"""
FRESH = 'reports = 100\nschedule = "early"\n'
MEMO = "memoize = true\nepsilon_permanent = 2\nanswers = 1\n"
DAYS = 'kind = "number"\nunit = "days"\nlow = 0\nhigh = {high}\nasks = ["mean"]\n'
PARTS = {
    "days": 'question = "On how many days?"\nmeasures = "active_days"\n' + DAYS + FRESH,
    "back": 'question = "Did it come back?"\nmeasures = "returned"\nkind = "flag"\n' + FRESH,
    "weeks": 'question = "How old is it?"\nmeasures = "age"\nkind = "number"\nunit = "weeks"\nlow = 0\nhigh = 64\n'
    'asks = ["mean"]\n' + FRESH,
    "since": 'question = "Since when?"\nmeasures = "first_month"\nkind = "choice"\ncohorts = {cohorts}\n' + MEMO,
    "lasts": 'question = "How long?"\nmeasures = "session_length"\nkind = "number"\nunit = "s"\nlow = 0\nhigh = 600\n'
    'asks = ["mean"]\n' + FRESH,
    "theme": 'question = "Which theme?"\nkind = "choice"\nvalues = ["light", "dark"]\n' + FRESH,
}
"""The own keys of each metric; only of `theme` the app records the answer."""


def measured_text(
    *names: str,
    period: str = "7d",
    presence: str = "public",
    cohorts: int = 12,
    expires: date = date(2027, 6, 30),
    quiet_days: int = 0,
    more: str = "",
) -> str:
    """Return a registry with some of these metrics, or all. `more` are further lines for each."""
    head = f'[registry]\napp = "notes"\ndevice_epsilon = 1000\nquiet_days = {quiet_days}\nnearly_certain = true\n'
    high = period.removesuffix("d")
    own = {name: PARTS[name].format(high=high, cohorts=cohorts) for name in names or PARTS}
    common = COMMON.format(presence=presence, period=period, expires=expires) + more
    return head + "".join(f"\n[metric.{name}]\n{text}{common}" for name, text in own.items())


def measured(*names: str, **keys: object) -> Registry:
    """Return the same, read."""
    return Registry.parse(measured_text(*names, **keys))  # type: ignore[arg-type]
