"""The deployment of deploy/docker, as real processes under load: every part is restarted, and nothing is lost."""

from collections.abc import Iterator

import pytest
import requests

from tests.deploy.composed import BROKER, DATA, NAME, PROXIES, Composed, composed
from tests.faults.aggregator.load import REGISTRY, REGISTRY_TEXT, Load, check_all
from tests.faults.aggregator.oracle import Oracle

pytestmark = pytest.mark.slow

DEVICES, PAUSE_S = 6, 0.4
"""Together below the 20 uploads a second that nginx lets through from one address."""
UPLOADS = 6


def restart(cluster: Composed, part: str) -> None:
    """Restart a part as an operator does, and wait until it is there again."""
    if part in cluster.processes:
        assert cluster[part].stop() == 0
        cluster[part].start()
    elif part in (DATA, BROKER):
        assert cluster.others[part].end() == 0
        cluster.start_redis(part)
    else:
        assert cluster.others[part].end() == 0
        cluster.start_proxy(part)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    with composed(tmp_path_factory.mktemp("composed"), REGISTRY_TEXT) as made:
        yield made


def ask(cluster: Composed, path: str, proxy: int = 0, key: str = "") -> requests.Response:
    headers = {"Host": NAME} | ({"Authorization": f"Bearer {key}"} if key else {})
    return requests.get(
        cluster.urls[proxy] + path,
        headers=headers,
        verify=str(cluster.certificate.authority),
        allow_redirects=False,
        timeout=30,
    )


@pytest.mark.parametrize("proxy", [0, 1], ids=PROXIES)
def test_nobody_reads_without_a_key_and_everybody_with_one_does(cluster: Composed, proxy: int) -> None:
    assert ask(cluster, "/v1/metrics", proxy).status_code == 401
    assert ask(cluster, "/", proxy).status_code in (302, 303)
    read = ask(cluster, "/v1/metrics", proxy, cluster.keys["read"])
    assert read.status_code == 200
    assert read.headers["Strict-Transport-Security"].startswith("max-age=")
    assert ask(cluster, "/v1/metrics", proxy, cluster.keys["write"]).status_code == 403


@pytest.mark.parametrize("path", ["/readyz", "/metrics", "/livez", "/version"])
def test_what_is_for_monitors_is_not_behind_the_proxy(cluster: Composed, path: str) -> None:
    assert ask(cluster, path, key=cluster.keys["read"]).status_code == 404
    assert requests.get(cluster.health[0] + path, timeout=30).status_code == 200


def test_every_part_is_restarted_under_load_and_nothing_is_lost(cluster: Composed) -> None:
    oracle = Oracle("deployed", REGISTRY)
    with Load(oracle, cluster, DEVICES, PAUSE_S) as load:
        for part in ("worker", "beat", "api", DATA, BROKER, *PROXIES):
            restart(cluster, part)
            load.wait_for(UPLOADS)
    assert load.answers.keys() <= {0, 202, 410, 422, 503}
    check_all(oracle, cluster)
