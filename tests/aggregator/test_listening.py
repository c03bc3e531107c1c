"""A command's address, and what it says of one that it cannot have."""

import argparse
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from dither_aggregator.arguments.serving import (
    add_listening_arguments,
    listeners,
    must_have_read_key,
    reachable_reason,
)
from dither_aggregator.arguments.settings import settle
from dither_aggregator.store import SQLiteStore
from dither_aggregator.web import http_messages
from dither_shared.errors import ConfigurationError
from tests.support.aggregators import ENVIRONMENT
from tests.support.ports import free_port
from tests.support.soaking import thinned


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_listening_arguments(parser)
    args = parser.parse_args(arguments)
    settle(args)
    return args


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["--health", "9000"], ("127.0.0.1", 9000)),
        (["--health", "10.0.0.1:9000"], ("10.0.0.1", 9000)),
        (["--health", "[::1]:9000"], ("::1", 9000)),
        ([], None),
    ],
)
def test_health_is_a_port_or_an_address(arguments: Sequence[str], place: tuple[str, int] | None) -> None:
    assert parsed(*arguments).health == place


@pytest.mark.parametrize("wrong", [":9000", "host:", "x:y", "70000"])
def test_what_is_no_address_is_refused(wrong: str) -> None:
    with pytest.raises(argparse.ArgumentError):
        parsed("--health", wrong)


@pytest.mark.parametrize("wrong", ["", "http://x", "x:80", "a b", "m\xfcnchen.example"])
def test_what_is_no_hosts_name_is_refused(wrong: str) -> None:
    with pytest.raises(argparse.ArgumentError):
        parsed("--allow-host", wrong)


def test_health_listens_on_loopback_at_the_next_port() -> None:
    port = free_port()
    public, health = listeners(parsed("--port", str(port)))
    with public.socket, health.socket:
        assert (public.port, health.port) == (port, port + 1)
        assert health.socket.getsockname()[0] == "127.0.0.1"
        with pytest.raises(ConfigurationError, match="name another --port"):
            listeners(parsed("--port", str(port)))


def test_a_port_is_given_back_where_healths_cannot_be_had() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port + 1)):
        with pytest.raises(ConfigurationError, match=f"port {port + 1}: Address already in use; name another --health"):
            listeners(parsed("--port", str(port)))
        socket.create_server(("127.0.0.1", port)).close()


def test_an_address_of_another_machine_is_told_apart_from_a_port_in_use() -> None:
    with pytest.raises(ConfigurationError, match=r"^cannot listen on 192\.0\.2\.1: this machine has no such address$"):
        listeners(parsed("--host", "192.0.2.1", "--port", "0"))


def test_one_port_cannot_be_both() -> None:
    port = str(free_port())
    with pytest.raises(ConfigurationError, match="another port"):
        listeners(parsed("--host", "127.0.0.2", "--port", port, "--health", f"127.0.0.1:{port}"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), ""),
        (("--host", "localhost", "--allow-host", "localhost", "--allow-host", "127.0.0.3"), ""),
        (("--host", "0.0.0.0"), "--host 0.0.0.0 can be reached from elsewhere"),
        (("--allow-host", "localhost", "--allow-host", "*"), "--allow-host * is a name for readers elsewhere"),
        (("--allow-host", "t.example.org"), "--allow-host t.example.org is a name for readers elsewhere"),
        (("--allow-host", "10.0.0.5"), "--allow-host 10.0.0.5 is a name for readers elsewhere"),
    ],
)
def test_why_readers_may_come_from_elsewhere_is_said(arguments: Sequence[str], reason: str) -> None:
    args = parsed(*arguments, "--port", "0")
    public, health = listeners(args)
    with public.socket, health.socket:
        assert public.url.startswith("http://127.0.0.1:")
        assert reachable_reason(args, public) == reason


def test_nobody_is_served_from_elsewhere_before_reading_needs_a_key(tmp_path: Path) -> None:
    with closing(SQLiteStore.create(tmp_path, "example")) as store:
        must_have_read_key(store, str(tmp_path), "")
        cures = {
            str(tmp_path): f"read --data {tmp_path}`",
            "redis://:secret@localhost:1/0": "read`, for the same store",
        }
        for data, cure in cures.items():
            said = f"because, so reading must need a key: make one with `dither keys create {cure}"
            with pytest.raises(ConfigurationError, match=re.escape(said)):
                must_have_read_key(store, data, "because")
        store.create_key("write")
        with pytest.raises(ConfigurationError, match="DITHER_READ_KEY_FILE"):
            must_have_read_key(store, str(tmp_path), "because")
        key, _ = store.create_key("read")
        must_have_read_key(store, str(tmp_path), "because")
        store.revoke_key(key.id)  # nobody may read, and uploads are taken
        must_have_read_key(store, str(tmp_path), "because")


@pytest.mark.parametrize(
    ("soft", "hard", "most"), thinned([(256, 1_024, 832), (256, 256, 64), (1_024, 4_096, 2_000)], 1, 2)
)
def test_the_soft_limit_of_files_is_raised_and_connections_fit_below(soft: int, hard: int, most: int) -> None:
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "from dither_aggregator.web.http_messages import connections_max\n"
        "print(connections_max(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    connections, raised = map(int, done.stdout.split())
    assert connections == most
    assert connections + http_messages.OTHER_FILES <= raised <= hard
