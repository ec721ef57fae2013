"""How long an import of the extension takes beyond that of the driver, in new processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.durable.place import Place
from benchmarks.durable.report import Line, line
from benchmarks.durable.sizes import Sizes
from benchmarks.memory import REPOSITORY
from benchmarks.pairs import Pair, by_difference
from benchmarks.report import Target
from benchmarks.sizes import TIMEOUT

BEYOND = Target("ms more", 150)

PROGRAM = """
import time
began = time.perf_counter()
import pymongo
driver = time.perf_counter()
import durabl_ext
print([(time.perf_counter() - began) * 1000, (driver - began) * 1000])
"""


def imports(place: Place, sizes: Sizes) -> Iterator[Line]:
    """Takes the pairs, each in one process; the first is left out, for it may have to compile the modules."""
    pairs = [_imported() for _ in range(1 + sizes.pairs["imports"][0])][1:]
    yield line("import durabl_ext", "", "ms", "import pymongo", pairs, BEYOND, compare=by_difference, better="less")


def _imported() -> Pair:
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=TIMEOUT
    )
    with_ours, driver = json.loads(program.stdout)
    return Pair([with_ours], [driver])
