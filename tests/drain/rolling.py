"""A worker of a rolling restart: ``python -m tests.drain.rolling KIND URL DB``, where KIND is heeds or ignores."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import Any

from pymongo import MongoClient

from durabl_ext import JobQueue
from durabl_ext.errors import QueueShutdownError
from durabl_ext.runtime import worker

HEEDS, IGNORES = "heeds", "ignores"


def main(kind: str, url: str, name: str) -> None:
    # What is given back is looked at, and who heeds the signal has ended, however long a busy machine takes for it.
    worker.RELEASE = 30.0
    if kind == HEEDS:
        worker.YIELD = 30.0
    db = MongoClient[dict[str, Any]](url)[name]
    queue = JobQueue(db, visibility_timeout=30)

    def observed(job: Any, ctx: Any) -> None:
        # The handlers themselves are the witnesses: the key's only seat is taken, or somebody else sits on it.
        seat = {"_id": job.dedupe_key, "taken": {"$ne": True}}
        if db.seats.update_one(seat, {"$set": {"taken": True}}).matched_count != 1:
            db.doubles.insert_one({"job": job.id, "key": job.dedupe_key})
        try:
            if kind == IGNORES:
                threading.Event().wait(job.data["takes"])
            elif ctx.signal.wait(job.data["takes"]):
                ctx.signal.raise_if_set()
            db.done.insert_one({"job": job.id})
        finally:
            db.seats.update_one({"_id": job.dedupe_key}, {"$set": {"taken": False}})

    queue.process("a", observed, concurrency=16)
    queue.install_signal_handlers(timeout=0.2)
    sys.stdout.write("up\n")
    sys.stdout.flush()
    with suppress(QueueShutdownError):  # told to end already
        queue.run(timeout=0.2, reaper_interval=1)
    sys.stdout.write(f"{queue.shutdown()}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
