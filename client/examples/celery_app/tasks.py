"""Background tasks with Celery, and telemetry in its workers: which tasks fail, and how long a task takes.

THUMBS_BROKER=redis://127.0.0.1:6379/0 THUMBS_DATA=/var/lib/thumbs THUMBS_TELEMETRY=on celery -A tasks worker
"""

import os
from pathlib import Path

from celery import Celery, Task
from celery.signals import task_postrun

import dither

METRICS = Path(__file__).with_name("metrics.toml")
ENDPOINT, KEY = "https://telemetry.example.org", "the key that serve printed"

# At the module's import: the worker's parent starts it, its prefork children carry on what it started. The web app that
# only calls `thumbnail.delay` may import this, too: all share the one file in data_dir, and so one budget.
telemetry = dither.start(
    METRICS,
    endpoint=ENDPOINT,
    key=KEY,
    data_dir=Path(os.environ["THUMBS_DATA"]) / "telemetry",
    consent={"on": True, "off": False}.get(os.environ.get("THUMBS_TELEMETRY", "")),  # whoever installs it decides
)

app = Celery("tasks", broker=os.environ["THUMBS_BROKER"])


@app.task
def thumbnail(width: int) -> None:
    """Make a thumbnail. A task that fails is timed, too."""
    with telemetry.thumbnail_time.timing():
        if width <= 0:
            raise ValueError(f"width must be positive, got {width}")


@task_postrun.connect
def tell(task: "Task[..., object]", state: str, **rest: object) -> None:
    """Record what became of a task. A day's first one counts, whichever process ran it; later ones cost nothing."""
    telemetry.tasks.record({"task": task.name, "failed": "yes" if state == "FAILURE" else "no"})
