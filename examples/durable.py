"""The extension in one file, on a private MongoDB: python examples/durable.py

Deduplication, a retry, a fatal failure, and a clean end.
"""

from __future__ import annotations

import threading
from typing import Any

from durabl_ext import DurableJob, Event, FatalJobError, JobContext, JobFailed, JobQueue
from simplequeue.embedded import mongod

done = threading.Semaphore(0)


def told(event: Event) -> None:
    """Prints what happens; a metrics library would count it."""
    if event.kind in ("completed", "failed", "fail-fatal"):
        print(event.kind, getattr(event, "action", ""), "to be tried again" if retried(event) else "")
    if event.kind in ("completed", "fail-fatal"):
        done.release()


def retried(event: Event) -> bool:
    """Whether a job failed and will be run again."""
    return isinstance(event, JobFailed) and not event.terminal


def send_mail(job: DurableJob, ctx: JobContext) -> None:
    """Fails for an unlucky reason the first time, and for good without an address."""
    if "@" not in job.data["to"]:
        raise FatalJobError(f"no address: {job.data['to']}")
    if job.attempt == 1:
        raise ConnectionError("the mail server is away")
    ctx.log(f"sent to {job.data['to']}")


def main() -> None:
    with mongod() as client:
        db: Any = client.app
        queue = JobQueue(db, on_job_event=told)
        queue.process("send-mail", send_mail)
        with queue:
            id = queue.enqueue("send-mail", {"to": "ada@example.org"}, dedupe_key="mail:ada", backoff_delay=0.1)
            again = queue.enqueue("send-mail", {"to": "ada@example.org"}, dedupe_key="mail:ada")
            print("the second request of the same key:", again)
            done.acquire()
            queue.enqueue("send-mail", {"to": "nobody"})
            done.acquire()
        job = queue.get(id or "")
        assert job is not None
        print(job.status, "in attempt", job.attempt, "with the log:", *(line.message for line in job.logs))
        print("poison:", *(failed.data["to"] for failed in queue.list_failed(failure_kind="fatal")))


if __name__ == "__main__":
    main()
