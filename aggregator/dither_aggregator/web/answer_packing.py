"""An answer of a Flask view, packed to be held and to go between processes."""

import gzip

from werkzeug.wrappers import Response

from dither_aggregator.web import problems
from dither_aggregator.web.process_messages import ReadAnswer
from dither_shared.wire.problems import Problem

PACKED_FROM = 1_024
"""Bytes of an answer from which on it is compressed."""
PACKED_LEVEL = 4
ANSWER_BYTES_MAX = 128 * 1024 * 1024


def pack(response: Response) -> ReadAnswer:
    """Return an answer, compressed if that is worth while."""
    content = response.get_data()
    if len(content) > ANSWER_BYTES_MAX:
        return pack(problems.respond(Problem("read-failed", "the answer is too long")))
    headers = [(name, value) for name, value in response.headers if name.lower() not in ("content-length", "date")]
    if len(content) < PACKED_FROM:
        return ReadAnswer(response.status_code, headers, content)
    return ReadAnswer(response.status_code, headers, gzip.compress(content, PACKED_LEVEL, mtime=0), len(content))
