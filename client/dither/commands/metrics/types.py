"""`dither metrics types`: a stub, so that editors and type checkers know an app's handles and their values.

It stands beside the module that has `telemetry = dither.start(...)`, and declares all that this module offers. A handle
takes the listed values alone there, and the handle of a table a dict of its columns: at run time all else is "other",
but in a program it is a mistake. With `--web` it is the same for a page: the type of `start<Answers>(...)`.
"""

from __future__ import annotations

import argparse
import json
import keyword
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dither.telemetry import HANDLES, Handle, OwnUse
from dither_shared.domains import Domain
from dither_shared.errors import ConfigurationError, reason_of
from dither_shared.files import read_text
from dither_shared.registry import REGISTRY_BYTES_MAX, Metric, Registry
from dither_shared.safe_output import write

SUMMARY = "write a type stub for the app's module of `telemetry = dither.start(...)`: each handle with its values"
EXAMPLE = "dither metrics types metrics.toml --out myapp/metrics.pyi"

VALUES_MAX = 1_000
"""A longer list would slow the editor that it is for: such answers are any text."""

LINE_MAX = 88
"""The width that ruff and black format to, unless told otherwise."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("registry", metavar="REGISTRY", type=Path, help="the app's metrics.toml")
    parser.add_argument("--name", default="telemetry", help="the module's name for the telemetry object (%(default)s)")
    parser.add_argument("--web", action="store_true", help="write the types of answers for a page, in TypeScript")
    to = parser.add_mutually_exclusive_group()
    to.add_argument("--out", metavar="FILE", type=Path, help="write to this file instead of to stdout")
    to.add_argument(
        "--check",
        metavar="FILE",
        type=Path,
        help="exit with 1 if this file is not what would be written, with 2 if it cannot be read",
    )


def run(args: argparse.Namespace) -> int:
    """Write the stub, or compare it with a file."""
    registry = Registry.load(args.registry)
    text = web_types(registry) if args.web else stub(registry, args.name)
    if not args.check:
        write(text, args.out)
        return 0
    if _written(args.check) == text:
        return 0
    named = " --web" if args.web else "" if args.name == "telemetry" else f" --name {args.name}"
    print(f"{args.check} is not of this registry: dither metrics types {args.registry}{named} --out {args.check}")
    return 1


def _written(path: Path) -> str | None:
    """Return a stub that is there, with newlines, though git may have written other ends; None for no UTF-8."""
    try:
        return read_text(path, REGISTRY_BYTES_MAX)
    except UnicodeDecodeError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read: {reason_of(error)}") from None


def stub(registry: Registry, name: str = "telemetry") -> str:
    """Return the stub of a module that has the telemetry object under a name, formatted as ruff and black do.

    Raises ConfigurationError for a name that cannot be used.
    """
    _check_name(name)
    metrics = list(registry.metrics.values())
    modules = sorted({"dither", *(_handle_of(metric)[0] for metric in metrics)})
    attributes = "\n".join(f"    {metric.name}: {_camel(metric)}Handle" for metric in metrics)
    return f"""\
# `dither metrics types` wrote this: write it again instead of editing it.

{_imports(metrics)}
{"".join(f"import {module}" + chr(10) for module in modules)}
{"".join(map(_handle, metrics))}\
class Telemetry(dither.Telemetry):
    # Every metric is declared: no other attribute is one.
    __getattr__: ClassVar[None]  # type: ignore[assignment, misc]
{attributes}

{name}: Telemetry
"""


def web_types(registry: Registry) -> str:
    """Return a declaration file of TypeScript with the answers of each metric, for the web SDK's `start<Answers>`."""
    metrics = "".join(
        f"  /** {' '.join(metric.question.split()).replace('*/', '* /')} */\n  {metric.name}: {_web_answer(metric)};\n"
        for metric in registry.metrics.values()
        if not metric.measures
    )
    return f"""\
// `dither metrics types --web` wrote this: write it again instead of editing it.

/** The answers of each metric: start<Answers>(...). */
export interface Answers {{
{metrics}}}
"""


def _web_answer(metric: Metric) -> str:
    if columns := metric.asked.domain.columns:
        typed = (f"{name}?: {_union(domain.values, 'number | bigint')}" for name, domain in columns.items())
        return f"{{ {'; '.join(typed)} }}"
    answer = _union(metric.values if metric.kind.types_values else (), metric.kind.web_type)
    return f"readonly ({answer})[] | ReadonlySet<{answer}>" if metric.kind.several else answer


def _union(values: Sequence[str], unlisted: str) -> str:
    """Return the type of listed values, of a list that is too long, or of what is not listed."""
    quoted = (json.dumps(value, ensure_ascii=not value.isprintable()) for value in values)
    return unlisted if not values else "string" if len(values) > VALUES_MAX else " | ".join(quoted)


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ConfigurationError(f"--name must be a name in Python, got {name!r}")
    if name in _IMPORTED or name.endswith(("Answer", "Handle", "Telemetry")):
        raise ConfigurationError(f"--name must not be one that the stub needs for itself, got {name!r}")


_IMPORTED = {"ClassVar", "Collection", "Decimal", "Fraction", "Literal", "TypeAlias", "TypedDict", "dither"}


def _imports(metrics: Sequence[Metric]) -> str:
    """Return the imports from the standard library, of what the stub uses alone."""
    listed = [metric for metric in metrics if _listed(metric)]
    columns = [column for metric in metrics for column in metric.asked.domain.columns.values()]
    modules = {
        "collections.abc": {"Collection": any(metric.kind.several for metric in listed)},
        "decimal": {"Decimal": not all(column.values for column in columns)},
        "fractions": {"Fraction": not all(column.values for column in columns)},
        "typing": {
            "ClassVar": True,
            "Literal": bool(listed) or any(0 < len(column.values) <= VALUES_MAX for column in columns),
            "TypeAlias": bool(listed),
            "TypedDict": bool(columns),
        },
    }
    used = {module: [name for name, is_used in names.items() if is_used] for module, names in modules.items()}
    return "".join(f"from {module} import {', '.join(names)}\n" for module, names in used.items() if names)


def _listed(metric: Metric) -> bool:
    return metric.kind.types_values and len(metric.values) <= VALUES_MAX and not metric.measures


def _camel(metric: Metric) -> str:
    """Return the name in the form of a class's, a different one for every metric."""
    return re.sub("_([a-z])", lambda match: match[1].upper(), f"_{metric.name}")


def _handle(metric: Metric) -> str:
    """Return the class of a metric's handle, and the type of its values or columns.

    A handle that takes only them breaks the promise of dither.Choice, which takes any text: hence the "ignore".
    """
    camel, answer, record = _camel(metric), "", ""
    if _listed(metric):
        head = f"{camel}Answer: TypeAlias = "
        answer = f"{head}{_literal(metric.values, room=LINE_MAX - len(head))}\n\n"
    elif columns := metric.asked.domain.columns:
        answer = _typed_dict(f"{camel}Answer", columns)
    if answer:
        taken = f"Collection[{camel}Answer]" if metric.kind.several else f"{camel}Answer"
        record = f"\n    def record(self, answer: {taken}) -> None: ...  # type: ignore[override]\n"
    question = _quoted(metric.question, '"')
    return f'{answer}class {camel}Handle({".".join(_handle_of(metric))}):\n    ""{question}""\n{record}\n'


def _handle_of(metric: Metric) -> tuple[str, str]:
    """Return the module and the name of the class that a metric's handle is of."""
    handle = OwnUse if metric.measures else HANDLES[metric.kind.name]
    return "dither" if handle.__module__ == Handle.__module__ else handle.__module__, handle.__name__


def _typed_dict(name: str, columns: Mapping[str, Domain]) -> str:
    """Return the type of a dict of some of the columns, as a call where one has a name that no attribute can have."""
    if not any(map(keyword.iskeyword, columns)):
        lines = "".join(_typed(f"    {column}: ", domain) for column, domain in columns.items())
        return f"class {name}(TypedDict, total=False):\n{lines}\n"
    lines = "".join(_typed(f'        "{column}": ', domain, ",") for column, domain in columns.items())
    return f'{name} = TypedDict(\n    "{name}",\n    {{\n{lines}    }},\n    total=False,\n)\n\n'


def _typed(name: str, domain: Domain, end: str = "") -> str:
    """Return the line, or lines, of a column's name and type."""
    if not domain.values:
        return f"{name}float | Decimal | Fraction{end}\n"
    if len(domain.values) > VALUES_MAX:
        return f"{name}str{end}\n"
    indent = name[: len(name) - len(name.lstrip())]
    return f"{name}{_literal(domain.values, LINE_MAX - len(name + end), indent)}{end}\n"


def _literal(values: tuple[str, ...], room: int, indent: str = "") -> str:
    """Return the type of the values, in one line where it fits, else with a value a line."""
    quoted = [_quoted(value) for value in values]
    line = f"Literal[{', '.join(quoted)}]"
    if len(line) <= room:
        return line
    return "Literal[\n" + "".join(f"{indent}    {value},\n" for value in quoted) + f"{indent}]"


def _quoted(text: str, quote: str = "") -> str:
    """Return a Python string: in double quotes, unless single ones need fewer backslashes, or in those asked for."""
    quote = quote or ("'" if text.count('"') > text.count("'") else '"')
    # repr escapes what cannot be seen; the other quote before it keeps it from choosing its own.
    escaped = repr("'\"" + text)[4:-1].replace("\\'", "'")
    return quote + escaped.replace(quote, f"\\{quote}") + quote
