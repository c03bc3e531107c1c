"""A command line app with telemetry: it asks once, `--telemetry on|off` changes the answer, and it exits in time.

python notes.py add "buy milk"
python notes.py list
python notes.py --telemetry off
"""

import argparse
import sys
from pathlib import Path

import dither

METRICS = Path(__file__).with_name("metrics.toml")
ENDPOINT, KEY = "https://telemetry.example.org", "the key that serve printed"
QUESTION = "May notes tell its authors, behind noise, which commands are used? --telemetry off ends it. [y/N] "
EXIT_WITHIN_S = 1.0
"""The most that telemetry may delay an exit, and only while a report waits: mostly once a day."""

NOTES = Path.home() / ".notes"


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="notes")
    parser.add_argument("--telemetry", choices=["on", "off"], help="whether to tell the authors what is used")
    parser.add_argument("command", choices=["add", "list"], nargs="?", default="list")
    parser.add_argument("note", nargs="?", default="")
    args = parser.parse_args()

    telemetry = dither.start(METRICS, endpoint=ENDPOINT, key=KEY)
    try:
        settle_consent(telemetry, args.telemetry)
        count = run(args.command, args.note)
        telemetry.command.record(args.command)
        telemetry.notes.record(size(count))
    finally:
        # The process ends long before the report's random moment. What is not sent by then, the next run sends.
        telemetry.flush(EXIT_WITHIN_S)
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


def size(count: int) -> str:
    """Return the listed value that a number of notes falls into."""
    return "none" if count == 0 else "1 to 9" if count < 10 else "10 to 99" if count < 100 else "100 or more"


if __name__ == "__main__":
    main()
