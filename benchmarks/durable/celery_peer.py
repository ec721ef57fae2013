"""The two sides of Celery on its MongoDB transport, for its own environment: ``celery_peer.py work|send ORDER``.

The worker prints when it was called first and last, once all jobs are done; or, of an order that ``tells``, each time.
The sender sends what its order says, or one job for each line it gets, and prints when it began to.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import celery

from benchmarks.durable.order import Order, report

DATA = {"to": "ada@example.org", "template": "welcome", "user": 4711}
POLL = 0.01
"""Seconds between looks. Celery's own default is one second, which would be its pickup."""


def app_of(order: Order) -> Any:
    """The application, whose broker is a database of the server."""
    broker = urlsplit(order.uri)._replace(path=f"/{order.database}").geturl()
    app = celery.Celery("peer", broker=broker)
    app.conf.update(
        broker_transport_options={"polling_interval": POLL},
        broker_connection_retry_on_startup=True,
        task_ignore_result=True,
        worker_redirect_stdouts=False,
        worker_hijack_root_logger=False,
    )
    called: list[float] = []

    @app.task(name="send-mail")  # type: ignore[untyped-decorator, unused-ignore]  # Celery has no types, where it is installed
    def send_mail(data: dict[str, Any]) -> None:
        called.append(time.monotonic())
        if order.tells:
            report(at=called[-1])
        elif len(called) == order.calls:
            report(first=called[0], last=called[-1])

    return app


def work(app: Any, order: Order) -> None:
    """Works until it is ended."""
    celery.signals.worker_ready.connect(lambda **_: report(up=True), weak=False)
    concurrency = f"--concurrency={order.slots}"
    app.worker_main(["--quiet", "worker", "--pool=threads", concurrency, "--without-gossip", "--without-mingle"])


def send(app: Any, order: Order) -> None:
    """Sends jobs."""
    task = app.tasks["send-mail"]
    for _ in range(order.calls):
        task.delay(DATA)
    report(up=True)
    for _ in sys.stdin:
        began = time.monotonic()
        task.delay(DATA)
        report(began=began)
    report(ended=True)


def main(what: str, order: Order) -> None:
    """Does as ordered."""
    logging.disable(logging.WARNING)
    {"work": work, "send": send}[what](app_of(order), order)


if __name__ == "__main__":
    main(sys.argv[1], Order.of_argument(sys.argv[2]))
