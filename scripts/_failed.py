"""Which failed jobs are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from durabl_ext import FailureKind
from durabl_ext.core.indexes import FAILED
from simplequeue.commands import ENDED_BEFORE
from simplequeue.job import Document
from simplequeue.jobs import run
from simplequeue.states import Status
from simplequeue_scripts._options import Store

KINDS: tuple[FailureKind, ...] = get_args(FailureKind)


def find_failed(
    store: Store, kind: FailureKind | None, action: str | None, limit: int, fields: Sequence[str] | None
) -> list[Document]:
    """Reads failed jobs as they are stored, the latest first, along the index that ``JobQueue.list_failed`` takes.

    That one reads them whole, and the data of each may be 16 MB; here the caller says which fields it needs.
    """
    filter: Document = {"status": Status.FAILED.value}
    index = ENDED_BEFORE
    if action is not None:
        filter["action"] = action
    if kind is not None:
        filter["durable.failure_kind"] = kind
        index = FAILED
    run(store.jobs.ensure_index(index))
    latest_first = (("finished_at", -1),)
    return run(store.jobs.find(filter, fields=fields, sort=latest_first, limit=limit, hint=index.name))
