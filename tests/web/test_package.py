"""The npm package: what is in it, in a plain page, and in an app that Vite builds with React."""

import json
import re
import shutil
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dither_aggregator.web.request_limits import Limits
from tests.aggregator.test_request_admission import taking
from tests.support.firefox import AnyPage
from tests.support.keys import write_key
from tests.support.node import ROOT
from tests.support.registries import registry_text
from tests.support.waiting import wait_until
from tests.support.web_pages import WEB, compiled, node, site
from tests.web.test_browsers import DELIVER

pytestmark = pytest.mark.slow
IN_ONE_BROWSER = pytest.mark.parametrize("page", ["chromium"], indirect=True)
"""test_browsers.py sees what differs between browsers."""

VITE = Path(__file__).parent / "vite"
TUTORIAL = WEB / "tutorial.md"


def unpack(package: Path, into: Path) -> None:
    """Install the package, which needs no other."""
    into.parent.mkdir(exist_ok=True)
    with tarfile.open(package) as tarball:
        tarball.extractall(into.parent, filter="data")
    (into.parent / "package").rename(into)


def test_it_has_modules_types_licence_and_nothing_of_the_workshop(package: Path) -> None:
    with tarfile.open(package) as tarball:
        names = {name.removeprefix("package/") for name in tarball.getnames()}
        manifest: dict[str, Any] = json.load(tarball.extractfile("package/package.json"))  # type: ignore[arg-type]
    assert {"LICENSE", "NOTICE", "README.md", "package.json", "dist/index.js", "dist/index.d.ts"} <= names
    assert all(re.fullmatch(r"[A-Z]+(\.md)?|package\.json|dist/[\w/-]+\.(js|js\.map|d\.ts)", name) for name in names)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (manifest["version"], manifest["license"]) == (project["version"], project["license"])
    assert manifest["publishConfig"] == {"provenance": True}
    assert not manifest.keys() & {"dependencies", "peerDependencies", "optionalDependencies"}
    assert not {"install", "postinstall", "prepare"} & manifest["scripts"].keys()
    for each in manifest["exports"].values():
        assert {path.removeprefix("./") for path in each.values()} <= names


def test_its_types_stand_by_themselves(package: Path, tmp_path: Path) -> None:
    unpack(package, tmp_path / "node_modules" / "dither-web")
    (tmp_path / "app.ts").write_text(
        """import { start, type Status } from "dither-web";
const telemetry = start<{ theme: "dark" | "light" }>({ registry: {}, endpoint: "https://a.example", key: "k" });
telemetry.theme.record("dark");
// @ts-expect-error: it is not listed
telemetry.theme.record("blue");
export const status: Promise<Status> = telemetry.status();
""",
        encoding="utf-8",
    )
    options = ["--strict", "--noEmit", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom", "--types"]
    node(WEB / "node_modules" / "typescript" / "bin" / "tsc", *options, "", "app.ts", cwd=tmp_path)


@IN_ONE_BROWSER
def test_a_plain_page_loads_it_as_it_is(package: Path, page: AnyPage, tmp_path: Path) -> None:
    pages, reaches = tmp_path / "site", list[str]()
    pages.mkdir()
    unpack(package, pages / "dither-web")
    (pages / "metrics.json").write_text(compiled(registry_text()), encoding="utf-8")
    with site(pages, reaches) as url, taking(tmp_path / "store", Limits(origins=(url,))) as to:
        reaches.append(to.url)
        page.goto(url)
        status = page.evaluate(
            """async ({ endpoint, key }) => {
                const { start } = await import("/dither-web/dist/index.js");
                const registry = await (await fetch("/metrics.json")).json();
                const telemetry = start({ registry, endpoint, key, consent: true });
                telemetry.color.record("red");
                await telemetry.flush(10);
                return telemetry.status();
            }""",
            {"endpoint": to.url, "key": write_key(to.service.store)},
        )
        assert (status["waiting"], status["counts"]) == (0, {"accepted": 1})
        assert sum(row.accepted for row in to.service.store.ledger()) == 1


@IN_ONE_BROWSER
def test_an_app_of_react_and_vite_records_by_the_hook_of_the_tutorial(
    package: Path, page: AnyPage, tmp_path: Path
) -> None:
    app, reaches = tmp_path / "app", list[str]()
    shutil.copytree(VITE, app, ignore=shutil.ignore_patterns("node_modules"))
    shutil.copytree(VITE / "node_modules", app / "node_modules", symlinks=True)
    unpack(package, app / "node_modules" / "dither-web")
    (hook,) = re.findall(r"```js\n(// useAnswer\.js\n.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)
    (app / "useAnswer.js").write_text(hook, encoding="utf-8")
    (app / "metrics.json").write_text(compiled(registry_text()), encoding="utf-8")
    (app / "dist").mkdir()
    with site(app / "dist", reaches) as url, taking(tmp_path / "store", Limits(origins=(url,))) as to:
        reaches.append(to.url)
        options = f"endpoint: {json.dumps(to.url)}, key: {json.dumps(write_key(to.service.store))}, consent: true"
        (app / "telemetry.js").write_text(
            f'import {{ start }} from "dither-web";\nimport registry from "./metrics.json";\n'
            f"export const telemetry = start({{ registry, {options} }});\n",
            encoding="utf-8",
        )
        node(app / "node_modules" / "vite" / "bin" / "vite.js", "build", "--logLevel", "warn", cwd=app)
        page.goto(url)
        wait_until(lambda: page.evaluate("() => document.querySelector('button') !== null"))
        page.evaluate("() => document.querySelector('button').click()")
        wait_until(lambda: page.evaluate("() => telemetry.status().then(({ spent }) => spent.color > 0)"))
        assert page.evaluate(DELIVER) == {"waiting": 0, "accepted": 1}
        assert sum(row.accepted for row in to.service.store.ledger()) == 1
