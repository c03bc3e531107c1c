"""The commands that deploy/'s pages show, run in their order on a real store under load."""

import json
import re
import shlex
import time
from collections.abc import Mapping
from contextlib import chdir, closing
from datetime import timedelta
from pathlib import Path

import pytest

from dither_aggregator.store import Receipt, SQLiteStore, create_store, open_store
from dither_aggregator.store.records import Counted
from dither_aggregator.store.redis import layout
from dither_shared.registry import Registry, utc_today
from tests.faults.aggregator.load import REGISTRY, REGISTRY_TEXT, Load, wait_folded
from tests.faults.aggregator.oracle import Oracle
from tests.support.aggregators import dither
from tests.support.clusters import SERVE, Process, one_machine
from tests.support.ports import free_port
from tests.support.redis_servers import SOUND, RedisCluster, RedisServer, redis_cli, running_cluster, running_redis
from tests.support.registries import registry_text
from tests.support.stores import body_of, parsed

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


def test_an_operators_other_commands_work_beside_a_server_or_while_it_is_stopped(tmp_path: Path) -> None:
    create, listed, revoke, journal = commands("keys.md", "# Keys")
    (wait,) = re.findall(r"^    (dither .*)$", (DEPLOY / "keys.md").read_text(encoding="utf-8"), re.MULTILINE)
    (moves,) = commands("alerts.md")
    stop, *reset, start = commands("backups.md", "## A day that leapt ahead")
    assert [stop, start] == ["systemctl stop dither-serve", "systemctl start dither-serve"]
    assert moves.endswith(" > moves.new && mv moves.new /var/lib/node_exporter/dither.prom")
    with one_machine(tmp_path / "machine", REGISTRY_TEXT) as cluster:
        tomorrow = (utc_today() + timedelta(days=1)).isoformat()
        places = {"/var/lib/dither": cluster.data, "/var/backups/dither": tmp_path, "2027-03-01": tomorrow}

        def said(line: str, **more: object) -> str:
            return run(line.partition(" #")[0], {**places, **more}, tmp_path)

        (key,) = re.findall(r"dither_read_(\w+)_\w+", said(create))
        assert f"{key}  read" in said(listed)
        said(revoke, **{"3f9a01bc": key})
        assert "key revoke" in said(journal)
        said(f"DITHER_DATA={cluster.data} {wait}", **{"3f9a01bc": cluster.key.split("_")[2]})
        assert "waiting" in said(listed)
        for line in commands("backups.md", "## Each night"):
            said(line)
        assert 'dither_metric_moved{app="' in said(moves.partition(" > ")[0])
        assert cluster[SERVE].stop() == 0
        registry = Registry.load(cluster.registry)
        ahead = SQLiteStore.open_or_create(cluster.data, registry.app, lambda: time.time() + 100 * 86_400)
        with closing(ahead) as store:
            store.append([parsed(store, body_of(registry, {next(iter(registry.metrics)): [0]}))])
        would, does = map(said, reset)
        assert "1 report" in would
        assert does
        assert tomorrow in said(f"dither ledger --data {cluster.data}")
        cluster[SERVE].start()
        assert cluster.ready().status_code == 200


def test_ci_checks_a_registry_and_what_changed_since_the_last_release(tmp_path: Path) -> None:
    for name in ("metrics.toml", "released.toml"):
        (tmp_path / name).write_text(registry_text(epsilon="1.0", reports=1, device_epsilon="2.0"), encoding="utf-8")
    for line in commands("registry.md"):
        run(line, {}, tmp_path)


def test_several_machines_run_the_pages_commands(tmp_path: Path) -> None:
    data, broker, *made, api, worker, beat = [line.partition(" #")[0].rstrip() for line in commands("machines.md")]
    (tmp_path / "metrics.toml").write_text(REGISTRY_TEXT, encoding="utf-8")
    named = dict(line.removeprefix("export ").split("=", 1) for line in (data, broker))
    assert named.keys() == {"DITHER_DATA_FILE", "DITHER_BROKER_FILE"}
    with running_redis(tmp_path / "data") as store, running_redis(tmp_path / "broker", appendonly="no") as tasks:
        for name, redis in zip(named, (store, tasks), strict=True):
            path = tmp_path / f"{redis.port}.url"
            path.write_text(redis.url, encoding="utf-8")
            path.chmod(0o600)
            named[name] = str(path)
        for line in made:
            run(" ".join([*(f"{name}={value}" for name, value in named.items()), line]), {}, tmp_path)
        for line in (api, worker, beat):
            _serves(line.replace("8080", str(free_port())), named, tmp_path)


def test_settings_come_by_a_flag_a_variable_or_the_pages_file(tmp_path: Path) -> None:
    flag, variable, file = [line.partition(" #")[0].rstrip() for line in commands("settings.md")]
    (settings,) = re.findall(r"```toml\n(.*?)```", (DEPLOY / "settings.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "metrics.toml").write_text(REGISTRY_TEXT, encoding="utf-8")
    with running_redis(tmp_path / "redis") as redis:
        create_store(redis.url, Registry.load(tmp_path / "metrics.toml").app).close()
        (tmp_path / "data").write_text(redis.url, encoding="utf-8")
        places = {"9000": free_port(), "/run/secrets/dither-data": tmp_path / "data"}
        places |= {"/etc/dither/dither.toml": tmp_path / "dither.toml", "metrics.toml": tmp_path / "metrics.toml"}
        (tmp_path / "dither.toml").write_text(in_place(settings, places), encoding="utf-8")
        for path in (tmp_path / "data", tmp_path / "dither.toml"):
            path.chmod(0o600)
        named, serve = variable.split(" ", 1)
        store = {"DITHER_DATA": str(tmp_path / "store")}
        for line, said in ((flag, store), (serve, {**store, **dict([in_place(named, places).split("=")])})):
            assert _serves(line, said, tmp_path, places).endswith(f":{places['9000']}")
        dither("keys", "create", "read", "--data", redis.url)  # without one nobody reads under a name of elsewhere
        assert _serves(file, {}, tmp_path, places).endswith(f":{places['9000']}")


def test_tests_give_every_block_of_commands() -> None:
    """A block that is new here wants a test that gives it."""
    assert {page.name: len(re.findall(r"^```sh$", page.read_text("utf-8"), re.M)) for page in DEPLOY.glob("*.md")} == {
        "README.md": 6,  # test_units.py, test_containers.py; kubectl's are held against what they name: test_files.py
        "alerts.md": 1,
        "backups.md": 4,
        "cluster.md": 4,
        "erasing.md": 0,
        "keys.md": 1,
        "machines.md": 1,
        "moving.md": 1,
        "registry.md": 1,
        "settings.md": 1,
        "sizes.md": 2,  # tests/aggregator/test_uploads_command.py
        "upgrading.md": 0,
    }


def test_serve_takes_what_a_review_refuses_and_says_so(tmp_path: Path) -> None:
    listed = tuple(f"v{number}" for number in range(299))
    text = registry_text(values=listed, epsilon="1", epsilon_permanent="2", answers=1)
    with one_machine(tmp_path, text) as cluster:
        assert cluster.ready().status_code == 200
        said = cluster[SERVE].written()
    assert "`dither metrics check` refuses this registry" in said
    assert "R(200) must be at most 0.25, got 0.70" in said


def test_a_cluster_runs_the_pages_commands_and_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    text = (DEPLOY / "cluster.md").read_text(encoding="utf-8")
    served = commands("cluster.md", "# A store in a Redis Cluster\n")
    data, broker, init, *servers = [line.partition(" #")[0].rstrip() for line in served]
    (tmp_path / "metrics.toml").write_text(REGISTRY_TEXT, encoding="utf-8")
    with (
        running_cluster(tmp_path / "nodes") as nodes,
        running_cluster(tmp_path / "restored", 1, 1) as restored,
        running_cluster(tmp_path / "copied", 1, 1) as copied,
        running_redis(tmp_path / "broker", appendonly="no") as of_broker,
        running_redis(tmp_path / "single") as single,
    ):
        places = {
            "10.0.0.11:6379,10.0.0.12:6379,10.0.0.13:6379": ",".join(
                f"127.0.0.1:{one.port}" for one in nodes.nodes[:3]
            ),
            "redis://10.0.0.5:6379/0": single.url,
            "redis://10.0.0.6:6379/0": of_broker.url,
            "-h 10.0.0.11": f"-p {nodes.nodes[0].port}",
            "10.0.0.11:6379": f"127.0.0.1:{nodes.nodes[0].port}",
            "10.0.1.11:6379": f"127.0.0.1:{restored.nodes[0].port}",
            "10.0.2.11:6379": f"127.0.0.1:{copied.nodes[0].port}",
        }
        named = dict(in_place(line, places).removeprefix("export ").split("=", 1) for line in (data, broker))
        assert named.keys() == {"DITHER_DATA", "DITHER_BROKER"}

        def said(line: str) -> str:
            return run(" ".join([*(f"{name}={value}" for name, value in named.items()), line]), places, tmp_path)

        said(init)
        registry = Registry.load(tmp_path / "metrics.toml")
        metric = next(iter(registry.metrics))
        bodies = [body_of(registry, {metric: [0]}) for _ in range(UPLOADS)]
        create_store(single.url, registry.app).close()
        for name in (named["DITHER_DATA"], single.url):
            with closing(open_store(name)) as store:
                store.load(registry)
                store.append([parsed(store, body) for body in bodies])
        for line in servers:
            _serves(line, {**named, "DITHER_PORT": str(free_port())}, tmp_path)
        _reshard(commands("cluster.md", "\n## Moving slots\n"), places, nodes)
        before = json.loads(said("dither ledger --json"))
        assert before["accepted"] == UPLOADS
        for line in commands("cluster.md", "\n## Backups, erasing, days\n"):
            said(line.partition(" #")[0])
        assert text.count("```sh\n") == 4
        for other in (restored, copied):
            name = f"redis+cluster://127.0.0.1:{other.nodes[0].port}"
            with closing(open_store(name)) as store:
                assert store.shards == 48
                assert sum(store.counted().values(), Counted()).accepted == UPLOADS
                answers = store.append([parsed(store, body) for body in bodies])
                assert all(isinstance(one, Receipt) and one.duplicate for one in answers)


def _serves(line: str, environment: Mapping[str, str], directory: Path, places: Mapping[str, object] = {}) -> str:
    """Start a command as it stands, but for places, and stop it when it says that it is ready; return its address."""
    words = shlex.split(in_place(line, places))[1:]
    more = {"api": ("--processes", 1), "worker": ("--processes", 1)}.get(words[0], ())
    process = Process(directory, words[0], [*words, *more, "--json"], environment=environment)
    said = process.start()
    assert process.stop() == 0
    return str(said.get("url"))


def _reshard(lines: list[str], places: Mapping[str, object], nodes: RedisCluster) -> None:
    """Move slots of the node with shard 20 to another, that shard's among them, as the page says."""
    moved = layout.shard_key(20)
    source, target = nodes.owner(moved), nodes.other(moved)
    ids = {end: node.ask("CLUSTER MYID").decode() for end, node in (("FROM", source), ("TO", target))}
    stop, reshard, allow, fix = (shlex.split(in_place(line, {**places, **ids}), comments=True)[1:] for line in lines)
    for node in nodes.nodes:
        redis_cli("-p", node.port, *stop[2:])
    redis_cli(*reshard)
    nodes.wait_for_owner(moved, target)
    for node in nodes.nodes:
        redis_cli("-p", node.port, *allow[2:])
    redis_cli(*fix)
