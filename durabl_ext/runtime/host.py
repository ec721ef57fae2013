"""Where a sync queue's worker lives: a private loop in a daemon thread, and threads for its calls.

It is made when something is to run, so that a producer starts no thread. A forked child has no part in it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from datetime import timedelta

from durabl_ext.backends import Backend
from durabl_ext.events import Sink
from durabl_ext.mongo import MongoJobQueue
from durabl_ext.runtime.engine import Engine
from durabl_ext.runtime.invoke import InvokeApart
from durabl_ext.runtime.processors import Processor
from durabl_ext.runtime.store import StoreInThreads
from durabl_ext.runtime.worker import Worker
from simplequeue.threads import LoopThread, Threads


class Host:
    """Runs a worker beside a program that has no loop.

    Args:
        backend: Where the jobs are.
        processors: What is registered.
        lease: The visibility timeout.
        sink: What is told of events.
        logger: For messages.
    """

    def __init__(
        self,
        backend: Backend,
        processors: Mapping[str, Processor],
        lease: timedelta,
        sink: Sink | None,
        logger: logging.Logger,
    ) -> None:
        self.process = os.getpid()
        self.started = False
        self.loop = LoopThread("durabl-worker")
        self.threads = Threads("durabl-call")
        self.invoke = InvokeApart()
        watch = backend.watch_in(self.threads) if isinstance(backend, MongoJobQueue) else None

        async def made() -> Worker:
            engine = Engine(StoreInThreads(backend, self.threads), lease, self.invoke, sink, logger)
            return Worker(engine, processors, watch)

        self.worker = self.loop.call(made())

    def close(self) -> None:
        """Lets the threads end."""
        self.threads.close()
        self.loop.close()
