"""An aggregator whose pages need a key, and who asks it with one or another."""

import json
import secrets
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from dither_aggregator.store import SQLiteStore
from dither_aggregator.web.problems import API
from dither_shared.wire import PATH, encode_upload, new_upload_id
from tests.support.aggregators import Served, dither
from tests.support.keys import bearer
from tests.support.registries import registry
from tests.support.waiting import wait_until

ASKED = registry()
WEAK, WRONG, REVOKED, READ, ADMIN = "weak", "wrong", "revoked", "read", "admin"
SCOPES = ("write", "read", "admin")
ADMIN_ADDRESS = f"{API}admin/"
HURRIED: dict[str, object] = {
    "dither_aggregator.ingest.service.REFRESH_EVERY_S": 0.2,
    "dither_aggregator.web.http_server.HELD_BACK_S": 0.01,
}
"""So that a change of the keys is taken up five times as soon, and who has a wrong one hardly waits."""


@dataclass
class Locked:
    """A running aggregator whose pages need a key, and its keys by name."""

    served: Served
    home: Path
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        return self.home / "data"

    def ask(self, method: str, path: str, key: str | None = None, **how: Any) -> requests.Response:
        headers = {**(bearer(self.keys[key]) if key else {}), **how.pop("headers", {})}
        url = self.served.url + path
        return requests.request(method, url, headers=headers, allow_redirects=False, timeout=60, **how)

    def upload(self, key: str) -> requests.Response:
        body = encode_upload(new_upload_id(secrets.randbits), [("dark", DARK, [1])])
        return self.ask("POST", PATH, data=body, headers={**bearer(key), "Content-Type": "application/json"})

    def login(self, key: str, place: str = "/", **headers: str) -> requests.Response:
        return self.ask("POST", "/login", data={"key": key, "next": place}, headers=headers)

    def wait_for(self, path: str, headers: dict[str, str], status: int) -> None:
        """Wait until it has taken up a change of the keys."""
        wait_until(lambda: self.ask("GET", path, headers=headers).status_code == status)

    def session(self, key: str) -> dict[str, str]:
        """Return the header of a session."""
        answer = self.login(self.keys[key])
        assert answer.status_code == 303
        return {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}

    def made(self, scope: str, label: str = "") -> tuple[str, str]:
        """Make a key on the command line, and wait until the server knows it; return its id and its text."""
        return self.all_made((scope, label))[0]

    def all_made(self, *asked: tuple[str, str]) -> list[tuple[str, str]]:
        """Do the same with keys of these scopes and labels; the server is waited for once."""
        made = []
        for scope, label in asked:
            done = dither("keys", "create", scope, "--label", label, "--data", self.data, "--json")
            assert done.returncode == 0, done.stderr
            made.append(json.loads(done.stdout))
        with closing(SQLiteStore(self.data)) as store:
            labels = {key.id: key.label for key in store.keys.listed()}
        for (scope, label), said in zip(asked, made, strict=True):
            assert labels[said["id"]] == label
            wait_until(lambda key=said["key"], scope=scope: self._knows(key, scope))  # type: ignore[misc]
        return [(said["id"], said["key"]) for said in made]

    def _knows(self, key: str, scope: str) -> bool:
        return self.upload(key).status_code == 202 if scope == "write" else "Set-Cookie" in self.login(key).headers


DARK = ASKED.metrics["dark"].plan.digest
