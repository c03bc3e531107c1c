"""Coverage-guided fuzzing of the upload parser: `python -m tests.fuzz.atheris_upload -max_total_time=60`.

Takes libFuzzer's options and directories of inputs; without a directory it starts from the pinned vectors and from
hostile uploads, in a directory of its own. An input is a byte that says whether the rest is in gzip, and the rest. An
input that breaks a property is left in the current directory, or where `-artifact_prefix=` says; to see it again, give
it in place of a directory.
"""

import json
import random
import subprocess
import sys
import tempfile
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

atheris: Any = import_module("atheris") if find_spec("atheris") else None  # needs clang where there is no wheel
WRITES_SEEDS = all(argument.startswith("-") for argument in sys.argv[1:])
"""Whether this process only writes the inputs to start from, for another one that fuzzes and is instrumented."""
if atheris and not WRITES_SEEDS:
    with atheris.instrument_imports(include=["dither_shared"]):
        import_module("dither_shared.wire.reading")

from tests.fuzz.hostile import GZIP, draw_document, encode, finder, hostile_uploads, mutate  # noqa: E402
from tests.fuzz.properties import REGISTRIES, check_inflated, check_upload  # noqa: E402

VECTORS = Path(__file__).parents[1] / "vectors" / "uploads.json"
PLANS = [metric.plan for asked in REGISTRIES for metric in asked.metrics.values()]
FIND_PLAN = finder(REGISTRIES)
INPUT_BYTES_MAX = 16 * 1024


def check(data: bytes) -> None:
    """Assert all properties of one input."""
    body: bytes | str = data[1:]
    if data[:1] == b"\x01":
        body = check_inflated(data[1:])
    if isinstance(body, bytes):
        check_upload(body, FIND_PLAN)


def change(data: bytes, max_size: int, seed: int) -> bytes:
    """Change an input as libFuzzer does, or by what we know of uploads."""
    rng = random.Random(seed)
    way = rng.randrange(4)
    if way == 0:
        changed = b"\x00" + encode(draw_document(rng, PLANS))
    elif way == 1:
        changed = data[:1] + mutate(rng, data[1:])
    else:
        changed = atheris.Mutate(data, len(data) + 64)
    return bytes(changed[:max_size])


def write_seeds(directory: Path) -> None:
    """Write the inputs to start from."""
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    groups = [{"v": 1, "upload": "A" * 22, "groups": [vector["group"]]} for vector in vectors["spoiled groups"]]
    bodies = [vector["body"].encode("latin-1") for kind in ("valid", "spoiled") for vector in vectors[kind]]
    inputs = [b"\x00" + body for body in (*bodies, *map(encode, groups))]
    for asked in REGISTRIES:
        hostile = islice(hostile_uploads(1, asked), 60)
        inputs += [(b"\x01" if headers == GZIP else b"\x00") + body for headers, body in hostile]
    for number, data in enumerate(inputs):
        if len(data) <= INPUT_BYTES_MAX:
            (directory / str(number)).write_bytes(data)


def main() -> int:
    """Fuzz until an option says stop or a property breaks."""
    if not atheris:
        print("atheris is not installed here: nothing was fuzzed")
        return 0
    if WRITES_SEEDS:
        with tempfile.TemporaryDirectory() as directory:  # in a process of its own: libFuzzer ends without cleaning up
            write_seeds(Path(directory))
            return subprocess.call([sys.executable, "-m", "tests.fuzz.atheris_upload", directory, *sys.argv[1:]])
    options = ["-print_final_stats=1", f"-max_len={INPUT_BYTES_MAX}", "-timeout=10", "-rss_limit_mb=1024"]
    atheris.Setup([sys.argv[0], *options, *sys.argv[1:]], check, custom_mutator=change)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
