"""`dither privacy --released`: what answers lose to somebody who sees published totals, and no report by itself."""

import json
from collections.abc import Sequence
from typing import Any

from dither_aggregator.accounting.blanket import DELTA, epsilon_of_device, law_of
from dither_shared.errors import ConfigurationError
from dither_shared.exact import from_micro
from dither_shared.registry import Metric, Registry
from dither_shared.releases import WINDOW_DAYS, reports_in

REPORTS = (1_000, 10_000, 100_000)
_LEGEND = f"""\
release   the epsilon of a release by its own noise: whether a device took part is hidden as well. It is that of a
          device that is added or taken away; other answers in place of a device's cost up to twice as much. It
          holds at publish_delta where the registry has one and the noise is Gaussian
wire      the epsilon of all reports of a device in a window, for whoever sees them one by one: of other answers
{" ".join(f"{n:>9,}" for n in REPORTS)}   the epsilon of the same answers by the order that a sum of so many honest
          reports does not have, at delta {DELTA}; "-" where there is no figure below that of the wire. It is for memos
          and for plans of several cells never told"""


def show(registry: Registry, metrics: Sequence[Metric], *, as_json: bool) -> None:
    """Print it for the metrics that are published."""
    told = [_of(registry, metric) for metric in metrics if metric.name in registry.published]
    if not told:
        raise ConfigurationError("none of these metrics is published: `publish` says so, in the registry")
    if as_json:
        print(json.dumps(told))
        return
    width = max(6, *(len(str(each["metric"])) for each in told))
    heads = "  ".join(f"{n:>9,}" for n in REPORTS)
    print(f"{'metric':{width}}  {'window':7}  {'reports':>7}  {'release':>7}  {'wire':>7}  {heads}")
    for each in told:
        hidden = "  ".join(f"{'-' if epsilon is None else f'{epsilon:.3g}':>9}" for _, epsilon in each["among"])
        print(
            f"{each['metric']:{width}}  {each['window']:7}  {each['reports']:>7}  {each['epsilon_release']:>7g}  "
            f"{each['epsilon_wire']:>7g}  {hidden}"
        )
    print(f"\n{_LEGEND}")


def _of(registry: Registry, metric: Metric) -> dict[str, Any]:
    publishing, law = registry.published[metric.name], law_of(metric.cells)
    reports = reports_in(WINDOW_DAYS[publishing.window], memoized=metric.memoized, reports=metric.charges)
    wire = from_micro(min(reports, metric.charges) * metric.charge)
    among = [(n, law and epsilon_of_device(law, n, reports)) for n in REPORTS]
    return {
        "metric": metric.name,
        "window": publishing.window,
        "reports": reports,
        "epsilon_release": from_micro(publishing.micro),
        "epsilon_wire": wire,
        "delta": float(DELTA),
        "among": among,
    }
