"""How much a run measures: pairs of samples of each measure, and what a sample holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CALLERS = 64
"""Threads, or tasks, that enqueue at once."""

CLAIMED = 16
"""Jobs that one claim asks for where claims themselves are timed."""

BEATING = 256
"""Runs whose heartbeats are counted."""

LINES = 100
"""Lines that a job logs."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is taken.

    Attributes:
        pairs: Of each measure the pairs of samples, and the seconds they may take; at least five are taken in any case.
        jobs: By the number of slots, the backlog that a worker works off: about a second at the floor.
        shared: The backlog of several workers.
        calls: Enqueues of each caller.
        batches: Batches of ``batch`` jobs that are enqueued.
        batch: Jobs in each.
        pickups: Jobs that come one at a time.
        small: Queued jobs in the small backlog.
        large: Queued jobs in the large one.
        ended: Jobs that have ended in the third one.
        claims: Claims in a sample.
        worked: Jobs that a worker works on before its memory is taken.
        beats: Intervals for which heartbeats are counted.
        logging: Jobs that log.
        peer_jobs: The backlog of a peer.
        peer_pickups: Jobs that come one at a time, for a peer.
    """

    pairs: Mapping[str, tuple[int, float]]
    jobs: Mapping[int, int]
    shared: int
    calls: int
    batches: int
    batch: int
    pickups: int
    small: int
    large: int
    ended: int
    claims: int
    worked: int
    beats: int
    logging: int
    peer_jobs: int
    peer_pickups: int


FULL = Sizes(
    pairs={
        "throughput": (7, 20),
        "floors": (5, 5),
        "enqueue": (7, 10),
        "pickup": (14, 20),
        "backlog": (40, 12),
        "workers": (7, 20),
        "heartbeats": (5, 15),
        "memory": (5, 15),
        "imports": (9, 10),
        "logs": (5, 15),
        "peers": (5, 20),
    },
    jobs={16: 4_000, 64: 8_000, 256: 12_000},
    shared=4_000,
    calls=40,
    batches=20,
    batch=1_000,
    pickups=25,
    small=1_000,
    large=1_000_000,
    ended=200_000,
    claims=10,
    worked=2_000,
    beats=4,
    logging=48,
    peer_jobs=1_500,
    peer_pickups=20,
)
"""Less than ten minutes, on two cores that others use too."""

QUICK = Sizes(
    pairs=dict.fromkeys(FULL.pairs, (1, 0.0)),
    jobs={16: 300, 64: 500, 256: 800},
    shared=800,
    calls=5,
    batches=2,
    batch=200,
    pickups=10,
    small=1_000,
    large=5_000,
    ended=2_000,
    claims=5,
    worked=300,
    beats=2,
    logging=16,
    peer_jobs=50,
    peer_pickups=3,
)
"""Whether it works, rather than how fast it is."""
