"""What a process that takes part in a sample is to do, as it is passed on its command line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from benchmarks.sizes import Colour, Side


@dataclass(frozen=True, slots=True)
class Order:
    """Says which side a process is on, and where.

    Attributes:
        side: Ours, or the floor ("loop").
        colour: Which of our two queues; the floor has one.
        uri: The connection string of the server.
        database: The database.
        collection: The collection.
        slots: Jobs that a worker runs at once, or threads and tasks that enqueue at once.
        tells: Whether a worker prints the time of each call of its handler.
        calls: Enqueues of each caller; 0 means batches.
        batches: Batches that are enqueued.
        batch: Jobs in each.
    """

    side: Side
    colour: Colour
    uri: str
    database: str
    collection: str
    slots: int
    tells: bool = False
    calls: int = 0
    batches: int = 0
    batch: int = 0

    def to_argument(self) -> str:
        """The text of it."""
        return json.dumps(asdict(self))

    @classmethod
    def of_argument(cls, text: str) -> Self:
        """The order a text stands for."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields)


def report(**facts: object) -> None:
    """Prints a line for the process that gave the order."""
    print(json.dumps(facts), flush=True)
