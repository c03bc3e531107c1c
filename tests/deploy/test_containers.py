"""The containers of deploy/docker in a real daemon, by README.md's commands as they are written."""

import os
import re
import shutil
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.faults.aggregator.load import REGISTRY, REGISTRY_TEXT, Load, check_now
from tests.faults.aggregator.oracle import Oracle
from tests.support.clusters import Cluster
from tests.support.containers import Docker, docker, stand_ins
from tests.support.keys import bearer
from tests.support.soaking import SOAK
from tests.support.tools import tool
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SITE = "localhost"
"""For which Caddy makes a certificate itself."""
UPLOADS, DEVICES, PAUSE_S = 500, 3, 0.1


def commands(page: str, heading: str) -> list[str]:
    """Return the blocks of commands below a heading."""
    part = (ROOT / "deploy" / page).read_text(encoding="utf-8").partition(heading)[2].partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", part, re.DOTALL)


STARTED, BACKUP, UPGRADE, MONITORED = commands("README.md", "## Containers")
SERVICES = ("redis-data", "redis-broker", "api", "worker", "beat", "proxy")


class Contained(Cluster):
    """All that compose.yaml starts, in a clone of its own."""

    def __init__(self, directory: Path, daemon: Docker) -> None:
        super().__init__(directory, REGISTRY_TEXT)
        self.docker = daemon
        self.oracle = Oracle("containers", REGISTRY)
        self.clone = directory / "clone"
        self.folder = self.clone / "deploy/docker"
        for name in ("client", "shared", "aggregator", "deploy"):
            # With what Python has compiled: else each process of each container would do so.
            shutil.copytree(ROOT / name, self.clone / name, ignore=shutil.ignore_patterns("node_modules"))
        for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE", ".dockerignore"):
            shutil.copy(ROOT / name, self.clone)
        if not daemon.compose_names_projects:
            file = self.folder / "compose.yaml"
            file.write_text(file.read_text().replace("name: dither\n", "", 1))
        self.urls.append(f"https://{SITE}")
        self.said = ""
        """All that the commands printed."""

    def run(self, lines: str) -> str:
        """Run commands of README.md, but for the names that it leaves to the reader."""
        if not SOAK:  # the image is there, made without an installation
            lines = lines.replace("docker compose build\n", "")
        lines = lines.replace("YOUR-APP/metrics.toml", str(self.registry)).replace("telemetry.example.org", SITE)
        project = {"DITHER_SITE": SITE, "COMPOSE_PROJECT_NAME": "dither"}
        printed = self.docker.sh(lines, self.folder, 600, **project)
        self.said += printed
        return printed

    def of(self, service: str, form: str) -> str:
        """Return what docker knows of a service's container, in a form."""
        named = f"label=com.docker.compose.service={service}"  # asking docker takes a tenth of what compose takes
        chosen = f"docker ps --all --quiet --filter {named} --filter label=com.docker.compose.oneoff=False"
        return self.docker.sh(f"docker inspect --format '{form}' $({chosen})", self.folder).strip()

    def address(self, service: str) -> str:
        return self.of(service, '{{(index .NetworkSettings.Networks "dither_inside").IPAddress}}')

    def healthy(self) -> None:
        """Wait until all that has a check is well, and the rest runs."""
        form = "{{.State.Status}} {{if .State.Health}}{{.State.Health.Status}}{{else}}healthy{{end}} {{.RestartCount}}"
        for service in SERVICES:
            wait_until(partial(self._is, service, form, "running healthy 0"), 120, f"{service} healthy")

    def _is(self, service: str, form: str, state: str) -> bool:
        return self.of(service, form) == state

    def find(self) -> None:
        """See where things are now: the store's address, and whose certificates Caddy shows."""
        password = (self.folder / "secrets/password").read_text().strip()
        self.store_name = f"redis://:{password}@{self.address('redis-data')}:6379/0"
        kept = self.run("docker volume inspect dither_caddy-data --format '{{.Mountpoint}}'").strip()
        self.authority = Path(kept, "caddy/pki/authorities/local/root.crt")
        wait_until(self.authority.exists, 60, "Caddy's authority")
        self.trusted = ssl.create_default_context(cafile=self.authority)

    @property
    def key(self) -> str:
        return str(re.findall(r"dither_write_\w+", self.said)[0])

    def restart_store(self) -> None:
        self.run("docker compose restart redis-data")

    def ask(self, path: str, key: str = "") -> requests.Response:
        headers = bearer(key) if key else {}
        return requests.get(f"{self.urls[0]}{path}", headers=headers, verify=str(self.authority), timeout=60)

    def answers(self) -> bool:
        """Tell whether the API answers, and wants a key."""
        try:
            return self.ask("/v1/metrics").status_code == 401
        except requests.ConnectionError:
            return False


@pytest.fixture(scope="module")
def contained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contained]:
    with docker() as daemon, daemon.entered():
        made = Contained(tmp_path_factory.mktemp("contained"), daemon)
        services = yaml.safe_load((made.folder / "compose.yaml").read_text())["services"].values()
        tags = {service["image"].replace("${DITHER_VERSION:-0.1.0}", "0.1.0") for service in services}
        tags |= set(re.findall(r"^FROM (\S+)", (made.folder / "Dockerfile").read_text(), re.MULTILINE))
        for name, files, changes in stand_ins(made.clone, built=SOAK):
            (tag,) = (tag for tag in tags if tag.rpartition(":")[0] == name)
            daemon.image(tag, files, *changes)
        made.run(STARTED)
        made.find()
        yield made


def test_the_pages_commands_bring_up_a_deployment_that_counts_what_is_uploaded_and_shows_it(
    contained: Contained,
) -> None:
    assert contained.address("proxy") == "172.30.53.2"
    wait_until(contained.answers, 120, "an answer by the proxy and the API behind it")
    read = re.findall(r"dither_read_\w+", contained.said)[0]
    assert contained.ask("/v1/metrics", read).status_code == 200
    assert contained.ask("/readyz", read).status_code == 404
    with Load(contained.oracle, contained, 1, PAUSE_S) as load:
        load.wait_for(1)
    check_now(contained.oracle, contained)


if SOAK:

    def test_all_that_is_uploaded_is_counted_once_while_a_backup_is_made_and_containers_are_made_anew(
        contained: Contained,
    ) -> None:
        contained.healthy()
        with Load(contained.oracle, contained, DEVICES, PAUSE_S) as load:
            load.wait_for(UPLOADS)
            contained.run(BACKUP)
            contained.run(f"{UPGRADE}docker compose up --detach --force-recreate --no-deps redis-data api worker proxy")
            load.wait_for(UPLOADS, 120)
        assert (contained.folder / "backups/today.dither").stat().st_size > 1_000
        assert load.answers.keys() <= {0, 202, 410, 422, 503}
        contained.healthy()
        contained.find()
        assert contained.address("proxy") == "172.30.53.2"
        check_now(contained.oracle, contained)

    def test_a_container_writes_nowhere_but_into_its_volumes_and_is_not_root(contained: Contained) -> None:
        for service in SERVICES:
            assert contained.of(service, "{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}}") == "true [ALL]"
        failed = contained.run(
            "docker compose exec -T api python -c "
            '\'import os; print(os.getuid(), os.access("/usr", os.W_OK), os.access("/tmp", os.W_OK))\''
        )
        assert failed.split() == ["10001", "False", "True"]

    def test_prometheus_in_the_network_reads_what_monitors_are_told(contained: Contained) -> None:
        contained.run(MONITORED)

        def asked() -> list[Any]:
            try:
                answer = requests.get("http://127.0.0.1:9090/api/v1/query", {"query": "dither_ready"}, timeout=30)
            except requests.ConnectionError:
                return []
            return list(answer.json()["data"]["result"]) if answer.ok else []  # not while it reads what it has kept

        wait_until(asked, 90, "Prometheus having asked")
        rules = requests.get("http://127.0.0.1:9090/api/v1/rules", timeout=30).json()["data"]["groups"]
        assert len(rules) == 1

    def test_where_a_daemon_can_have_no_other_driver_it_copies_images(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = tmp_path / "dockerd"
        real = tool("dockerd")
        program.write_text(
            f'#!/bin/sh\ncase "$*" in *vfs*) exec {real} "$@" ;; esac\nexec {real} "$@" --storage-driver btrfs\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        with docker() as daemon:
            assert daemon.sh("docker info --format '{{.Driver}}'", tmp_path).strip() == "vfs"
