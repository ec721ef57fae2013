"""Three workers, a seed, and everything that may go wrong. By hand: ``python -m tests.proof.test_random SEED ...``, or
``--count N`` for as many as there is time for.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pymongo import MongoClient
from uuid6 import uuid7

from tests.proof.lives import live_through
from tests.proof.world import World
from tests.servers import QuickMongod

SEEDS = 600
"""In the suite; ``make soak`` lives through 2,000 more, from this one on."""
AT_ONCE = 50
"""So many share a collection and a line of the report."""

GROUPS = [range(first, first + AT_ONCE) for first in range(0, SEEDS, AT_ONCE)]


@pytest.mark.parametrize("seeds", GROUPS, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_whatever_three_workers_do_and_whatever_breaks_no_promise_is_broken(world: World, seeds: range) -> None:
    for seed in seeds:
        live_through(world, seed)


def test_a_seed_gives_the_same_history_each_time(world: World) -> None:
    for seed in range(5):
        live_through(world, seed)
        first = world.history.moments
        live_through(world, seed)
        assert world.history.moments == first


def main(arguments: list[str]) -> int:
    """Lives through the seeds that are asked for, and says which broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.test_random", description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, help="which schedules to run")
    parser.add_argument("--count", type=int, default=0, help="run so many besides, from --first on")
    parser.add_argument("--first", type=int, default=SEEDS, help="the first of these; by default none of the suite's")
    asked = parser.parse_args(arguments)
    with _server() as url, MongoClient[dict[str, Any]](url) as client:
        name = f"test_{uuid7().hex}"
        try:
            return _run(World(client[name].job), [*asked.seeds, *range(asked.first, asked.first + asked.count)])
        finally:
            client.drop_database(name)


@contextmanager
def _server() -> Iterator[str]:
    if given := os.environ.get("TEST_MONGO_URL"):
        yield given
    else:
        server = QuickMongod()
        with server:
            yield server.uri


def _run(world: World, seeds: Iterable[int]) -> int:
    broken, began = [], time.monotonic()
    for seed in seeds:
        try:
            live_through(world, seed)
        except Exception:
            traceback.print_exc()
            broken.append(seed)
    print(f"{time.monotonic() - began:.1f} s; seeds that broke a promise: {broken or 'none'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
