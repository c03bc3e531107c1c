"""google/rappor's reports, sent to a real aggregator."""

import json
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from dither.sending.transport import Answer, Outcome
from dither_aggregator.google_rappor import (
    Params,
    Report,
    import_reports,
    plan_for,
    read_params,
    read_reports,
    sum_reports,
)
from dither_aggregator.ingest.service import Service
from dither_shared.errors import DitherError
from dither_shared.registry import utc_today
from tests.support.aggregators import aggregator, dither
from tests.support.keys import write_key
from tests.support.registries import registry, registry_text

TEXT = {
    "kind": "text",
    "epsilon": "1.074286",
    "epsilon_permanent": "4.39445",
    "color": 'parameter_set = "google_default"',
    "expires": utc_today() + timedelta(days=90),
}
ASKED = registry(**TEXT)
PARAMS = Params(16, 2, 64, Fraction(1, 2), Fraction(3, 4), Fraction(1, 2))


def reports(count: int, seed: int = 1) -> list[Report]:
    rng = random.Random(seed)
    return [Report(place, f"c{place}", rng.randrange(64), rng.getrandbits(16)) for place in range(count)]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with params, reports (two of them spoiled) and a registry."""
    (tmp_path / "params.csv").write_text("k,h,m,p,q,f\n16,2,64,0.5,0.75,0.5\n", encoding="utf-8")
    rows = [f"{report.client},{report.cohort},{report.bits:016b}" for report in reports(5_000)]
    rows[10] = "c10,64,0000000000000000"
    rows[20] = "c20,1,00000000000000x0"
    (tmp_path / "reports.csv").write_text("client,cohort,irr\n" + "\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "metrics.toml").write_text(registry_text(**TEXT), encoding="utf-8")  # type: ignore[arg-type]
    return tmp_path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Service]]:
    with aggregator(ASKED, tmp_path / "data") as pair:
        yield pair


def run(files: Path, served: tuple[str, Service], *more: str, key: str = "") -> tuple[int, str, str]:
    url, service = served
    done = dither(
        *("rappor", "import-reports", files / "reports.csv", "--params", files / "params.csv"),
        *("--registry", files / "metrics.toml", "--metric", "color"),
        *("--endpoint", url, "--key", key or write_key(service.store)),
        *more,
    )
    return done.returncode, done.stdout, done.stderr


def test_reports_are_counted_once_however_often_they_are_sent(files: Path, served: tuple[str, Service]) -> None:
    code, out, err = run(files, served)
    assert (code, out) == (1, "4,998 reports counted, 0 had been counted before, 2 refused\n")
    assert "line 12: refused: cohort must be" in err
    assert "line 22: refused: irr must be of 0 and 1" in err
    assert "4,998 of 4,998 reports" in err
    again = json.loads(run(files, served, "--json")[1])
    assert again == {"counted": 0, "counted_before": 4_998, "refused": 2}
    store = served[1].store
    while store.fold(0) or store.backlog():
        pass
    (row,) = store.ledger()
    assert (row.accepted, row.folded) == (4_998, 4_998)
    params = read_params(files / "params.csv")
    kept = [report for report in read_reports(files / "reports.csv", params) if isinstance(report, Report)]
    tally = store.tally(ASKED.metrics["color"].plan, store.today())
    assert (tally.counts.reshape(64, 17) == sum_reports(kept, params)).all()


def test_other_parameters_are_refused(files: Path, served: tuple[str, Service]) -> None:
    (files / "params.csv").write_text("k,h,m,p,q,f\n16,2,64,0.25,0.75,0.5\n", encoding="utf-8")
    code, out, err = run(files, served)
    assert (code, out) == (2, "")
    assert "the file's parameters must be those of metric color, got threshold_irr_0" in err
    assert served[1].store.ledger() == []


def test_what_cannot_be_imported_is_refused_in_words(files: Path, served: tuple[str, Service]) -> None:
    for metric, message in [("dork", "no metric 'dork'"), ("dark", "must be of kind text, got flag")]:
        with pytest.raises(DitherError, match=message):
            plan_for(ASKED, metric, PARAMS)
    with pytest.raises(DitherError, match="cannot be counted together"):
        plan_for(ASKED, "color", Params(16, 2, 64, Fraction(1, 2), Fraction(3, 4), Fraction(0)))
    code, out, err = run(files, served, key="wrong")
    assert (code, out) == (2, "")
    assert "the aggregator did not take the key (401 key-wrong); `dither keys create write`" in err


class Unreliable:
    """An aggregator that answers some attempts only, and remembers what it was sent."""

    def __init__(self, fails: int) -> None:
        self.fails = fails
        self.bodies: dict[str, bytes] = {}
        self.reports = 0

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        stands()
        if self.fails:
            self.fails -= 1
            return Answer(Outcome.KEPT, "no answer")
        duplicate = self.bodies.get(upload_id) == body
        if not duplicate:
            assert upload_id not in self.bodies
            self.reports += sum(len(group["reports"]) for group in json.loads(body)["groups"])
        self.bodies[upload_id] = body
        return Answer(Outcome.ACCEPTED, "accepted", duplicate=duplicate)

    def idle(self) -> None:
        """Nothing is kept open."""


def test_an_attempt_that_fails_is_made_again_with_the_same_bytes() -> None:
    transport = Unreliable(fails=3)
    slept: list[float] = []
    imported = import_reports(reports(100), plan_for(ASKED, "color", PARAMS), transport, sleep=slept.append)
    assert (imported.counted, imported.counted_before, transport.reports) == (100, 0, 100)
    assert slept == [2.0, 4.0, 6.0]


def test_an_aggregator_that_is_away_for_good_is_said() -> None:
    with pytest.raises(DitherError, match=r"did not take an upload \(no answer\); run it again"):
        import_reports(reports(5), plan_for(ASKED, "color", PARAMS), Unreliable(fails=99), sleep=lambda _: None)


@pytest.mark.parametrize("count", [0, 1, 2_000, 2_001, 30_000])
def test_uploads_keep_within_the_wires_limits(count: int) -> None:
    transport = Unreliable(fails=0)
    imported = import_reports(reports(count), plan_for(ASKED, "color", PARAMS), transport)
    assert (imported.counted, transport.reports) == (count, count)
    for body in transport.bodies.values():
        groups = json.loads(body)["groups"]
        assert len(groups) <= 50
        assert sum(len(group["reports"]) for group in groups) <= 2_000
        assert len(body) <= 256 * 1024


def test_another_file_has_other_ids_and_the_same_one_the_same() -> None:
    plan = plan_for(ASKED, "color", PARAMS)
    transport = Unreliable(fails=0)
    import_reports(reports(3_000), plan, transport)
    assert import_reports(reports(3_000), plan, transport).counted_before == 3_000
    assert import_reports(reports(3_000, seed=2), plan, transport).counted_before == 0
    assert transport.reports == 6_000
