"""The services of deploy/docker/compose.yaml as processes here: command lines, environment and configurations.

Containers become processes, names of services become loopback addresses, and mounted files those of deploy/. Proxies
come with the certificate of a test. Nothing else differs.
"""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
import yaml

from tests.support.aggregators import dither
from tests.support.certificates import Certificate, certificate
from tests.support.clusters import Cluster, Process, running, wait_until
from tests.support.ports import free_port
from tests.support.redis_servers import redis_server
from tests.support.tools import tool

DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = "telemetry.example.org"
SITE = "${DITHER_SITE:?the name under which devices and people reach it}"
DATA, BROKER = "redis-data", "redis-broker"
PROXIES = ("nginx", "caddy")


def command_of(said: str) -> list[str]:
    """Return the command that README.md has `docker compose run` give to a service, here what begins so."""
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^docker compose run --rm {said}.*$", readme, re.MULTILINE)
    return str(line).split()[5:]


class Server:
    """A process of another program: a Redis, or a proxy."""

    def __init__(self, directory: Path, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self._command, self._environment = command, environment
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; whoever needs it waits until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )

    def end(self) -> int:
        """End it as an operator does, and return the exit code."""
        assert self._process
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def stop(self) -> None:
        """Kill it and its own processes, if it has not ended: workers of nginx outlive their master."""
        if self._process and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(60)

    def written(self) -> str:
        """Return what it wrote."""
        return self._log.read_text(errors="replace")


class Composed(Cluster):
    """All services, and nginx beside Caddy, each before the same API."""

    def __init__(self, directory: Path, registry: str) -> None:
        super().__init__(directory, registry)
        self.services: dict[str, Any] = yaml.safe_load((DEPLOY / "docker/compose.yaml").read_text())["services"]
        self.port, self.watched = free_port(), free_port()
        self.ports = {name: free_port() for name in (DATA, BROKER)}
        self.certificate: Certificate = certificate(directory, NAME, "127.0.0.1")
        self.trusted = ssl.create_default_context(cafile=self.certificate.authority)
        self.secrets = directory / "secrets"
        self._make_secrets()
        self.store_name = self._read_secret("data_url")
        self.others: dict[str, Server] = {}
        self.keys: dict[str, str] = {}

    def _make_secrets(self) -> None:
        """Run what README.md says of secrets, in their folder."""
        readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
        block = next(
            block for block in re.findall(r"```sh\n(.*?)```", readme, re.DOTALL) if "secrets/password" in block
        )
        lines = block.partition("export ")[0].replace("YOUR-APP/metrics.toml metrics.toml", "metrics.toml shipped.toml")
        subprocess.run(["/bin/sh", "-euc", lines], cwd=self.directory, check=True)
        for name in ("data_url", "broker_url"):
            path = self.secrets / name
            path.chmod(0o600)
            path.write_text(self._local(path.read_text()))

    def _read_secret(self, name: str) -> str:
        return (self.secrets / name).read_text().strip()

    def _local(self, text: str) -> str:
        """Return a text with what is elsewhere in containers replaced by what is here."""
        for service, port in self.ports.items():
            text = text.replace(f"@{service}:6379", f"@127.0.0.1:{port}")
        text = text.replace("/run/secrets", str(self.secrets)).replace(SITE, NAME)
        text = text.replace("/etc/dither/metrics.toml", str(self.registry))
        return text.replace("/etc/redis", str(DEPLOY / "redis"))

    def environment(self, service: str) -> dict[str, str]:
        """Return what a service finds in its environment."""
        own = {name: self._local(value) for name, value in self.services[service]["environment"].items()}
        if service == "api":
            health = f"127.0.0.1:{self.watched}"
            own |= {"DITHER_HOST": "127.0.0.1", "DITHER_PORT": str(self.port), "DITHER_HEALTH": health}
            own["DITHER_TRUSTED_PROXY"] = "127.0.0.1/32"
        return own

    def command(self, service: str) -> list[str]:
        """Return the command line of a service."""
        return [self._local(part) for part in self.services[service]["command"]]

    def start_redis(self, service: str) -> None:
        """Start a Redis with its own configuration, and wait until it answers."""
        if service not in self.others:
            folder = self.directory / service
            folder.mkdir()
            _, *arguments = self.command(service)
            arguments = [str(folder) if part in ("/data", "/tmp") else part for part in arguments]
            place = ["--port", str(self.ports[service]), "--bind", "127.0.0.1"]
            self.others[service] = Server(self.directory, service, [redis_server(), *arguments, *place], {})
        self.others[service].start()
        url = self._read_secret("data_url" if service == DATA else "broker_url")

        def answers() -> bool:
            try:
                with redis.Redis.from_url(url, protocol=2) as client:
                    return bool(client.ping())
            except redis.ConnectionError:
                return False

        wait_until(answers, f"{service} answering")

    def once(self, *command: str) -> dict[str, Any]:
        """Run a command in the container of `init`; return what it says."""
        done = dither(*command, "--json", **self.environment("init"))
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def add_services(self) -> None:
        """Add api, worker and beat, without starting them."""
        for service in ("api", "worker", "beat"):
            process = Process(
                self.directory, service, [*self.command(service), "--json"], environment=self.environment(service)
            )
            self.processes[service] = process
        self.health.append(f"http://127.0.0.1:{self.watched}")

    def add_proxies(self) -> None:
        """Start nginx and Caddy with the files of deploy/proxy, at ports of their own."""
        text = (DEPLOY / "proxy/nginx.conf").read_text(encoding="utf-8")
        tls, plain = free_port(), free_port()
        for shown, real in {
            "/etc/ssl/dither/fullchain.pem": str(self.certificate.certificate),
            "/etc/ssl/dither/privkey.pem": str(self.certificate.key),
            "listen 80 default_server": f"listen 127.0.0.1:{plain} default_server",
            "listen 443 ssl http2": f"listen 127.0.0.1:{tls} ssl http2",
            "    listen [::]:80 default_server;\n": "",
            "    listen [::]:443 ssl http2;\n": "",
            "127.0.0.1:8080": f"127.0.0.1:{self.port}",
        }.items():
            assert shown in text, shown
            text = text.replace(shown, real)
        folder = self.directory / "nginx"
        folder.mkdir()
        (folder / "nginx.conf").write_text(text)
        alone = f"daemon off; pid {folder}/nginx.pid;"
        command = [tool("nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", alone]
        self.others["nginx"] = Server(self.directory, "nginx", command, {})
        self.urls.append(f"https://127.0.0.1:{tls}")
        self.others["caddy"] = self._caddy(free_port())
        for name in PROXIES:
            self.start_proxy(name)

    def start_proxy(self, name: str) -> None:
        """Start a proxy, and wait until it listens."""
        self.others[name].start()
        port = int(self.urls[PROXIES.index(name)].rpartition(":")[2])

        def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until(listens, f"{name} listening")

    def _caddy(self, port: int) -> Server:
        text = (DEPLOY / "proxy/Caddyfile").read_text(encoding="utf-8")
        site = "{$DITHER_SITE:telemetry.example.org} {"
        assert site in text
        shown = f"{site}\n\ttls {self.certificate.certificate} {self.certificate.key}"
        text = text.replace(site, shown).replace("admin off", "admin off\n\tauto_https disable_redirects")
        folder = self.directory / "caddy"
        folder.mkdir()
        (folder / "Caddyfile").write_text(text)
        self.urls.append(f"https://127.0.0.1:{port}")
        environment = {
            "DITHER_SITE": f"https://{NAME}:{port}, https://127.0.0.1:{port}",
            "DITHER_UPSTREAM": f"127.0.0.1:{self.port}",
            "XDG_DATA_HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
        }
        command = [tool("caddy"), "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
        return Server(self.directory, "caddy", command, environment)

    @property
    def key(self) -> str:
        return self.keys["write"]

    def restart_store(self) -> None:
        self.others[DATA].stop()
        self.start_redis(DATA)

    def close(self) -> None:
        super().close()
        for server in self.others.values():
            server.stop()

    def logs(self) -> str:
        written = "\n".join(f"--- {name}\n{server.written()[-6_000:]}" for name, server in self.others.items())
        return f"{super().logs()}\n{written}"


@contextmanager
def composed(directory: Path, registry: str) -> Iterator[Composed]:
    """Run all of it, the store made and the keys known."""
    cluster = Composed(directory, registry)
    with running(cluster):
        for service in (DATA, BROKER):
            cluster.start_redis(service)
        cluster.keys["write"] = cluster.once(*cluster.command("init"))["key"]
        cluster.keys["read"] = cluster.once(*command_of("init keys"))["key"]
        cluster.add_services()
        cluster.start()
        cluster.add_proxies()
        yield cluster
