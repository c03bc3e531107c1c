"""A simulated device takes nothing over from the one that ended before it but its connection."""

import subprocess
import sys

from dither.auditing.simulated import Simulated
from tests.support.aggregators import ENVIRONMENT
from tests.support.audits import EVERY, of_metric, seeded


def test_a_device_that_follows_another_is_as_new_as_any() -> None:
    asked = of_metric(EVERY["flag again"])

    def live() -> tuple[object, list[bytes], list[int]]:
        with Simulated(asked, seeded(1)) as simulated:
            device, bodies = simulated.device, list[bytes]()
            counts = [device.waiting(), *device._file.noted.values()]
            for answer in (True, False):
                device.record(asked.metrics["asked"], answer)
                bodies += (upload.body for upload in simulated.send())
                simulated.travel(1)
            counts += [*device.counters().values(), *device.spent().values()]
            for answer in (True, False):  # the second is one too many, which is noted and written by nobody
                device.record(asked.metrics["asked"], answer)
            assert device._file.noted
            return device._file, bodies, counts

    first, second = live(), live()
    assert first == second  # of one connection
    with Simulated(asked, seeded(2)):  # it has taken that one
        other = live()
    assert other[0] is not first[0]
    assert other[1:] == first[1:]
    assert other[2][0] == 0 < len(other[1])


def test_a_forked_process_takes_nothing_over_of_its_parents() -> None:
    code = (
        "import os\n"
        "from dither.auditing.simulated import Simulated\n"
        "from tests.support.audits import EVERY, of_metric, seeded\n"
        "asked = of_metric(EVERY['flag again'])\n"
        "with Simulated(asked, seeded(1)): pass\n"
        "child = os.fork()\n"
        "with Simulated(asked, seeded(2)) as simulated: assert simulated.device.waiting() == 0\n"
        "assert child == 0 or os.waitpid(child, 0)[1] == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, stderr=subprocess.PIPE, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
