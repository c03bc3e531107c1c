"""`dither metrics new`: write a registry to begin with. It passes `dither metrics check`, and each key is explained."""

from __future__ import annotations

import argparse
from datetime import timedelta
from decimal import ROUND_DOWN, Decimal
from pathlib import Path

from dither.commands import add_installs, installs_of
from dither_shared.errors import ConfigurationError
from dither_shared.exact import EPSILON_MIN
from dither_shared.kinds import KINDS
from dither_shared.registry import OWNER_CHARACTERS_MAX, Registry, utc_today
from dither_shared.toml_tables import METRIC_NAME, TomlTable

SUMMARY = "write a registry to begin with; never over a file that is there"
EXAMPLE = "dither metrics new metrics.toml --app notes --metric theme=choice --metric load_time=number"

EPSILON, REPORTS = 1, 3
"""The starter's, for one question."""
DEVICE_EPSILON = Decimal("4.5")
"""Several questions share so much: with all of it an even guess is at most 98.9 % sure, and `check --strict` passes."""
METRICS_MAX = int(DEVICE_EPSILON / EPSILON_MIN)
OWNER = "team@example.org"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("registry", metavar="REGISTRY", type=Path, help="the file to write, such as metrics.toml")
    parser.add_argument("--app", metavar="NAME", type=_name, required=True, help="the app's name, such as my_app")
    kinds = ", ".join(f"{kind.name} {kind.meaning}" for kind in KINDS.values())
    parser.add_argument(
        "--metric",
        metavar="NAME=KIND",
        type=_metric,
        action="append",
        help=f"a question; may be given several times (default: theme=choice). Kinds: {kinds}",
    )
    add_installs(parser)
    parser.add_argument("--owner", metavar="ADDRESS", default=OWNER, help="who answers for it (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Write the registry, if it is sound and no file is there."""
    asked = args.metric or [("theme", "choice")]
    names = [name for name, _ in asked]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigurationError(f"--metric must be given once for each name, got {min(twice)} twice")
    if len(asked) > METRICS_MAX:
        raise ConfigurationError(
            f"--metric must be given {METRICS_MAX} times at most, got {len(asked)}: with more of them even epsilon "
            f"{EPSILON_MIN} and one report each make a guess nearly certain"
        )
    TomlTable("the arguments", "", {"--owner": args.owner}).text("--owner", OWNER_CHARACTERS_MAX)
    text = registry_text(args.app, asked, args.owner)
    crowd = installs_of(args)
    registry = Registry.parse(text, "the registry")  # what a name must not be
    if len(asked) > 1:
        print(_shared_out(len(asked)))
    try:
        with args.registry.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigurationError(f"{args.registry} is there already, and stays as it is: name another file") from None
    except OSError as error:
        raise ConfigurationError(f"{args.registry} cannot be written: {error.strerror or error}") from None
    if crowd:
        print(*crowd.lines(registry, list(registry.metrics.values())), sep="\n")
        if any("\n" in KINDS[kind].starter for _, kind in asked):
            print(
                "these figures are of the values that stand in the file for yours: fewer show more, and more show less"
            )
    print(
        f"{args.registry} is written: put your questions in, then run dither metrics check {args.registry} --installs N"
    )
    return 0


def registry_text(app: str, metrics: list[tuple[str, str]], owner: str) -> str:
    """Return the text of a registry with metrics of a name and a kind each, which passes `check --strict`."""
    epsilon, reports = _asked_of_each(len(metrics))
    head = f"""\
[registry]
app = "{app}"
device_epsilon = {epsilon * reports * len(metrics)}  # the most that all metrics may ever charge one device
quiet_days = 1  # a new device says nothing before then: throw-away containers never report
"""
    return "".join([head, *(_metric_text(name, kind, owner, epsilon, reports) for name, kind in metrics)])


def _asked_of_each(metrics: int) -> tuple[Decimal, int]:
    """Return the epsilon of a report and the reports of each metric: one with more epsilon tells more than several."""
    if metrics == 1:
        return Decimal(f"{EPSILON}.0"), REPORTS
    part = DEVICE_EPSILON / metrics
    step = next((step for step in (Decimal("0.5"), Decimal("0.1")) if part >= 3 * step), EPSILON_MIN)
    return (part / step).to_integral_value(ROUND_DOWN) * step, 1


def _shared_out(metrics: int) -> str:
    """Say what several questions take from each other, and what there is to choose."""
    epsilon, reports = _asked_of_each(metrics)
    return (
        f"{metrics} questions share device_epsilon = {epsilon * reports * metrics}, so each has {reports} report of "
        f"epsilon {epsilon}. Choose: fewer questions with more of it each; or a larger device_epsilon: above "
        f"{DEVICE_EPSILON} a guess about a device may become nearly certain, and nearly_certain = true must say so"
    )


def _metric_text(name: str, kind: str, owner: str, epsilon: Decimal, reports: int) -> str:
    # TOML's basic strings have the escapes of JSON's.
    owner = owner.replace("\\", "\\\\").replace('"', '\\"')
    return f"""
[metric.{name}]
rev = 1  # numbers of another meaning need another rev
kind = "{kind}"
{KINDS[kind].starter}
epsilon = {epsilon}  # the privacy loss of one report
reports = {reports}  # the most reports in a device's life
schedule = "spread"  # on days drawn by lot from the year; "early": in each device's first periods with the question
presence = "public"  # it tells nothing that a device answers; "hidden": one without an answer says "none"
period = "1d"  # at most one report in it
owners = ["{owner}"]
sensitivity = "low"  # how much the true answer would tell about a person: "low", "medium" or "high"
expires = {utc_today() + timedelta(days=365)}  # devices fall silent then; at most a year away
"""


def _name(text: str) -> str:
    if not METRIC_NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"must be a lower-case name such as my_app, got {text!r}")
    return text


def _metric(text: str) -> tuple[str, str]:
    name, _, kind = text.partition("=")
    if not METRIC_NAME.fullmatch(name) or kind not in KINDS:
        raise argparse.ArgumentTypeError(
            f"must be NAME=KIND such as theme=choice, a lower-case name and one of {', '.join(KINDS)}, got {text!r}"
        )
    return name, kind
