"""The deployment of deploy/systemd on one machine: what its units run, and the units in a systemd that boots."""

import configparser
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import requests

from tests.faults.aggregator.load import REGISTRY, REGISTRY_TEXT, Load, check_all
from tests.faults.aggregator.oracle import Oracle
from tests.support.aggregators import ENVIRONMENT, dither
from tests.support.clusters import Cluster, Process, running
from tests.support.keys import bearer
from tests.support.ports import free_port
from tests.support.registries import registry_text

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
            written = (DEPLOY / "systemd/dither-backup.service").read_text(encoding="utf-8")
            back = shlex.split(re.findall(r"^ExecStart=(.*)$", written, re.MULTILINE)[0])
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


NAMESPACES = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--uts", "--ipc", "--cgroup")
INSTALLED = """
mkdir -p /opt/dither-0.1.0/bin /opt/dither-0.1.0/lib/{python}/site-packages
ln -s /opt/python/bin/{python} /opt/dither-0.1.0/bin/python
echo "home = /opt/python/bin" > /opt/dither-0.1.0/pyvenv.cfg
printf '/opt/site\\n/opt/clone/client\\n/opt/clone/shared\\n/opt/clone/aggregator\\n' \\
    > /opt/dither-0.1.0/lib/{python}/site-packages/there.pth
printf '#!/opt/dither-0.1.0/bin/python\\nimport sys\\nfrom dither.cli import main\\nsys.exit(main())\\n' \\
    > /opt/dither-0.1.0/bin/dither
chmod 0755 /opt/dither-0.1.0/bin/dither
cp -r /opt/clone/deploy /trial/deploy
cd /trial
"""
"""In the place of a venv and `pip install`: this environment's Python and packages, and this clone."""
READY = "curl --silent --fail --retry 60 --retry-delay 1 --retry-all-errors http://127.0.0.1:8081/readyz > answer"
LOOKED = """
{ready}
{doctor} --health 127.0.0.1:8081
systemctl show dither-serve --property ActiveState,NRestarts
systemctl list-timers --all dither-backup.timer
systemctl start dither-backup
ls /var/backups/dither
chown root /var/backups/dither
! systemctl start dither-backup
tries=0
until grep "has failed" /trial/units; do tries=$((tries + 1)); [ $tries -lt 60 ]; sleep 1; done
chown dither /var/backups/dither
"""


def parts(page: str, heading: str, form: str = r"```sh\n(.*?)```") -> list[str]:
    """Return what has a form in the part of a page below a heading: by default its blocks of commands."""
    text = (DEPLOY / page).read_text(encoding="utf-8")
    assert heading in text, heading
    return re.findall(form, text.partition(heading)[2].partition("\n## ")[0], re.DOTALL | re.MULTILINE)


ONE_MACHINE = "\n## One machine, with systemd\n"


def installed() -> list[str]:
    """Return README.md's commands that install dither, make a store and start it, but for those of a venv and pip."""
    venv, pip, *installing = parts("README.md", ONE_MACHINE)[0].splitlines(keepends=True)
    assert venv.startswith("python3 -m venv /opt/dither-0.1.0")
    assert pip.startswith("/opt/dither-0.1.0/bin/pip install")
    making = parts("README.md", ONE_MACHINE, r"^ {7}(runuser [^\n]*\n)")
    starting, _ = parts("README.md", ONE_MACHINE, r"`(systemctl enable --now [^`]*)`")
    there = INSTALLED.format(python=f"python{sys.version_info[0]}.{sys.version_info[1]}")
    return [there, *installing, *making, f"{starting}\n"]


def run_booted(directory: Path, script: list[str], registry: str) -> tuple[str, str]:
    """Run a script of the shell in a systemd that boots; return what it printed, and what its units did."""
    assert os.geteuid() == 0, "a systemd is booted in namespaces of the tests' own, as root: sudo make test"
    root, work = directory / "root", directory / "work"
    root.mkdir()
    work.mkdir()
    (work / "script").write_text("".join(script), encoding="utf-8")
    (work / "metrics.toml").write_text(registry, encoding="utf-8")
    places = (root, DEPLOY.parent, sys.base_prefix, sysconfig.get_path("purelib"), work)
    command = ("unshare", *NAMESPACES, "sh", Path(__file__).with_name("boot.sh"), *places)
    booted = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, timeout=240)
    told = [(work / name).read_text() if (work / name).exists() else "" for name in ("code", "said", "units")]
    assert told[0] == "0\n", "\n".join([*map(bytes.decode, (booted.stdout, booted.stderr)), *told])
    return told[1], told[2]


UNITS = "dither-worker dither-beat dither-api"


def test_units_run_in_a_booted_systemd_tell_of_a_backup_that_fails_and_take_a_new_version_and_a_move_to_redis(
    tmp_path: Path,
) -> None:
    _, publishing = parts("README.md", ONE_MACHINE, r"`(systemctl enable --now [^`]*)`")
    (units,) = parts("README.md", ONE_MACHINE, r"`(install\s[^`]*dither-publish[^`]*)`")
    venv, pip, *upgrade = parts("upgrading.md", "# Upgrading", r"^ {7}([^\n]*\n)")
    (restart,) = parts("upgrading.md", "# Upgrading", r"`(systemctl restart [^`]*)`")
    assert (venv.split()[:3], pip.split()[1:]) == (["python3", "-m", "venv"], ["install", ".", "./aggregator"])
    (move,) = parts("moving.md", "# From SQLite to Redis")
    (redis,) = parts("machines.md", "# More than one machine", r"^    (redis-server [^\n]*)")
    export = parts("machines.md", "# More than one machine")[0].partition("\n")[0]
    script = f"""
        {LOOKED.format(ready=READY, doctor=f"runuser -u dither -- {shown('dither doctor')}")}
        {" ".join(units.split())}
        {publishing}
        systemctl list-timers --all dither-publish.timer
        cp -r /opt/dither-0.1.0 /opt/dither-0.2.0
        sed -i s/0.1.0/0.2.0/ /opt/dither-0.2.0/bin/dither
        {"".join(upgrade)}
        {restart}
        {READY}
        systemctl show dither-serve --property ActiveState,NRestarts
        ip address add 10.0.0.5/32 dev lo
        ip address add 10.0.0.6/32 dev lo
        install --directory /etc/redis /var/lib/redis
        cp deploy/redis/*.conf /etc/redis
        echo requirepass PASSWORD > /etc/redis/password.conf
        {redis} --daemonize yes
        {redis.replace("data.conf", "broker.conf").replace("10.0.0.5", "10.0.0.6")} --daemonize yes
        umask 077
        echo redis://:PASSWORD@10.0.0.5:6379/0 > /etc/dither/data.url
        echo redis://:PASSWORD@10.0.0.6:6379/0 > /etc/dither/broker.url
        {move}
        umask 022
        systemctl show dither-serve --property ActiveState,Result
        sed -i '/^data = /d' /etc/dither/dither.toml
        systemctl disable dither-serve
        for each in {UNITS}; do cp deploy/systemd/$each.service /etc/systemd/system; done
        for each in backup publish; do
        mkdir -p /etc/systemd/system/dither-$each.service.d
        cp deploy/systemd/redis-backup.conf /etc/systemd/system/dither-$each.service.d
        done
        systemctl daemon-reload
        systemctl enable --now {UNITS}
        {READY}
        {export}
        dither doctor
        systemctl show {UNITS} --property ActiveState,NRestarts
        systemctl start dither-backup dither-publish
        systemctl stop {UNITS}
        systemctl show {UNITS} --property ActiveState,Result
        """
    registry = registry_text(color='publish = "month"\npublish_epsilon = 1.0\nwhy = "To draw it first."')
    registry = registry.replace("[registry]\n", "[registry]\npublish_epsilon_year = 13.0\n")
    said, units = run_booted(tmp_path, [*installed(), re.sub(r"^ +", "", script, flags=re.M)], registry)
    assert len(re.findall(r"checks: all is well$", said, re.MULTILINE)) == 3
    assert re.findall(r"^(?:ActiveState|NRestarts|Result)=(\w+)$", said, re.MULTILINE) == [
        *("0", "active") * 2,
        *("success", "inactive"),
        *("0", "active") * 3,
        *("success", "inactive") * 3,
    ]
    assert re.search(r" 0(2:[345]\d|3:00):\d\d UTC .* dither-backup.timer +dither-backup.service$", said, re.MULTILINE)
    assert re.search(r"dither-publish.timer +dither-publish.service$", said, re.MULTILINE)
    assert re.search(r"^Sun.dither$", said, re.MULTILINE)
    assert units.count("Sun.dither brings back the store of ") == 2
    assert units.count("<2>dither-backup.service has failed: journalctl") == units.count("has failed") == 1
    assert "dither-site: every file is what its noisy counts and facts make of it" in units
