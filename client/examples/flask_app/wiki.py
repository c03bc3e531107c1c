"""A wiki that people host themselves, with telemetry: one installation is one device, however many workers it has.

WIKI_DATA=/var/lib/wiki WIKI_TELEMETRY=on gunicorn --workers 4 wiki:app
"""

import os
from pathlib import Path

from flask import Flask, request

import dither

METRICS = Path(__file__).with_name("metrics.toml")
ENDPOINT, KEY = "https://telemetry.example.org", "the key that serve printed"

# At the module's import: without --preload that is once in each worker, with --preload once in the master, and the
# workers carry on what it started. Either way they share the one file in data_dir, and so one budget. In a container
# put it on a volume: an installation that forgets itself would answer anew each time.
telemetry = dither.start(
    METRICS,
    endpoint=ENDPOINT,
    key=KEY,
    data_dir=Path(os.environ["WIKI_DATA"]) / "telemetry",
    consent={"on": True, "off": False}.get(os.environ.get("WIKI_TELEMETRY", "")),  # whoever installs it decides
)

app = Flask(__name__)


@app.get("/")
def page() -> str:
    """Show a page, and tell how this installation is reached: the day's first answer counts, later ones cost nothing.

    Nothing to flush at the end: what waits is sent by whichever worker comes to it, or after the next start.
    """
    telemetry.server.record(request.environ.get("SERVER_SOFTWARE", "").partition("/")[0])
    telemetry.proxied.record("X-Forwarded-For" in request.headers)
    return "Welcome to the wiki.\n"
