"""One upload to post, its receipt, and problems that an aggregator may have with it."""

import json

from dither_shared.wire import PROBLEM_PREFIX, encode_upload
from tests.support.servers import accepted

ID = "AAECAwQFBgcICQoLDA0ODw"
BODY = encode_upload(ID, [("dark", "0" * 16, [1])])
RECEIPT = accepted(BODY)


def ours(slug: str = "x", **fields: object) -> bytes:
    """Return the content of a problem document."""
    return json.dumps({"type": PROBLEM_PREFIX + slug, **fields}).encode()


def nothing() -> None:
    """Be there for a transport to call."""
