"""``simplequeue worker``: a listener from the shell."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import click

from simplequeue_scripts import _handler
from simplequeue_scripts._arguments import Action, Seconds
from simplequeue_scripts._as_text import printable
from simplequeue_scripts._leaving import leave_in_order, leave_now
from simplequeue_scripts._options import Options, connected
from simplequeue_scripts._signals import Signals

LOOK = 0.1
"""Seconds between two looks at whether a signal has come."""


class Stoppable(Protocol):
    """What a worker needs of a listener."""

    def wait(self, timeout: float | None = None) -> bool: ...

    def stop(self, timeout: float | None = None) -> bool: ...


@click.command()
@click.argument("target", metavar=_handler.HINT)
@click.option("--concurrency", type=click.IntRange(min=1), default=16, show_default=True, help="Jobs at once.")
@click.option("--action", "actions", multiple=True, type=Action("action"), help="Take only jobs of these actions.")
@click.option("--timeout", type=Seconds(), default=20.0, show_default=True, help="How long a stop waits for handlers.")
@connected
def worker(options: Options, target: str, concurrency: int, actions: tuple[str, ...], timeout: float) -> None:
    """Runs jobs with a function of yours until SIGTERM or Ctrl-C.

    HANDLER is called with each job; a def runs in a thread, an async def on an event loop. MODULE is found as python -m
    finds it, the current directory included. --action may be given several times; without it, it takes all jobs.

    What HANDLER raises fails its job and is logged to stderr in one line; `simplequeue get ID` shows the stack.

    On a stop it takes no more jobs and waits for those that run: exit code 0 when all have finished within --timeout
    seconds. If not, it leaves them behind with exit code 1: their jobs stay running, and nobody runs them again.
    """
    handler = _handler.logged(_handler.load(target))
    # After the import, so that an application that has set up its logging keeps it.
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Entered first and so left last: a second signal must not interrupt the closing of the connection.
    signals = click.get_current_context().with_resource(Signals())
    store = options.open()
    place = f"{store.collection.full_name} with {concurrency} slots, actions: {', '.join(actions) or 'all'}"
    listening = f"listening on {printable(place)}; stop with SIGTERM or Ctrl-C"
    finished = serve(
        signals,
        lambda: store.queue.listen(handler, actions=actions or None, concurrency=concurrency),
        timeout,
        listening,
    )
    if finished:
        leave_in_order()
    else:
        leave_now()


def serve(signals: Signals, listen: Callable[[], Stoppable], timeout: float, listening: str) -> bool:
    """Listens until a signal comes, stops, and says whether every handler has finished by then.

    Args:
        signals: Where signals are noted, from before the first job is taken.
        listen: Starts the listener.
        timeout: Seconds to wait for handlers.
        listening: What to tell once it listens.
    """
    listener = listen()
    try:
        click.echo(listening, err=True)
        # In short waits: the signal handler could wake a longer one only through a lock.
        while signals.received is None and not listener.wait(LOOK):
            pass
        if signals.received is not None:
            click.echo(
                f"{signals.received.name}: taking no more jobs, waiting up to {timeout:g} s for those that run",
                err=True,
            )
        signals.pass_on()
    finally:
        finished = listener.stop(timeout)
    if finished:
        click.echo("stopped: every handler has finished", err=True)
    else:
        click.echo(
            f"stopped: within {timeout:g} s some handlers have not finished, or their ends could not be stored. "
            "Their jobs stay running; to see them: simplequeue ls --status running",
            err=True,
        )
    return finished


if __name__ == "__main__":
    worker()
