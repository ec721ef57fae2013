"""``simplequeue worker``: a listener from the shell."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import click
from click.core import ParameterSource

from simplequeue_scripts import _handler
from simplequeue_scripts._arguments import Action, Seconds
from simplequeue_scripts._as_text import printable
from simplequeue_scripts._at_work import started
from simplequeue_scripts._leaving import leave_in_order, leave_now
from simplequeue_scripts._options import Options, connected
from simplequeue_scripts._signals import Signals

LOOK = 0.1
"""Seconds between two looks at whether a signal has come."""


LEFT_RUNNING = "Their jobs stay running; to see them: simplequeue ls --status running"
GIVEN_BACK = "Their jobs were given back, to be run again in some seconds, no attempt spent"


class Stoppable(Protocol):
    """What a worker needs of a listener."""

    def wait(self, timeout: float | None = None) -> bool: ...

    def stop(self, timeout: float | None = None) -> bool: ...


@click.command()
@click.argument("target", metavar=_handler.HINT)
@click.option("--concurrency", type=click.IntRange(min=1), default=16, show_default=True, help="Jobs at once.")
@click.option("--action", "actions", multiple=True, type=Action("action"), help="Take only jobs of these actions.")
@click.option("--no-reaper", is_flag=True, help="Leave it to other workers to put back what dead ones left.")
@click.option("--timeout", type=Seconds(), default=20.0, show_default=True, help="How long a stop waits for handlers.")
@connected
def worker(
    options: Options, target: str, concurrency: int, actions: tuple[str, ...], no_reaper: bool, timeout: float
) -> None:
    """Runs jobs with a function or a queue of yours until SIGTERM or Ctrl-C.

    MODULE is found as python -m finds it, the current directory included. NAME is one of two:

    A function is called with each plain job; a def runs in a thread, an async def on an event loop. --action may be
    given several times; without it, it takes all. What it raises fails its job and is logged to stderr in one line;
    `simplequeue get ID` shows the stack.

    A JobQueue or an AsyncJobQueue of durabl_ext works with its own processors, on its own database; --uri, --db,
    --collection, --concurrency and --action are not for it.

    On a stop it takes no more jobs and waits for those that run: exit code 0 when all have finished within --timeout
    seconds. If not, it leaves them behind with exit code 1: jobs of a function stay running, and nobody runs them
    again; those of a queue are given back.
    """
    found = _handler.load(target)
    # After the import, so that an application that has set up its logging keeps it.
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Entered first and so left last: a second signal must not interrupt the closing of the connection.
    signals = click.get_current_context().with_resource(Signals())
    if isinstance(found, _handler.Queue):
        _refuse("concurrency", "actions", remedy="a queue's processors say it: queue.process(action, concurrency=…)")
        finished = serve(signals, lambda: started(found, not no_reaper), timeout, _working(found, target), GIVEN_BACK)
    else:
        _refuse("no_reaper", remedy="a function has no reaper; name a JobQueue")
        handler, store = _handler.logged(found), options.open()
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


def _refuse(*names: str, remedy: str) -> None:
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = "--action" if name == "actions" else f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} is not for what was named: {remedy}")


def _working(queue: _handler.Queue, target: str) -> str:
    actions = sorted(queue.actions)
    if not actions:
        raise click.UsageError(
            f"the queue {target} has no processors: register them where it is made, with queue.process(action, handler)"
        )
    return f"working on actions: {printable(', '.join(actions))}; stop with SIGTERM or Ctrl-C"


def serve(
    signals: Signals, listen: Callable[[], Stoppable], timeout: float, listening: str, left: str = LEFT_RUNNING
) -> bool:
    """Listens until a signal comes, stops, and says whether every handler has finished by then.

    Args:
        signals: Where signals are noted, from before the first job is taken.
        listen: Starts the listener.
        timeout: Seconds to wait for handlers.
        listening: What to tell once it listens.
        left: What to tell of jobs whose handlers have not finished.
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
            f"stopped: within {timeout:g} s some handlers have not finished, or their ends could not be stored. {left}",
            err=True,
        )
    return finished


if __name__ == "__main__":
    worker()
