"""An upload as a server sees it: a body to read, a wait for a commit in $COMMIT_S, a short answer."""

import os
import time
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

RECEIPT = b'{"upload":"AAECAwQFBgcICQoLDA0ODw","accepted":20,"duplicate":false,"rejected":[]}\n'
HEADERS = [("Content-Type", "application/json"), ("Content-Length", str(len(RECEIPT)))]
COMMIT_S = float(os.environ.get("COMMIT_S", "0"))


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answer one request."""
    if COMMIT_S:
        time.sleep(COMMIT_S)
    return answer(environ, start_response)


def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answer one request without a wait."""
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start_response("202 ACCEPTED", HEADERS)
    return [RECEIPT]
