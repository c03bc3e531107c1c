"""The command line. A command's module is found by name and loaded when the command is called.

Exit codes: 0 fine, 1 a finding, 2 bad input.
"""

from __future__ import annotations

import argparse
import io
import os
import sqlite3
import sys
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from importlib.metadata import version
from typing import TextIO, cast

from dither.commands import loaded
from dither_shared.errors import DitherError, reason_of
from dither_shared.safe_output import VisibleStream

# command: (module, what it does). Modules have EXAMPLE, add_arguments(parser) and run(args) -> exit code.
COMMANDS = {
    "metrics": (
        "dither.commands.metrics",
        "begin a registry, check it, compile it, compare it with another, document it, type it",
    ),
    "privacy": (
        "dither_aggregator.commands.privacy",
        "show what each metric of a registry promises, and what it can show",
    ),
    "audit": ("dither.commands.audit", "hold what metrics promise against what devices do"),
    "attack": ("dither.commands.attack", "watch what an operator who keeps every report learns of simulated devices"),
    "device": ("dither.commands.device", "look at a device's file, its budget, or make it forget"),
    "serve": ("dither_aggregator.commands.serve", "take reports, fold them and show estimates"),
    "init": ("dither_aggregator.commands.init", "make an app's store"),
    "api": ("dither_aggregator.commands.api", "take reports and show estimates, where others fold"),
    "worker": ("dither_aggregator.commands.worker", "fold, estimate and maintain a store in Redis"),
    "beat": ("dither_aggregator.commands.beat", "give workers tasks where something waits"),
    "settings": ("dither_aggregator.commands.settings", "show every setting, its value, and who says so"),
    "quarantine": (
        "dither_aggregator.commands.quarantine",
        "look at reports that could not be counted, and settle them",
    ),
    "ledger": ("dither_aggregator.commands.ledger", "show that every accepted report is counted once"),
    "fsck": ("dither_aggregator.commands.fsck", "try every invariant of a store"),
    "doctor": ("dither_aggregator.commands.doctor", "look at a store, its machine and its server, and say what to do"),
    "store": ("dither_aggregator.commands.store", "show a store, say how long it keeps what, move it to Redis"),
    "keys": ("dither_aggregator.commands.keys", "make, list and revoke the keys of apps, readers and administrators"),
    "journal": ("dither_aggregator.commands.journal", "list who changed what of an aggregator"),
    "mark": ("dither_aggregator.commands.mark", "name releases and other events, shown beside a metric's days"),
    "backup": ("dither_aggregator.commands.backup", "write everything that a store holds into a file"),
    "restore": ("dither_aggregator.commands.restore", "make a store of a backup"),
    "ask": ("dither_aggregator.commands.ask", "answer a question about what was collected, with an interval"),
    "report": ("dither_aggregator.commands.report", "print or mail the week's answers and what moved, of all metrics"),
    "embed": ("dither_aggregator.commands.embed", "make a signed link by which another site shows a metric's answer"),
    "publish": ("dither_aggregator.commands.publish", "publish noisy totals of closed windows as a static site"),
    "verify": ("dither_aggregator.commands.verify", "compute a published site again from its noisy totals"),
    "table": ("dither_aggregator.commands.table", "write synthetic records that agree with a table's measured pairs"),
    "words": ("dither_aggregator.commands.words", "write the texts that were found without a list"),
    "rappor": ("dither_aggregator.commands.rappor", "decode RAPPOR counts, and take over google/rappor's files"),
    "uploads": ("dither_aggregator.commands.uploads", "write the bodies of uploads, for a load generator"),
    "demo": ("dither_aggregator.commands.demo", "watch true frequencies come back out of noisy answers"),
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a registry's words may not be the locale's
    with ExitStack() as stack:
        for redirect, stream in ((redirect_stdout, sys.stdout), (redirect_stderr, sys.stderr)):
            if stream is not None:  # as of a program without a console
                stack.enter_context(redirect(cast("TextIO", VisibleStream(stream))))
        return _run(argv)


def _run(argv: list[str]) -> int:
    try:
        args = _parser(argv).parse_args(argv)
        if "settle" in args:  # settings of the aggregator, which variables and a file may say, too
            args.settle(args)
        code: int = args.run(args)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has left; nothing more can be said, at exit either.
        _discard_output()
        return 0
    except (DitherError, OSError, sqlite3.Error) as error:
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        print(f"dither: {where}{reason_of(error)}", file=sys.stderr)
        _discard_output()
        return 2
    return code


def _discard_output() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not fail on it at exit."""
    with suppress(AttributeError, OSError):  # there is no stdout, or it is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser(argv: list[str]) -> argparse.ArgumentParser:
    """Return the parser, with the arguments of the one command that is called."""
    parser = argparse.ArgumentParser(
        prog="dither",
        description="Telemetry under local differential privacy.",
        epilog="example: dither demo",
    )
    parser.add_argument("--version", action="version", version=f"dither {version('dither')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    called = next((word for word in argv if not word.startswith("-")), "")
    names = [called] if argv[:1] == [called] and called in COMMANDS else [*COMMANDS]
    for name in names:  # the one that is called, or all of them for help
        module_name, summary = COMMANDS[name]
        module = loaded(module_name) if name == called else None
        epilog = f"example: {module.EXAMPLE}" if module else None
        command = commands.add_parser(name, help=summary, description=summary.capitalize() + ".", epilog=epilog)
        if module:
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
