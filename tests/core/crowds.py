"""Many jobs at once, in the states that a command must not have to walk through."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from durabl_ext.options import Enqueue
from tests.core.conftest import LONG_AGO, Core


def add_queued(core: Core, number: int, *actions: str, priorities: int = 1, **options: Any) -> None:
    actions = actions or ("a",)
    core.enqueue_many(*[Enqueue(actions[n % len(actions)], priority=n % priorities, **options) for n in range(number)])


def add_plain(core: Core, number: int, *actions: str) -> None:
    core.cell.queue.add_many([(actions[n % len(actions)], None) for n in range(number)])


def add_ended(core: Core, number: int, status: str = "completed", **fields: Any) -> None:
    """Adds jobs that have ended, a second apart, the last of them longest ago."""
    queued = {"_id": {"$in": core.enqueue_many(*[Enqueue("ended")] * number)}}
    documents = [{**document, "status": status, **fields} for document in core.cell.collection.find(queued)]
    for n, document in enumerate(documents):
        document["finished_at"] = LONG_AGO - timedelta(seconds=n)
    core.cell.collection.delete_many(queued)
    core.cell.collection.insert_many(documents, ordered=False)


def add_followers(core: Core, number: int) -> None:
    """Leaves keys with one running job and one queued at top priority each."""
    keyed = [Enqueue("a", dedupe_key=f"k{n}", dedupe_scope="queued", priority=-9) for n in range(number)]
    core.enqueue_many(*keyed)
    assert len(core.claim(limit=number)) == number
    core.enqueue_many(*keyed)
