"""A desktop app with telemetry: a dialog asks once, every day has its answers, and no network is no trouble.

python editor.py dark
"""

import sys
from collections.abc import Callable
from pathlib import Path

import dither

METRICS = Path(__file__).with_name("metrics.toml")
ENDPOINT, KEY = "https://telemetry.example.org", "the key that serve printed"
QUESTION = "Tell the editor's authors, behind noise, which theme and panels you use?"


class Editor:
    """The window. `ask` shows a yes-or-no dialog; a real app would build it with its toolkit."""

    def __init__(self, telemetry: dither.Telemetry, ask: Callable[[str], bool]) -> None:
        self._telemetry = telemetry
        self._ask = ask

    def open(self, theme: str, panels: list[str]) -> None:
        """Open the window. Answers leave by themselves, at a random moment of the next hour or after a later start.

        While there is no network one built upload and one waiting answer a metric are kept, not one for each day: a
        device that was away does not catch up.
        """
        if self._telemetry.status().ask:
            dialog = "\n".join([QUESTION, *map(str, self._telemetry.terms())])
            self._telemetry.set_consent(self._ask(dialog))
        self._telemetry.theme.record(theme)
        self._telemetry.panels.record(panels)

    def settings(self, tell: bool) -> None:
        """Keep what the person chose on the settings page, where they may change their mind."""
        self._telemetry.set_consent(tell)

    def close(self) -> None:
        """Close the window, without waiting for the network."""
        self._telemetry.close()


def main() -> None:
    """Open the window until Enter is pressed, in the theme that is asked for."""
    telemetry = dither.start(METRICS, endpoint=ENDPOINT, key=KEY)
    editor = Editor(telemetry, ask=lambda question: input(f"{question} [y/N] ") == "y")
    editor.open(theme=sys.argv[1] if len(sys.argv) > 1 else "light", panels=["files", "terminal"])
    input("Enter closes the editor. ")
    editor.close()


if __name__ == "__main__":
    main()
