"""Workers as processes of their own: ``python -m tests.drain.programs MODE COLOUR URL DB``.

The last line each prints is what its call answered."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient, MongoClient

from durabl_ext import AsyncJobQueue, JobQueue
from durabl_ext.runtime import worker
from tests.commands.processes import Running


@contextmanager
def running(*words: str) -> Iterator[Running]:
    """Runs this file; it is killed where a test leaves it running."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.drain.programs", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    program = Running(process)
    try:
        yield program
    finally:
        process.kill()
        program.end()


begun = threading.Event()


def say(*words: object) -> None:
    """Prints a line for the test that waits for it."""
    print(*words, flush=True)


def begin() -> None:
    say("running")
    begun.set()


def hang(job: Any, ctx: Any) -> None:
    begin()
    threading.Event().wait()


def heed(job: Any, ctx: Any) -> None:
    worker.YIELD = 30.0  # it ends by itself, on a busy machine too
    begin()
    ctx.signal.wait()
    ctx.signal.raise_if_set()


async def never(job: Any, ctx: Any) -> None:
    begin()
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


HANDLERS = {"hang": hang, "heed": heed, "never": never}


def register(queue: Any) -> None:
    for action, handler in HANDLERS.items():
        queue.process(action, handler)


def sync_main(mode: str, url: str, name: str) -> object:
    queue = JobQueue(MongoClient[dict[str, Any]](url)[name])
    register(queue)
    if mode == "run":
        return queue.run(timeout=0.2)
    if mode == "reaper":
        return queue.start_reaper(0.1)
    queue.start()
    begun.wait(60)
    return queue.shutdown(0.2) if mode == "shutdown" else "started"


async def async_main(mode: str, url: str, name: str) -> object:
    async with AsyncMongoClient[dict[str, Any]](url) as client:
        queue = AsyncJobQueue(client[name])
        register(queue)
        if mode == "run":
            return await queue.run(timeout=0.2)
        if mode == "reaper":
            return await queue.start_reaper(0.1)
        await queue.start()
        await asyncio.to_thread(begun.wait, 60)
        return await queue.shutdown(0.2) if mode == "shutdown" else "started"


if __name__ == "__main__":
    worker.RELEASE = 30.0  # a test looks at what was given back, and a busy machine may take long for that
    mode, colour, *where = sys.argv[1:]
    say("answer", sync_main(mode, *where) if colour == "sync" else asyncio.run(async_main(mode, *where)))
