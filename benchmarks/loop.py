"""The hand-written side: what one writes on PyMongo alone, without a library, in an afternoon.

It has the method names of ``Queue``, so that a measure can take either. It does no more than is measured: no checks of
payloads, no second try of a write, no reopening of the stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from pymongo import ReturnDocument, WriteConcern
from pymongo.change_stream import ChangeStream
from pymongo.database import Database

from benchmarks.documents import (
    ADDED,
    INDEX,
    INDEX_KEYS,
    POLL,
    QUEUED,
    Document,
    ended,
    new,
    new_ones,
    started,
    this_run,
)

Handler = Callable[[Document], object]


class Loop:
    """Adds jobs and works on them in threads.

    Args:
        db: Where the jobs are.
        collection: What their collection is called.
    """

    def __init__(self, db: Database[Document], collection: str) -> None:
        self._jobs = db[collection].with_options(write_concern=WriteConcern("majority"))
        self._jobs.create_index(INDEX_KEYS, name=INDEX, partialFilterExpression=QUEUED)

    def add(self, action: str, data: Document) -> None:
        """Adds a job."""
        self._jobs.insert_one(new(action, data))

    def add_many(self, jobs: Iterable[tuple[str, Document]]) -> None:
        """Adds jobs in one go."""
        self._jobs.insert_many(new_ones(jobs))

    @contextmanager
    def listen(self, handler: Handler, *, concurrency: int = 16) -> Iterator[None]:
        """Works on the backlog in as many threads, and on what is pushed in one more, until the block ends."""
        stopped, busy = threading.Event(), threading.Lock()
        # Opened before the backlog is read, so that nothing falls between the two.
        stream = self._jobs.watch(ADDED, max_await_time_ms=1_000)
        workers = [threading.Thread(target=self._work, args=(handler, stopped)) for _ in range(concurrency)]
        for worker in workers:
            worker.start()
        threading.Thread(target=self._watch, args=(stream, handler, stopped, busy), daemon=True).start()
        try:
            yield
        finally:
            stopped.set()
            for worker in workers:
                worker.join()
            with busy:  # waits for the job that is running; the stream closes by itself within a second
                pass

    def _work(self, handler: Handler, stopped: threading.Event) -> None:
        while not stopped.is_set():
            if (job := self._claim()) is None:
                stopped.wait(POLL)
            else:
                self._run(handler, job)

    def _watch(
        self, stream: ChangeStream[Document], handler: Handler, stopped: threading.Event, busy: threading.Lock
    ) -> None:
        # It claims and calls the handler itself. Nothing is faster for a job that comes alone, as they do when this is
        # measured; jobs that come together wait for one another here.
        with stream:
            while not stopped.is_set():
                added = stream.try_next()
                with busy:
                    if added is not None and not stopped.is_set() and (job := self._claim()) is not None:
                        self._run(handler, job)

    def _claim(self) -> Document | None:
        return self._jobs.find_one_and_update(
            QUEUED, started(), sort=[("_id", 1)], hint=INDEX, return_document=ReturnDocument.AFTER
        )

    def _run(self, handler: Handler, job: Document) -> None:
        problem = None
        try:
            handler(job)
        except Exception as error:
            problem = error
        self._jobs.update_one(this_run(job), ended(problem))
