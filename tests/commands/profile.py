"""What the server did for a command, from its own profiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pymongo.database import Database

SIZE = 64 * 1024 * 1024
"""The default is 1 MB, of which the ids of a few batches take all."""


@contextmanager
def profiled(db: Database[dict[str, Any]]) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """Gives a function that returns the profile of the operations since, oldest first, that match a filter."""
    db.create_collection("system.profile", capped=True, size=SIZE)
    db.command("profile", 2)
    try:
        yield lambda **filter: list(db["system.profile"].find(filter, sort=[("$natural", 1)]))
    finally:
        db.command("profile", 0)


def stages(plan: dict[str, Any]) -> set[str]:
    """The names of all stages of an executed plan."""
    inner = [plan.get("inputStage"), *plan.get("inputStages", [])]
    return {plan["stage"]}.union(*(stages(stage) for stage in inner if stage))
