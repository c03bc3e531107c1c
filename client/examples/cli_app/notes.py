"""A command line app with telemetry: it asks once, `--telemetry on|off` changes the answer, and it exits in time.

python notes.py add "buy milk"
python notes.py list
python notes.py --telemetry off
"""

import argparse
import sys
from pathlib import Path

import dither

VERSION = "1.2"
METRICS = Path(__file__).with_name("metrics.toml")
ENDPOINT, KEY = "https://telemetry.example.org", "the key that serve printed"
QUESTION = "May notes tell its authors, behind noise, which commands are used? --telemetry off ends it. [y/N] "
DELIVER_WITHIN_S = 10.0
"""The longest that a process of its own tries to send what a command left behind."""

NOTES = Path.home() / ".notes"


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="notes")
    parser.add_argument("--telemetry", choices=["on", "off"], help="whether to tell the authors what is used")
    parser.add_argument("command", choices=["add", "list"], nargs="?", default="list")
    parser.add_argument("note", nargs="?", default="")
    parser.add_argument("--deliver", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()

    telemetry = dither.start(METRICS, endpoint=ENDPOINT, key=KEY)
    if args.deliver:  # the process that `deliver_in_background` starts
        telemetry.flush(DELIVER_WITHIN_S)
        telemetry.close()
        return
    try:
        settle_consent(telemetry, args.telemetry)
        crashed = "yes"
        try:
            count = run(args.command, args.note)
            crashed = "no"
        finally:
            telemetry.crashes.record({"crashed": crashed, "version": VERSION})
        telemetry.command.record(args.command)
        telemetry.notes.record(count)
        telemetry.deliver_in_background(["--deliver"])  # mostly once a day; the command does not wait for it
    finally:
        telemetry.close()


def settle_consent(telemetry: dither.Telemetry, choice: str | None) -> None:
    """Keep what the person chose; ask if they never did, but only at a terminal: a script must not hang."""
    if choice is not None:
        telemetry.set_consent(choice == "on")
    elif telemetry.status().ask and sys.stdin.isatty():
        telemetry.set_consent(input(QUESTION).strip().lower() in ("y", "yes"))


def run(command: str, note: str) -> int:
    """Add a note or list them; return how many there are."""
    notes = NOTES.read_text(encoding="utf-8").splitlines() if NOTES.exists() else []
    if command == "add":
        notes.append(note)
        NOTES.write_text("\n".join(notes) + "\n", encoding="utf-8")
    else:
        print(*notes, sep="\n")
    return len(notes)


if __name__ == "__main__":
    main()
