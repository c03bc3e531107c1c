"""Serve `wsgi_app.py` under bjoern on any free port of the loopback, and print which: `python serve_bjoern.py`."""

import bjoern  # type: ignore[import-not-found]
from wsgi_app import app  # type: ignore[import-not-found]

listener = bjoern.listen(app, "127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
bjoern.server_run(listener, app)
