"""A worker of the demo, as a process of its own: ``python -m simplequeue_scripts._demo_worker URI``."""

from __future__ import annotations

import sys
from typing import Any

from pymongo import MongoClient

from durabl_ext import DurableJob, JobContext, JobQueue

ACTION = "report"
PAGES = 4
PAGE = 0.3
"""Seconds a page takes, so that there is a middle of the job to be killed in."""

LEASE = 1.5
"""Seconds without a sign of life after which a worker counts as dead. In production it is minutes."""


def write(job: DurableJob, ctx: JobContext) -> None:
    """Works on a job of the demo, page by page."""
    for page in range(1, PAGES + 1):
        print(f"attempt {job.attempt}, page {page} of {PAGES}", flush=True)
        ctx.signal.wait(PAGE)
        ctx.signal.raise_if_set()


def main() -> None:
    """Works until SIGTERM, or until it is killed."""
    queue = JobQueue(MongoClient[dict[str, Any]](sys.argv[1])["demo"], visibility_timeout=LEASE)
    queue.process(ACTION, write)
    queue.run(reaper_interval=LEASE / 3)


if __name__ == "__main__":
    main()
