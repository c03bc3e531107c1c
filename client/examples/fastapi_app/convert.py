"""A service in FastAPI, with telemetry for its lifespan: what waits leaves when it stops, within a few seconds.

CONVERT_DATA=/var/lib/convert CONVERT_TELEMETRY=on uvicorn --workers 2 convert:app
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request

import dither

METRICS = Path(__file__).with_name("metrics.toml")
ENDPOINT, KEY = "https://telemetry.example.org", "the key that serve printed"
LEAVE_WITHIN_S = 5.0
"""The longest that a stop waits for what is to be sent: below the time after which a container is killed."""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start telemetry with the app and close it at the end. Workers share the one file in data_dir, and so one budget.

    An app that is stopped for a day need not flush: what waits is sent by the next start. This one may be replaced by
    another container within the hour, before the random moment at which reports leave.
    """
    with dither.start(
        METRICS,
        endpoint=ENDPOINT,
        key=KEY,
        data_dir=Path(os.environ["CONVERT_DATA"]) / "telemetry",
        consent={"on": True, "off": False}.get(os.environ.get("CONVERT_TELEMETRY", "")),  # whoever installs it decides
    ) as telemetry:
        app.state.telemetry = telemetry
        yield
        await telemetry.flush_async(LEAVE_WITHIN_S)


app = FastAPI(lifespan=lifespan)


@app.post("/convert")
def convert(request: Request, lines: list[str], to: str = "upper") -> list[str]:
    """Convert lines. No `async def`: FastAPI gives it a thread, and what is recorded is committed to the disk."""
    telemetry: dither.Telemetry = request.app.state.telemetry
    telemetry.target.record(to)
    telemetry.lines.record(len(lines))
    return [line.upper() if to == "upper" else line.title() for line in lines]
