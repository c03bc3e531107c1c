"""The commands that deploy/'s pages show, run in their order on a real store under load."""

import json
import re
import shlex
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path

import pytest

from tests.faults.aggregator.load import REGISTRY, REGISTRY_TEXT, Load, wait_folded
from tests.faults.aggregator.oracle import Oracle
from tests.support.aggregators import dither
from tests.support.clusters import SERVE, Process, one_machine
from tests.support.ports import free_port
from tests.support.redis_servers import SOUND, RedisServer
from tests.support.registries import registry_text

pytestmark = pytest.mark.slow

DEPLOY = Path(__file__).parents[2] / "deploy"
UPLOADS = 60


def commands(page: str, heading: str = "") -> list[str]:
    """Return the lines of a part of a page that are commands."""
    text = (DEPLOY / page).read_text(encoding="utf-8")
    part = text.partition(heading)[2].partition("\n## ")[0] if heading else text
    return [line for block in re.findall(r"```sh\n(.*?)```", part, re.DOTALL) for line in block.splitlines()]


def in_place(command: str, places: Mapping[str, object]) -> str:
    """Return a line with the places that it names replaced."""
    for shown, real in places.items():
        command = command.replace(shown, str(real))
    return command


def run(command: str, places: Mapping[str, object], directory: Path) -> str:
    """Run a line as it stands, but for the places that it names; return what it printed."""
    words = shlex.split(in_place(command, places))
    said = dict(word.split("=", 1) for word in words[: words.index("dither")])
    with chdir(directory):
        done = dither(*words[words.index("dither") + 1 :], **said)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def test_the_drill_shows_that_a_backup_made_under_load_is_whole(tmp_path: Path) -> None:
    backup, restore, fsck, *ledgers, serve = commands("backups.md", "## The drill")
    oracle = Oracle("drill", REGISTRY)
    with one_machine(tmp_path / "machine", REGISTRY_TEXT) as cluster:
        places = {"/var/lib/dither": cluster.data, "metrics.toml": cluster.registry, "8090": free_port()}
        places |= {"--data restored": f"--data {tmp_path / 'restored'}"}
        with Load(oracle, cluster) as load:
            load.wait_for(UPLOADS)
            run(backup, places, tmp_path)
            acknowledged = load.answers[202]
        for line in (restore, fsck, *ledgers):
            run(line, places, tmp_path)
        wait_folded(cluster)
        restored, served = (json.loads(run(f"{line} --json", places, tmp_path)) for line in ledgers)
        assert 0 < restored["accepted"] <= served["accepted"]
        assert acknowledged >= UPLOADS
        _, *arguments = shlex.split(in_place(serve, places))
        other = Process(tmp_path, "restored", [*arguments, "--health", free_port(), "--json"])
        try:
            other.start()
            assert other.stop() == 0
        finally:
            other.kill()


def test_a_move_to_redis_keeps_all_that_was_acknowledged(tmp_path: Path) -> None:
    backup, stop, copy, fsck = commands("moving.md")
    assert stop == "systemctl stop dither-serve"
    oracle = Oracle("move", REGISTRY)
    redis = RedisServer(tmp_path / "data", dict(SOUND))
    redis.start()
    try:
        with one_machine(tmp_path / "machine", REGISTRY_TEXT) as cluster:
            (tmp_path / "data.url").write_text(redis.url, encoding="utf-8")
            places = {"/var/lib/dither": cluster.data, "/etc/dither/data.url": tmp_path / "data.url"}
            with Load(oracle, cluster) as load:
                load.wait_for(UPLOADS)
                run(backup, places, tmp_path)
            assert cluster[SERVE].stop() == 0
            before = json.loads(run(f"dither ledger --json --data {cluster.data}", places, tmp_path))
            run(copy, places, tmp_path)
            run(fsck, places, tmp_path)
            after = json.loads(run(f"dither ledger --json --data {redis.url}", places, tmp_path))
            assert after["accepted"] == before["accepted"] > 0
    finally:
        redis.stop()


def test_serve_takes_what_a_review_refuses_and_says_so(tmp_path: Path) -> None:
    listed = tuple(f"v{number}" for number in range(299))
    text = registry_text(values=listed, epsilon="1", epsilon_permanent="2", answers=1)
    with one_machine(tmp_path, text) as cluster:
        assert cluster.ready().status_code == 200
        said = cluster[SERVE].written()
    assert "`dither metrics check` refuses this registry" in said
    assert "R(200) must be at most 0.25, got 0.70" in said
