"""Background jobs on the MongoDB you already run: add, listen, get, update, cancel, sweep."""

from simplequeue.collection import IndexConflictError, UnsupportedServerError
from simplequeue.job import Job
from simplequeue.listener import AsyncListener, Listener
from simplequeue.payload import PayloadError
from simplequeue.queue import AsyncQueue, Queue, create_queue
from simplequeue.states import Status

__all__ = [
    "AsyncListener",
    "AsyncQueue",
    "IndexConflictError",
    "Job",
    "Listener",
    "PayloadError",
    "Queue",
    "Status",
    "UnsupportedServerError",
    "create_queue",
]
