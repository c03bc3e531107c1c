"""The deployment of deploy/systemd on one machine: what its units run, with their settings, as real processes."""

import configparser
import re
import shlex
from pathlib import Path

import pytest
import requests

from tests.faults.aggregator.load import REGISTRY, REGISTRY_TEXT, Load, check_all
from tests.faults.aggregator.oracle import Oracle
from tests.support.aggregators import ENVIRONMENT, dither
from tests.support.clusters import Cluster, Process, running
from tests.support.keys import bearer
from tests.support.ports import free_port

pytestmark = pytest.mark.slow

DEPLOY = Path(__file__).parents[2] / "deploy"
DEVICES, PAUSE_S = 6, 0.4
"""Together below the 20 uploads a second that one address may send."""
UPLOADS = 6
SERVE = "serve"


class Installed(Cluster):
    """`dither-serve.service` and `dither-backup.service`, in a folder instead of /etc, /opt and /var."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, REGISTRY_TEXT)
        self.data, self.backups = directory / "lib", directory / "backups"
        self.backups.mkdir()
        self.store_name = str(self.data)
        port, health = free_port(), free_port()
        self.urls, self.health = [f"http://127.0.0.1:{port}"], [f"http://127.0.0.1:{health}"]
        self._places = {
            "/etc/dither/dither.toml": directory / "dither.toml",
            "/etc/dither/metrics.toml": self.registry,
            "/var/lib/dither": self.data,
            "/var/backups/dither": self.backups,
            "127.0.0.1:8081": f"127.0.0.1:{health}",
            "port = 8080": f"port = {port}",
        }
        settings = (DEPLOY / "systemd/dither.toml").read_text(encoding="utf-8")
        (directory / "dither.toml").write_text(self.in_place(settings))

    def in_place(self, text: str) -> str:
        """Return a text with its places replaced by those of this folder."""
        for shown, real in self._places.items():
            text = text.replace(shown, str(real))
        return text

    def unit(self, name: str) -> configparser.SectionProxy:
        """Return what a unit runs; of keys that come several times the last counts, which no test asks for."""
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        parser.optionxform = str  # type: ignore[assignment,method-assign]  # configparser's own way to keep capitals
        parser.read(DEPLOY / "systemd" / name, encoding="utf-8")
        return parser["Service"]

    def run(self, command: str) -> str:
        """Run a command line of the units or of README.md; return what it prints."""
        arguments = shlex.split(self.in_place(command))
        assert arguments[0] in ("/opt/dither/bin/dither", "dither")
        done = dither(*arguments[1:], **self.environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        """The environment that the unit sets."""
        name, _, value = self.in_place(self.unit("dither-serve.service")["Environment"]).partition("=")
        return {**ENVIRONMENT, name: value}

    @property
    def key(self) -> str:
        return (self.data / "write.key").read_text().strip()

    def restart_store(self) -> None:
        self[SERVE].start()


def shown(said: str) -> str:
    """Return a command that README.md shows, here one with this in it."""
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"runuser -u dither -- ([^`\n]*{said}[^`\n]*)", readme)
    return str(line)


def test_what_the_units_run_loses_nothing_when_it_is_restarted_and_backed_up_under_load(tmp_path: Path) -> None:
    cluster = Installed(tmp_path)
    oracle = Oracle("units", REGISTRY)
    with running(cluster):
        settings = cluster.unit("dither-serve.service")["Environment"]
        assert f"\nexport PATH=/opt/dither/bin:$PATH {settings}\n" in (DEPLOY / "README.md").read_text(encoding="utf-8")
        cluster.run(shown("dither init"))
        read = cluster.run(f"{shown('keys create')} --json")
        unit = cluster.unit("dither-serve.service")
        assert unit["ExecStart"].startswith("/opt/dither/bin/dither serve ")
        arguments = shlex.split(cluster.in_place(unit["ExecStart"]))[1:]
        environment = {"DITHER_SETTINGS": cluster.environment["DITHER_SETTINGS"]}
        cluster.processes[SERVE] = Process(tmp_path, SERVE, [*arguments, "--json"], environment=environment)
        cluster.start()
        with Load(oracle, cluster, DEVICES, PAUSE_S) as load:
            load.wait_for(UPLOADS)
            assert cluster[SERVE].stop() == 0
            cluster[SERVE].start()
            load.wait_for(UPLOADS)
            back = shlex.split(cluster.unit("dither-backup.service")["ExecStart"])
            assert back[:2] == ["/bin/sh", "-c"]
            file = tmp_path / "backups" / "Mon.dither"
            cluster.run(back[2].removeprefix("exec ").replace("$(date --utc +%%a)", "Mon"))
            load.wait_for(UPLOADS)
        assert file.stat().st_size > 1_000
        assert '"ok": false' not in cluster.run(f"{shown('dither doctor')} --json").replace('"ok":false', '"ok": false')
        answer = requests.get(f"{cluster.urls[0]}/v1/metrics", timeout=30)
        assert answer.status_code == 401
        key = re.findall(r"dither_read_\w+", read)[0]
        assert requests.get(f"{cluster.urls[0]}/v1/metrics", headers=bearer(key), timeout=30).status_code == 200
        check_all(oracle, cluster)
