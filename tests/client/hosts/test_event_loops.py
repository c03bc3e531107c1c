"""An event loop goes on while its reports are recorded and sent."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

import dither
from dither.telemetry import Telemetry
from tests.support.registries import registry
from tests.support.servers import Reply, accepted, scripted


@pytest.mark.slow
@pytest.mark.parametrize("in_a_thread", [True, False])
def test_an_event_loop_goes_on_while_its_reports_are_recorded_and_sent(tmp_path: Path, in_a_thread: bool) -> None:
    """And does not where flush is called on the loop: what is counted can be seen."""

    async def live(device: Telemetry) -> tuple[int, int]:
        """Return how often the loop came round while reports were recorded, and while they were sent."""
        rounds = 0

        async def go_round() -> None:
            nonlocal rounds
            while True:
                await asyncio.sleep(0)
                rounds += 1

        async def record() -> None:
            for _ in range(20):
                device.color.record("red")
                device.dark.record(True)
                await asyncio.sleep(0)

        going_round = asyncio.create_task(go_round())
        await asyncio.gather(*[record() for _ in range(10)])
        recorded = rounds
        if in_a_thread:
            assert (await asyncio.to_thread(device.flush, 20)).sent == 2
        else:
            device.flush(20)
        going_round.cancel()
        return recorded, rounds - recorded

    with scripted(Reply(body=accepted, delay_s=0.3)) as (url, requests_seen):
        with closing(dither.start(registry(), endpoint=url, key="k", data_dir=tmp_path, consent=True)) as device:
            recorded, sent = asyncio.run(live(device))
            assert device.status().counts == {"accepted": 2, "answered": 398}
        assert len(requests_seen) == 1
    assert recorded >= 20
    assert (sent > 20) == in_a_thread
