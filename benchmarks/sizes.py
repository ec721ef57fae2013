"""What a sample is of, and how much it holds: the same for both sides, sync and async."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Side = Literal["ours", "loop"]
Colour = Literal["sync", "async"]

ACTION = "send-mail"
DATA = {"to": "ada@example.org", "template": "welcome", "user": 4711}
SLOTS = 16
TIMEOUT = 120.0
"""Seconds after which a sample is given up."""


class SampleError(RuntimeError):
    """Says that a side did not do what is measured, so that its figure would be worth nothing."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many pairs are taken of each measure, and how much a sample holds.

    Attributes:
        pairs: Pairs of samples, and the seconds they may take. Many short ones rather than few long ones: a slow moment
            then meets both sides.
        adds: Jobs added one by one.
        batches: Batches added.
        batch: Jobs in each.
        jobs: The backlog of a listener.
        pickups: Jobs that come one at a time.
        unsampled: Jobs before those, for which a listener opens its connections.
        worked: Jobs that a process works on before its memory is taken.
    """

    pairs: Mapping[str, tuple[int, float]]
    adds: int = 120
    batches: int = 2
    batch: int = 1_000
    jobs: int = 1_000
    pickups: int = 25
    unsampled: int = 3
    worked: int = 2_000


FULL = Sizes({"add": (24, 8), "add_many": (24, 8), "listen": (12, 30), "latency": (40, 40), "memory": (5, 20)})
"""Less than four minutes for sync and async together, however busy the machine."""

QUICK = Sizes(
    {"add": (5, 3), "add_many": (5, 3), "listen": (5, 6), "latency": (8, 6), "memory": (1, 3)},
    adds=50,
    batches=1,
    jobs=300,
    worked=500,
)


def gap() -> float:
    """Seconds between two jobs: long enough for a listener to become idle, random so that nothing falls in step."""
    return random.uniform(0.004, 0.012)


def check_all_done(side: Side, count: int, called: int, completed: int) -> None:
    """Raises unless each job was worked on once and its end is stored."""
    if not count == called == completed:
        raise SampleError(
            f"{side}: of {count} jobs, the handler was called for {called}, and {completed} are completed"
        )
