"""The files of deploy/ by the tools that read them: hadolint, systemd-analyze, nginx, caddy, promtool, redis-server."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.faults.aggregator.load import REGISTRY_TEXT
from tests.support.aggregators import dither
from tests.support.certificates import certificate
from tests.support.clusters import one_machine
from tests.support.ports import free_port
from tests.support.soaking import thinned
from tests.support.tools import tool
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
CLUSTER = yaml.safe_load((DEPLOY / "kubernetes" / "dither.yaml").read_text(encoding="utf-8"))["items"]
EXPOSURE_MAX = 2.0
"""Out of 10, by systemd's own count: 9.6 for a unit without any of its restrictions."""
INSTALLED = "/opt/dither/bin/dither"


def run(*command: object) -> str:
    """Run a tool, which must find nothing wrong; return what it says."""
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units, with the dither of this environment in place of an installed one."""
    dither = tmp_path / "dither"
    dither.symlink_to(tool("dither"))
    for path in (DEPLOY / "systemd").iterdir():
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8").replace(INSTALLED, str(dither)))
    return tmp_path


def test_the_image_is_built_as_its_linter_asks() -> None:
    assert run(tool("hadolint"), DEPLOY / "docker" / "Dockerfile") == ""


def test_a_bad_line_of_the_image_would_be_seen(tmp_path: Path) -> None:
    spoiled = tmp_path / "Dockerfile"
    spoiled.write_text((DEPLOY / "docker" / "Dockerfile").read_text().replace("python:3.13-slim", "python:latest"))
    with pytest.raises(AssertionError, match="DL3007"):
        run(tool("hadolint"), spoiled)


@pytest.mark.parametrize("unit", [path.name for path in UNITS])
def test_a_unit_is_sound_and_shut_in(unit: str, units: Path) -> None:
    assert run(tool("systemd-analyze"), "verify", units / unit) == ""
    said = run(tool("systemd-analyze"), "security", "--offline=yes", units / unit)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert found
    assert float(found[1]) <= EXPOSURE_MAX


@pytest.mark.parametrize("name", ["dither-backup", "dither-publish"])
def test_a_timer_is_sound(name: str, units: Path) -> None:
    assert run(tool("systemd-analyze"), "verify", units / f"{name}.timer") == ""


@pytest.mark.parametrize("name", ["dither-backup", "dither-publish"])
def test_a_unit_of_a_timer_that_fails_is_told(name: str) -> None:
    (told,) = re.findall(r"^OnFailure=(\S+)@%n\.service$", (DEPLOY / f"systemd/{name}.service").read_text(), re.M)
    assert (DEPLOY / "systemd" / f"{told}@.service").exists()


def test_pages_start_and_stop_units_that_there_are() -> None:
    there = {"nginx", *(path.name.removesuffix(".service") for path in (DEPLOY / "systemd").iterdir())}
    lines = "\n".join(path.read_text(encoding="utf-8") for path in DEPLOY.glob("*.md"))
    named = re.findall(r"systemctl (?:start|stop|restart|reload|status|enable --now) ([\w. -]+)", lines)
    assert len(named) > 6
    assert {unit for units in named for unit in units.split()} <= there


def test_a_misspelt_line_of_a_unit_would_be_seen(units: Path) -> None:
    unit = units / "dither-serve.service"
    unit.write_text(unit.read_text().replace("NoNewPrivileges", "NoNewPriviliges"))
    assert "Unknown key" in run(tool("systemd-analyze"), "verify", unit)


def test_nginx_takes_its_file(tmp_path: Path) -> None:
    made = certificate(tmp_path, "telemetry.example.org")
    text = (DEPLOY / "proxy" / "nginx.conf").read_text(encoding="utf-8")
    text = text.replace("/etc/ssl/dither/fullchain.pem", str(made.certificate))
    text = text.replace("/etc/ssl/dither/privkey.pem", str(made.key))
    (tmp_path / "nginx.conf").write_text(text)
    pid = f"pid {tmp_path}/nginx.pid;"
    assert "test is successful" in run(tool("nginx"), "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf", "-g", pid)


def test_caddy_takes_its_file(tmp_path: Path) -> None:
    said = run(tool("caddy"), "validate", "--adapter", "caddyfile", "--config", DEPLOY / "proxy" / "Caddyfile")
    assert "Valid configuration" in said
    assert '"warn"' not in said


def test_containers_may_do_no_more_than_they_must() -> None:
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["read_only"] is True, name
        assert "no-new-privileges:true" in service["security_opt"], name
        if service.get("image", "").startswith("dither"):
            assert service["user"] == "10001:10001"
            assert "outside" not in service["networks"]
    assert set(SERVICES["proxy"]["ports"]) == {"80:80", "443:443", "443:443/udp"}
    assert SERVICES["prometheus"]["ports"] == ["127.0.0.1:9090:9090"]
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["proxy", "prometheus"]


def test_no_container_is_given_the_address_that_is_the_proxys() -> None:
    (network,) = COMPOSE["networks"]["inside"]["ipam"]["config"]
    fixed = ip_address(SERVICES["proxy"]["networks"]["inside"]["ipv4_address"])
    assert fixed in ip_network(network["subnet"])
    assert fixed not in ip_network(network["ip_range"])
    assert ip_network(SERVICES["api"]["environment"]["DITHER_TRUSTED_PROXY"]) == ip_network(f"{fixed}/32")


def test_images_have_versions() -> None:
    for name, service in SERVICES.items():
        assert re.search(r":v?\d|:\$\{DITHER_VERSION:-\d", service["image"]), name


def test_the_files_that_containers_mount_are_there() -> None:
    own = {"./metrics.toml", "./backups"}
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.rpartition(":/")[0].removeprefix("${DITHER_METRICS:-").removesuffix("}")
            if source.startswith(".") and source not in own:
                assert (DEPLOY / "docker" / source).exists(), volume


# Kubernetes.


def pods() -> dict[str, dict[str, Any]]:
    """Return what each workload has of its pods."""
    found = {}
    for each in CLUSTER:
        spec = each.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template:
            found[each["metadata"]["name"]] = template["spec"]
    return found


def containers() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return each container with its pod."""
    return [(pod, each) for pod in pods().values() for each in (*pod.get("initContainers", ()), *pod["containers"])]


@pytest.mark.parametrize("version", thinned(["1.31", "latest"], 1))
def test_kubernetes_takes_the_file_and_would_see_a_misspelt_line(version: str) -> None:
    import kubernetes_validate  # here, for it compiles grammars for seconds, in each process that collects

    version = kubernetes_validate.latest_version() if version == "latest" else version
    for each in CLUSTER:
        kubernetes_validate.validate(each, version, strict=True)
    (api,) = (each for each in CLUSTER if each["kind"] == "Deployment" and each["metadata"]["name"] == "api")
    spoiled = json.loads(json.dumps(api).replace("readinessProbe", "readynessProbe"))
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(spoiled, version, strict=True)


def test_the_pages_commands_make_all_that_pods_ask_for_and_name_what_there_is() -> None:
    """No cluster is started: what each command of kubectl says is held against the file."""
    page = (DEPLOY / "README.md").read_text(encoding="utf-8")
    part = page.partition("\n## Kubernetes\n")[2].partition("\n## ")[0]
    lines = re.findall(r"```sh\n(.*?)```", part, re.DOTALL)[0].splitlines()
    there = {f"{each['kind']}/{each['metadata']['name']}".lower(): each for each in CLUSTER}
    made = {each["metadata"]["name"]: set(each["data"]) for each in CLUSTER if each["kind"] == "ConfigMap"}
    composed = page.partition("\n## Containers\n")[2].partition("\n## ")[0]
    secrets = set(re.findall(r"> secrets/(\w+)$", composed, re.MULTILINE))
    rest = []
    for line in lines:
        words = shlex.split(line.removeprefix("kubectl ").removeprefix("--namespace dither "))
        if words[:2] not in (["create", "configmap"], ["create", "secret"]):
            rest.append(words)
            continue
        files = [words[at + 1] for at, word in enumerate(words) if word == "--from-file"]
        kept = [file for file in files if file not in ("docker/metrics.toml", "docker/secrets")]
        assert all((DEPLOY / file).is_file() for file in kept), line
        name = words[3] if words[2] == "generic" else words[2]
        made[name] = secrets if files == ["docker/secrets"] else {Path(file).name for file in files}
    create, apply, wait, logs, execute = rest
    assert create == ["create", "namespace", "dither"]
    assert apply == ["apply", "--filename", "kubernetes/dither.yaml"]
    assert wait[:2] == ["wait", "--for=condition=complete"]
    assert {wait[2], logs[1], execute[1]} == {"job/init", "deployment/api"} <= there.keys()
    assert execute[2:4] == ["--", "dither"]
    run(tool("dither"), *execute[4:], "--help")
    for pod, container in containers():
        assert {each["configMapRef"]["name"] for each in container.get("envFrom", ())} <= made.keys()
        for volume in pod["volumes"]:
            asked = volume.get("secret", {})
            assert {item["key"] for item in asked.get("items", ())} <= made[asked.get("secretName", "dither")], volume
            assert volume.get("configMap", {}).get("name", "redis") in made, volume
        read = {Path(word).name for word in container["args"] if word.startswith("/etc/")}
        assert read <= made["registry"] | made["redis"], read


def test_pods_run_what_containers_run() -> None:
    assert pods().keys() == SERVICES.keys() - {"proxy", "prometheus"}
    for name, pod in pods().items():
        service, every = SERVICES[name], [*pod.get("initContainers", ()), *pod["containers"]]
        container, later = every[0], every[1:]
        assert [each["args"][:2] for each in later] == ([["backup", "verify"]] if name == "backup" else [])
        said = [part.replace("/run/secrets/redis/", "/run/secrets/") for part in container["args"]]
        assert said[: len(service["command"])] == service["command"]
        assert container["image"] == service["image"].replace("${DITHER_VERSION:-0.1.0}", "0.1.0")
        grace = service.get("stop_grace_period", "30s")
        assert pod.get("terminationGracePeriodSeconds", 30) == int(grace.removesuffix("s"))


def test_pods_may_do_no_more_than_they_must() -> None:
    for pod, container in containers():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["enableServiceLinks"] is False  # DITHER_... of a service would be taken for a setting
        assert pod["automountServiceAccountToken"] is False
        confined = container["securityContext"]
        assert confined["readOnlyRootFilesystem"]
        assert confined["capabilities"] == {"drop": ["ALL"]}
        assert confined["allowPrivilegeEscalation"] is False
        assert "memory" in container["resources"]["limits"]
        assert {mount["name"] for mount in container["volumeMounts"]} <= {
            volume["name"] for volume in [*pod["volumes"], {"name": "data"}]
        }


def test_a_pod_is_ended_for_hanging_and_gets_no_uploads_when_it_could_not_store_them() -> None:
    (api,) = pods()["api"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in api["ports"]}
    assert api["args"][-1] == f"0.0.0.0:{ports['health']}"
    for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert api[probe]["httpGet"] == {"path": path, "port": "health"}


def test_settings_of_the_cluster_are_dithers() -> None:
    (settings,) = (each["data"] for each in CLUSTER if each["kind"] == "ConfigMap")
    page = (DEPLOY / "settings.md").read_text(encoding="utf-8")
    for name in settings:
        assert f"`{name}`" in page


# Alerts.


def test_prometheus_takes_its_file_and_the_alerts() -> None:
    said = run(tool("promtool"), "check", "config", DEPLOY / "monitoring" / "prometheus.yaml")
    assert f"{len(alerts())} rules found" in said


def test_prometheus_takes_the_file_for_containers(tmp_path: Path) -> None:
    for file in ("docker/prometheus.yaml", "monitoring/alerts.yaml"):  # beside each other, as in its container
        shutil.copy(DEPLOY / file, tmp_path)
    assert f"{len(alerts())} rules found" in run(tool("promtool"), "check", "config", tmp_path / "prometheus.yaml")


def test_alerts_fire_where_something_is_wrong_and_only_there() -> None:
    for file in ("alerts.test.yaml", "moves.test.yaml"):
        assert "SUCCESS" in run(tool("promtool"), "test", "rules", Path(__file__).with_name(file))


def alerts() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_each_alert_has_its_part_of_the_page() -> None:
    page = (DEPLOY / "alerts.md").read_text(encoding="utf-8")
    parts = {part.partition("\n")[0]: part for part in page.split("\n## ")[1:]}
    assert list(parts) == list(alerts())
    for name, rule in alerts().items():
        assert rule["annotations"]["page"] == f"alerts.md#{name.lower()}"
        assert f"`{rule['labels']['severity']}`, after {rule['for']}. " in parts[name]
        assert "- First look: " in parts[name]
        assert "- Then: " in parts[name]


@contextmanager
def prometheus(directory: Path, target: str) -> Iterator[Callable[..., Any]]:
    """Run a Prometheus with the files of deploy/, which reads a listener each second; yield what asks its API."""
    text = (DEPLOY / "monitoring" / "prometheus.yaml").read_text(encoding="utf-8")
    (directory / "prometheus.yaml").write_text(text.replace("127.0.0.1:8081", target).replace("30s", "1s"))
    shutil.copy(DEPLOY / "monitoring" / "alerts.yaml", directory)
    place = f"127.0.0.1:{free_port()}"
    command = [
        tool("prometheus"),
        "--config.file=prometheus.yaml",
        "--storage.tsdb.path=data",  # Debian's own default is one place for all
        f"--web.listen-address={place}",
        "--log.level=error",
    ]

    def ask(path: str, **query: str) -> Any:
        answer = requests.get(f"http://{place}/api/v1/{path}", params=query, timeout=30).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def is_ready() -> bool:
        with suppress(requests.ConnectionError):
            return requests.get(f"http://{place}/-/ready", timeout=30).status_code == 200
        return False

    process = subprocess.Popen(command, cwd=directory)
    try:
        wait_until(is_ready)
        yield ask
    finally:
        process.terminate()
        process.wait()


def selectors(query: str) -> list[str]:
    """Return what a query reads: the names of dither's metrics, each with the braces behind it."""
    return re.findall(r"dither_\w+(?:{[^}]*})?", query)


def labels_in(text: str) -> set[str]:
    """Return the labels that a query, a legend or an annotation names."""
    grouped = ",".join(re.findall(r"by \(([^)]*)\)", text))
    named = re.findall(r"\$labels\.(\w+)|{{(\w+)}}|(\w+)=~?\"", text)
    return {*re.findall(r"\w+", grouped), *(label for found in named for label in found if label)}


def test_a_prometheus_has_rows_for_each_query_with_every_label_that_is_named(tmp_path: Path) -> None:
    """Those of the dashboard and of alerts, of a server that counted nothing yet: a count of zero is a row.

    A Redis tells of memory in place of a disk, in rows of the same kind.
    """
    dashboard = json.loads((DEPLOY / "monitoring" / "grafana.json").read_text(encoding="utf-8"))
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    (instance,) = (each for each in dashboard["templating"]["list"] if each["name"] == "instance")
    lists, label = re.findall(r"\w+", instance["query"]["query"])[1:]

    def as_asked(query: str) -> str:
        return query.replace("$instance", instance["allValue"]).replace("dither_memory_", "dither_disk_")

    drawn = [(as_asked(each["expr"]).removesuffix(" > 0"), labels_in(each["legendFormat"])) for each in targets]
    texts = [(each["expr"], each["legendFormat"]) for each in targets]
    texts += [(each["expr"], *each["annotations"].values()) for each in alerts().values()]
    read = [(one, labels_in(" ".join(each))) for each in texts for one in selectors(as_asked(each[0]))]
    assert len({one.partition("{")[0] for one, _ in read}) > 15
    assert {"check", "instance", "le", "limit", "problem", "reason"} <= set().union(*(labels for _, labels in read))
    with one_machine(tmp_path / "machine", REGISTRY_TEXT) as cluster:
        assert dither("backup", tmp_path / "backup", "--data", cluster.data).returncode == 0
        target = cluster.health[0].removeprefix("http://")
        with prometheus(tmp_path, target) as ask:
            for query, labels in drawn + read:
                wait_until(lambda: ask("query", query=query)["result"], what=query)  # noqa: B023
                for row in ask("query", query=query)["result"]:
                    assert labels <= row["metric"].keys(), query
            assert ask(f"label/{label}/values", **{"match[]": lists}) == [target]
            rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
            assert {rule["name"]: rule.get("lastError", "") for rule in rules} == dict.fromkeys(alerts(), "")
