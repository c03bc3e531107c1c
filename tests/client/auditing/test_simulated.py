"""A simulated device takes nothing over from the one that ended before it but its connection."""

from dither.auditing.simulated import Simulated
from tests.support.audits import EVERY, of_metric, seeded


def test_a_device_that_follows_another_is_as_new_as_any() -> None:
    asked = of_metric(EVERY["flag again"])

    def live() -> tuple[object, list[bytes], list[int]]:
        with Simulated(asked, seeded(1)) as simulated:
            device, bodies, counts = simulated.device, list[bytes](), [simulated.device.waiting()]
            for answer in (True, False):
                device.record(asked.metrics["asked"], answer)
                bodies += (upload.body for upload in simulated.send())
                simulated.travel(1)
            counts += [*device.counters().values(), *device.spent().values()]
            return device._file, bodies, counts

    first, second = live(), live()
    assert first == second  # of one connection
    with Simulated(asked, seeded(2)):  # it has taken that one
        other = live()
    assert other[0] is not first[0]
    assert other[1:] == first[1:]
    assert other[2][0] == 0 < len(other[1])
