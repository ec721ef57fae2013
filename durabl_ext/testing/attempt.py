"""One run of the job under test."""

from __future__ import annotations

from dataclasses import dataclass, field

from durabl_ext.orchestrator.orchestration import Body
from durabl_ext.runtime.inline import end_of, unkept
from durabl_ext.runtime.invoke import InvokeHere, outcome
from durabl_ext.testing.access import watched
from durabl_ext.testing.bench import LEASE, Bench
from durabl_ext.testing.watch import Boundary, Fault, Watch
from simplequeue.job import Document


@dataclass(slots=True)
class Attempt:
    """How a run ended.

    Attributes:
        error: What its body raised; None when it returned, or its worker died.
        reached: Whether what was planned has happened.
        died: Whether its worker has died.
        writes: What it wrote to the journal, or would have, in that order.
        successor: The run of the worker that took its job.
        left: The job as that worker left it.
        changed: Whether this run has changed it after that.
    """

    error: BaseException | None = None
    reached: bool = False
    died: bool = False
    writes: list[Boundary] = field(default_factory=list)
    successor: Attempt | None = None
    left: Document = field(default_factory=dict)
    changed: bool = False


async def attempt(bench: Bench, body: Body, fault: Fault | None = None) -> Attempt:
    """Claims the job, runs the body from where the journal ends, and stores how that ended.

    Args:
        bench: The job.
        body: The body.
        fault: What is to happen to the run; None for nothing.
    """
    made = Attempt()
    claim = await bench.claim()
    managed = unkept(claim, LEASE, bench.terms.now)
    run = managed.run

    async def succeed() -> None:
        await bench.awaited.log(claim, run.taken_lines())
        made.successor = await attempt(bench, body)
        made.left = await bench.document()

    journal = (claim.job.document.get("durable") or {}).get("steps") or ()
    watch = Watch(run, journal, fault, succeed)
    ways = watched(watch, bench.awaited, bench.waiting, bench.terms.now)
    invoke = InvokeHere(lambda _: ways)
    error = await outcome(invoke, bench.orchestration(watch.body(body)), managed)
    invoke.close()
    await watch.settled()  # a run that is cancelled meanwhile does not wait for it
    made.reached, made.died, made.writes = watch.reached, watch.died is not None, list(watch.writes.values())
    if made.died:
        await bench.awaited.log(claim, watch.last_words)
        return made
    made.error = error
    await bench.awaited.log(claim, run.taken_lines())
    await bench.awaited.settle([end_of(claim, error)])
    made.changed = bool(made.left) and await bench.document() != made.left
    return made
