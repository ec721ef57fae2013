"""One worker process beside one of Celery on its MongoDB transport, both with 16 slots and on the same server."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from benchmarks.durable.order import Order
from benchmarks.durable.pickup import Idle, enqueuing, idle_worker
from benchmarks.durable.place import Place
from benchmarks.durable.processes import Process
from benchmarks.durable.report import Line, line
from benchmarks.durable.sizes import Sizes
from benchmarks.durable.working import worked
from benchmarks.memory import REPOSITORY
from benchmarks.pairs import alternate, by_percentile
from benchmarks.sizes import SLOTS, Side

PEERS = REPOSITORY / ".venv-peers"
"""The environment that ``make bench`` makes for the peers; ``ready`` in it says that all of it could be installed."""


def peers(place: Place, sizes: Sizes) -> Iterator[Line]:
    """Takes the pairs, of jobs per second and of the pickup; none where Celery is not installed."""
    if not (PEERS / "ready").exists():
        click.echo(f"left out, as Celery is not installed in {PEERS.name}: `make {PEERS.name}/ready` does that")
        return

    def rate(side: Side) -> list[float]:
        if side == "ours":
            return [worked(place, "ours", "async", SLOTS, sizes.peer_jobs).rate]
        return [_celery_rate(place, sizes.peer_jobs)]

    def latency(side: Side) -> list[float]:
        return _ours_picked_up(place, sizes) if side == "ours" else _celery_picked_up(place, sizes)

    pairs = alternate(rate, *sizes.pairs["peers"], warm_up=False)
    yield line(f"throughput, {SLOTS} slots, peer", "async", "jobs/s", "Celery", pairs, None, better="more")
    pairs = alternate(latency, *sizes.pairs["peers"], warm_up=False)
    yield line("pickup p50, peer", "async", "ms", "Celery", pairs, None, compare=by_percentile(50), better="less")


def _ours_picked_up(place: Place, sizes: Sizes) -> list[float]:
    with place.collection() as name, idle_worker(place, "ours", "async", name) as worker:
        idle = Idle(worker, enqueuing(place, name))
        return [idle.pick_up() for _ in range(1 + sizes.peer_pickups)][1:]


def _celery_rate(place: Place, jobs: int) -> float:
    """Jobs per second out of a backlog, from the first call of the task to the last."""
    with _broker(place, calls=jobs) as order:
        with _celery("send", order) as sender:
            sender.next()
            sender.end()
        with _celery("work", order) as worker:
            worker.next()
            times = worker.next()
            worker.kill()
    return float((jobs - 1) / (times["last"] - times["first"]))


def _celery_picked_up(place: Place, sizes: Sizes) -> list[float]:
    """Milliseconds from the start of a send to the start of its task."""
    latencies = []
    with _broker(place, tells=True) as order, _celery("work", order) as worker, _celery("send", order) as sender:
        worker.next()
        sender.next()
        for _ in range(1 + sizes.peer_pickups):
            time.sleep(random.uniform(0.02, 0.04))
            sender.begin()
            began = sender.next()["began"]
            latencies.append(float(worker.next()["at"] - began) * 1_000)
        worker.kill()
    return latencies[1:]


@contextmanager
def _broker(place: Place, *, calls: int = 0, tells: bool = False) -> Iterator[Order]:
    """What Celery is to do, in a database of its own, since it names its collections itself; dropped in the end."""
    order = Order("loop", "sync", place.uri, f"{place.db.name}_celery", "", SLOTS, tells, calls)
    try:
        yield order
    finally:
        place.db.client.drop_database(order.database)


def _celery(what: str, order: Order) -> Process:
    python = [str(PEERS / "bin" / "python"), "-W", "ignore"]  # it warns of being run as root
    return Process([*python, "-m", "benchmarks.durable.celery_peer", what, order.to_argument()])
