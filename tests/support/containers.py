"""A Docker daemon of a test's own, and images made of what this machine has, under the names that deploy/ asks for.

The daemon lives in namespaces: its networks, addresses, firewall rules and mounts are seen by nobody else, its ports
are free, and the kernel ends every container with it. No image comes from a registry.
"""

import ctypes
import io
import os
import shutil
import signal
import struct
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, distribution
from importlib.util import cache_from_source
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.soaking import MEMORY
from tests.support.tools import tool
from tests.support.waiting import wait_until

_OPTIONS = (
    "--host unix://{0}/socket --data-root {0}/data --exec-root {0}/exec --pidfile {0}/pid --config-file {0}/settings"
)
_UNSHARE = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
BUILDS = ("dither-aggregator", "hatchling", "hatch-fancy-pypi-readme")
"""The packages that an image of dither is built of and with; dither itself is in the clone."""
_UNCHECKED = bytes([1, 0, 0, 0]) + bytes(8)
"""The head of a .pyc that is taken as it is: PEP 552."""
USERS = "root:x:0:0::/root:/bin/sh\nredis:x:999:999::/data:/bin/sh\n"
GROUPS = "root:x:0:\nredis:x:999:\n"


class Docker:
    """A running daemon, asked by the commands that people give."""

    def __init__(self, directory: Path, daemon: "subprocess.Popen[bytes]") -> None:
        self._socket, self._daemon = f"unix://{directory}/socket", daemon
        programs = directory / "bin"
        programs.mkdir()
        # Debian's compose is a program of its own, which knows no `name:` at the top of a file.
        plugin = subprocess.run([_client(), "compose", "version"], capture_output=True, check=False, timeout=30)
        compose = f"{_client()} compose" if plugin.returncode == 0 else tool("docker-compose")
        self.compose_names_projects = plugin.returncode == 0
        (programs / "docker").write_text(
            f'#!/bin/sh\n[ "$1" = compose ] || exec {_client()} "$@"\nshift\nexec {compose} "$@"\n'
        )
        (programs / "docker").chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "DOCKER_HOST": self._socket}
        # `docker build` and compose of before: the builder that needs no plugin.
        self.environment |= {"DOCKER_BUILDKIT": "0", "COMPOSE_DOCKER_CLI_BUILD": "0"}

    def sh(self, lines: str, directory: Path, within_s: float = 300, **environment: str) -> str:
        """Run lines of a shell as they are written; return what they print."""
        done = subprocess.run(
            ["/bin/sh", "-euc", lines],
            cwd=directory,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=within_s,
        )
        assert done.returncode == 0, f"{lines}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
        return done.stdout

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Have this thread, and all that it starts, in the network of the daemon's host, where its ports are."""
        libc = ctypes.CDLL(None, use_errno=True)
        with (
            Path(f"/proc/{_child(self._daemon)}/ns/net").open() as there,
            Path("/proc/thread-self/ns/net").open() as here,
        ):
            assert libc.setns(there.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
            try:
                yield
            finally:
                assert libc.setns(here.fileno(), 0) == 0, os.strerror(ctypes.get_errno())

    def image(self, tag: str, files: Iterable[tuple[str, Path | bytes | int]], *changes: str) -> None:
        """Make an image of one layer: places in it, each a file here, its content, or the user of a directory."""
        command = [_client(), "import", *(f"--change={change}" for change in changes), "-", tag]
        importing = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=self.environment)
        assert importing.stdin
        there: set[str] = set()
        with tarfile.open(fileobj=importing.stdin, mode="w|", dereference=True) as layer:
            for place, content in files:
                name = place.lstrip("/")
                if name in there:
                    continue
                there.add(name)
                if isinstance(content, Path):
                    layer.add(content, name, recursive=False)
                else:
                    info = tarfile.TarInfo(name)
                    info.mode = 0o755 if isinstance(content, int) else 0o644
                    if isinstance(content, int):
                        info.type, info.uid = tarfile.DIRTYPE, content
                        content = b""
                    info.size = len(content)
                    layer.addfile(info, io.BytesIO(content))
        importing.stdin.close()
        assert importing.wait(120) == 0


def _client() -> str:
    return tool("docker")


@contextmanager
def docker() -> Iterator[Docker]:
    """Run a daemon, and leave nothing of it."""
    assert os.geteuid() == 0, "containers are run by a daemon of the tests' own, as root: sudo make test"
    directory = Path(tempfile.mkdtemp(prefix="docker-", dir=MEMORY))  # a short path: a socket is in it
    daemon = None
    try:
        daemon = _started(directory)
        running = Docker(directory, daemon)
        yield running
        containers = running.sh("docker ps --quiet", directory).split()
        if containers:
            running.sh(f"docker rm --force --volumes {' '.join(containers)}", directory)
    finally:
        if daemon:
            _end(daemon)
        shutil.rmtree(directory)


def _started(directory: Path) -> "subprocess.Popen[bytes]":
    """Start a daemon that answers: with the storage driver that it picks, else with the one that works everywhere."""
    (directory / "settings").write_text("{}")
    for driver in ("", "--storage-driver vfs"):
        command = f"ip link set lo up; exec {tool('dockerd')} --bridge none {_OPTIONS.format(directory)} {driver}"
        with (directory / "log").open("ab") as log:
            daemon = subprocess.Popen(
                [*_UNSHARE, "sh", "-c", command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        if _answers(directory, daemon):
            return daemon
        daemon.kill()
        daemon.wait(60)
        (directory / "socket").unlink(missing_ok=True)
    raise AssertionError((directory / "log").read_text()[-8000:])


def _answers(directory: Path, daemon: "subprocess.Popen[bytes]") -> bool:
    """Wait until a daemon answers, or has ended: it listens before it looks for a driver."""
    socket = directory / "socket"
    wait_until(lambda: socket.exists() or daemon.poll() is not None, 60, "dockerd listening")
    asked = [_client(), "--host", f"unix://{socket}", "version"]
    return subprocess.run(asked, capture_output=True, check=False, timeout=60).returncode == 0


def _end(daemon: "subprocess.Popen[bytes]") -> None:
    try:
        os.kill(_child(daemon), signal.SIGTERM)
        daemon.wait(60)
    finally:
        daemon.kill()  # of unshare, with which the daemon and all containers would end
        daemon.wait(60)


def _child(process: "subprocess.Popen[bytes]") -> int:
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())


def programs(*names: str) -> Iterator[tuple[str, Path]]:
    """Yield programs of this machine in /usr/bin, the shell also in /bin, with the libraries that they need."""
    for name in names:
        path = Path(tool(name)).resolve()
        yield f"/usr/bin/{name}", path
        if name == "sh":
            yield "/bin/sh", path
        yield from libraries(path)


def libraries(*paths: Path) -> Iterator[tuple[str, Path]]:
    """Yield the shared libraries that files need, in their places."""
    told = subprocess.run(["ldd", *paths], capture_output=True, text=True, check=False, timeout=60).stdout
    for word in dict.fromkeys(told.split()):
        if word.startswith("/") and not word.endswith(":"):  # as the name of a file does, above what it needs
            yield word, Path(word)


def python() -> Iterator[tuple[str, Path]]:
    """Yield the Python that runs the tests, without what was installed into it."""
    home = Path(sys.base_prefix)
    binary = Path(sys.executable).resolve()
    for name in ("python", "python3", binary.name):
        yield f"{home}/bin/{name}", binary
    # numpy's and scipy's wheels take libraries from the system, too.
    umath = next(file for file in distribution("numpy").files or () if file.name.startswith("_multiarray_umath"))
    linked = [binary, Path(str(umath.locate()))]
    for folder, within, names in os.walk(sysconfig.get_path("stdlib", vars={"installed_base": str(home)})):
        within[:] = [
            each for each in within if each not in ("site-packages", "dist-packages", "test", "tests", "idlelib")
        ]
        for name in names:
            path = Path(folder, name)
            if path.suffix != ".a":
                yield str(path), path
            if path.suffix == ".so":
                linked.append(path)
    yield from (each for each in libraries(*linked) if "site-packages" not in each[0])


def _needed(*names: str) -> list[Distribution]:
    """Return the installed packages that some need, dither's apart: those are in the clone."""
    found: dict[str, Distribution] = {}

    def add(name: str, extras: set[str]) -> None:
        key = canonicalize_name(name)
        if key not in found:
            found[key] = distribution(name)
            for text in found[key].requires or ():
                needed = Requirement(text)
                if not needed.marker or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                    add(needed.name, needed.extras)

    for name in names:
        add(name, set())
    return [each for name, each in found.items() if name not in ("dither", "dither-aggregator")]


def _files(installed: Distribution) -> Iterator[tuple[str, bytes]]:
    """Yield a package's files by their paths in site-packages, without its tests, what is compiled as it is.

    Not every installer compiles: what Python has compiled since counts as well, and is on no list.
    """
    for file in installed.files or ():
        if file.parts[0] == ".." or file.suffix in (".pyc", ".pyi") or "tests" in file.parts:
            continue
        path = Path(str(file.locate()))
        yield str(file), path.read_bytes()
        if file.suffix == ".py":
            kept = Path(cache_from_source(path))
            data = kept.read_bytes() if kept.exists() else b""
            if data[4:16] == struct.pack("<LLL", 0, int(path.stat().st_mtime), path.stat().st_size):
                yield str(file.parent / "__pycache__" / kept.name), data[:4] + _UNCHECKED + data[16:]


def installed(clone: Path) -> Iterator[tuple[str, Path | bytes]]:
    """Yield what dither's image has, as if dither were installed into its Python: the Dockerfile makes a venv of it."""
    site = f"{sysconfig.get_path('stdlib', vars={'installed_base': sys.base_prefix})}/site-packages"
    for each in _needed("dither-aggregator"):
        yield from ((f"{site}/{name}", data) for name, data in _files(each))
    for name in ("dither", "dither-aggregator"):
        yield from ((f"{site}/{name}", data) for name, data in _files(distribution(name)) if ".dist-info/" in name)
    for room in ("client", "shared", "aggregator"):
        for path in (clone / room).glob("dither*/**/*"):
            if path.is_file():
                yield f"{site}/{path.relative_to(clone / room)}", path
    yield "/usr/bin/dither", Path(tool("dither"))


def _wheels() -> Iterator[tuple[str, bytes]]:
    """Yield, in /wheels, the packages that dither's image is built of and with, as an index would give them."""
    for each in _needed(*BUILDS):
        yield _wheel(each)


def _wheel(package: Distribution) -> tuple[str, bytes]:
    content = io.BytesIO()
    about = ""
    with zipfile.ZipFile(content, "w") as wheel:
        for name, data in _files(package):
            if name.endswith(".dist-info/WHEEL"):
                about = name.removesuffix("/WHEEL")
            if not name.endswith((".dist-info/RECORD", ".dist-info/INSTALLER", ".dist-info/REQUESTED")):
                wheel.writestr(name, data)
        wheel.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in [*wheel.namelist(), f"{about}/RECORD"]))
    tags = [line[5:].split("-") for line in (package.read_text("WHEEL") or "").splitlines() if line.startswith("Tag: ")]
    tag = "-".join(".".join(dict.fromkeys(parts)) for parts in zip(*tags, strict=True))
    return f"/wheels/{about.removesuffix('.dist-info')}-{tag}.whl", content.getvalue()


def stand_ins(clone: Path, built: bool) -> Iterator[tuple[str, list[tuple[str, Path | bytes | int]], tuple[str, ...]]]:
    """Yield what stands for the images that deploy/docker names: name, files, and what an image says of itself.

    That of dither is there at once, without Prometheus beside it; or, to be `built`, the Python that its Dockerfile
    begins with.
    """
    users: list[tuple[str, Path | bytes | int]] = [("/etc/passwd", USERS.encode()), ("/etc/group", GROUPS.encode())]
    base = [*users, *programs("sh"), *python(), ("/usr/share/zoneinfo/UTC", Path("/usr/share/zoneinfo/UTC"))]
    path = f"ENV PATH={sys.base_prefix}/bin:/usr/bin:/bin"
    if built:
        pip = b"[install]\nno-index = true\nfind-links = /wheels\nno-compile = true\n"
        yield (
            "python",
            [*base, *programs("groupadd", "useradd", "install"), *_wheels(), ("/etc/pip.conf", pip)],
            (path,),
        )
    else:
        run = ('ENTRYPOINT ["python", "/usr/bin/dither"]', "USER 10001:10001", "ENV PYTHONDONTWRITEBYTECODE=1")
        yield "dither", [*base, *installed(clone), ("/var/lib/dither", 10001)], (path, *run)
    yield "redis", [*users, *programs("sh", "sed", "grep", "redis-server", "redis-cli"), ("/data", 999)], ()
    start = 'CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]'
    places = "ENV XDG_DATA_HOME=/data XDG_CONFIG_HOME=/config"
    yield "caddy", [*users, *programs("caddy"), ("/data", 0), ("/config", 0)], (places, start)
    if built:
        start = 'ENTRYPOINT ["prometheus"]'
        yield "prom/prometheus", [*users, *programs("prometheus"), ("/prometheus", 65534)], (start, "USER 65534:65534")
