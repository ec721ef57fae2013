"""Which changes of the collection mean that a worker may find something new."""

from __future__ import annotations

from durabl_ext.core.indexes import WAKES
from simplequeue.job import Document
from simplequeue.states import Status


def news() -> Document:
    """Matches events: a job was stored as queued, went back to the queue, or ended with others waiting behind it.

    Heartbeats, progress, logs and steps match nothing, so that they wake nobody.
    """
    return {
        "$or": [
            {"operationType": "insert", "fullDocument.status": Status.QUEUED.value},
            {"operationType": "update", "updateDescription.updatedFields.status": Status.QUEUED.value},
            {"operationType": "update", "updateDescription.removedFields": WAKES},
        ]
    }
