"""The indexes of the extension: few and partial, since every one costs every write.

The two dedupe indexes are the whole of deduplication: same field, different filters. A job of scope ``queued+running``
is in both for as long as it lives, one of scope ``queued`` in the one of its status, so that the server itself refuses
a second job wherever it comes from, and nothing has to be maintained when a job moves.
"""

from __future__ import annotations

from simplequeue.commands import ENDED_BEFORE, Index
from simplequeue.job import Document
from simplequeue.states import Status

KEY = "durable.dedupe.key"
SCOPE = "durable.dedupe.scope"
BOTH = "queued+running"
WAKES = "durable.wakes"
"""What a job of scope ``queued`` carries until it ends, when its follower may start. An update says which fields it
removed, and nothing of those it left; so a removal is what the change feed can recognise."""

NO_ARRAY: Document = {"$not": {"$type": "array"}}
"""A comparison holds of an array when it holds of an element."""

DUE = Index(
    "which_job_is_due",
    (("status", 1), ("action", 1), ("durable.priority", 1), ("durable.run_at", 1), ("_id", 1)),
    {"status": Status.QUEUED.value},
)
"""Without it a claim sorts all queued jobs of its actions; without ``_id`` at its end 301 keys instead of 17 for 16.
The status is in the key as well since the server fetches a document to see what only the filter says: to count 100,000
queued jobs took 138 ms without it, 20 with it."""

EXPIRED = Index(
    "which_runs_have_expired",
    (("status", 1), ("durable.lease_expires_at", 1), ("action", 1)),
    {"status": Status.RUNNING.value},
)
"""Without it the reaper reads the whole collection, and so does the look for keys that block a claim. The status and
the action let runs be counted without their documents, which may be large."""

FAILED = Index(
    "which_jobs_failed_of_a_kind",
    (("status", 1), ("durable.failure_kind", 1), ("finished_at", 1), ("action", 1)),
    {"status": Status.FAILED.value},
)
"""Without it the list of one kind reads every failed job, 50,000 instead of 50, and so does each count of a kind. Only
a failure pays for it."""


def _slot(name: str, here: Status, other: Status) -> Index:
    held: list[Document] = [
        {"status": here.value, KEY: {"$exists": True}},
        {"status": other.value, SCOPE: BOTH},
    ]
    return Index(name, ((KEY, 1),), {"$or": held}, unique=True)


QUEUED_SLOT = _slot("one_queued_job_a_key", Status.QUEUED, Status.RUNNING)
"""Without it two jobs of one key can wait at once, or one wait beside a run that excludes it."""

RUNNING_SLOT = _slot("one_running_job_a_key", Status.RUNNING, Status.QUEUED)
"""Without it one user's sync can run twice at once: the promise this product exists for."""

DEDUPE = (QUEUED_SLOT, RUNNING_SLOT)
ALL = (DUE, EXPIRED, FAILED, *DEDUPE, ENDED_BEFORE)
