"""An upload over HTTP (shared/wire.md, "The upload")."""

import http.client
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass
class Answer:
    """A status, the answer's Retry-After, and its body."""

    status: int
    retry_after: str
    content: bytes


def post(endpoint: str, key: str, body: bytes, encoding: str = "") -> Answer:
    """Send one upload."""
    connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=30)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    if encoding:
        headers["Content-Encoding"] = encoding
    try:
        connection.request("POST", "/v1/reports", body, headers)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers.get("Retry-After", ""), answer.read())
    finally:
        connection.close()
