"""Bodies that catch everything: neither the loss of a lease nor a divergence nor a shutdown is swallowed with it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from tests.orchestrator.conftest import Bench, Gate
from tests.watching import until

CATCH = pytest.mark.parametrize("caught", [Exception, BaseException])


def taken(bench: Bench, id: str) -> None:
    """Has another worker take the job."""
    bench.db.job.update_one({"_id": id}, {"$set": {"durable.token": "another's"}})


@CATCH
@pytest.mark.parametrize("noticed", ["at the append", "by a heartbeat"])
def test_after_the_loss_of_a_lease_no_later_step_runs_and_the_job_is_not_completed(
    bench: Bench, caught: type[BaseException], noticed: str
) -> None:
    bench.open(visibility_timeout=60 if noticed == "at the append" else 0.6)

    def lose(step: Any) -> None:
        bench.ran.append("loses")
        taken(bench, step.job_id)
        if noticed == "by a heartbeat":
            step.signal.wait(60)

    async def lose_async(step: Any) -> None:
        bench.ran.append("loses")
        taken(bench, step.job_id)
        if noticed == "by a heartbeat":
            await step.signal.wait(60)

    async def body(job: Any, octx: Any) -> None:
        with suppress(caught):
            await octx.step("loses", lose if bench.flavour == "def" else lose_async, timeout=60)
        for n in range(5):
            with suppress(caught):
                await octx.step(f"later {n}", bench.does(f"later {n}"))
        with suppress(caught):
            await octx.all(*[branch] * 2)
        bench.ran.append("end")

    async def branch(octx: Any) -> None:
        with suppress(caught):
            await octx.step("in a branch", bench.does("in a branch"))

    bench.define(body)
    bench.start()
    id = bench.add()
    bench.told.wait_for("lease-lost")
    assert bench.front.shutdown(30)
    assert bench.ran == (["loses", "end"] if caught is BaseException else ["loses"])
    document = bench.db.job.find_one({"_id": id})
    assert document is not None
    assert (document["status"], document["durable"].get("steps")) == ("running", None)
    assert [event.kind for event in bench.told.events] == ["claimed", "lease-lost"]


@CATCH
def test_after_a_divergence_no_later_step_runs_and_the_job_is_not_completed(
    bench: Bench, caught: type[BaseException]
) -> None:
    names = ["before", "after"]

    async def body(job: Any, octx: Any) -> None:
        name = names[job.attempt - 1]
        with suppress(caught):
            await octx.step(name, bench.does(name))
        if job.attempt == 1:
            raise ConnectionError
        for n in range(5):
            with suppress(caught):
                await octx.step(f"later {n}", bench.does(f"later {n}"))
        with suppress(caught):
            await octx.all(branch)
        with suppress(caught):
            await octx.now()

    async def branch(octx: Any) -> None:
        with suppress(caught):
            await octx.step("in a branch", bench.does("in a branch"))

    job = bench.done(body)
    assert bench.ran == ["before"]
    assert (job.status, job.failure_kind, job.attempt) == ("failed", "fatal", 2)
    assert job.error is not None
    assert "'after'" in job.error["message"]
    assert [step["name"] for step in bench.steps(job.id)] == ["before"]


def test_a_divergence_in_a_branch_ends_the_whole_run(bench: Bench) -> None:
    async def left(octx: Any) -> None:
        with suppress(BaseException):
            await octx.step("left" if not bench.ran else "changed", bench.does("left"))

    async def body(job: Any, octx: Any) -> None:
        with suppress(BaseException):
            await octx.all(left)
        if job.attempt == 1:
            raise ConnectionError
        with suppress(BaseException):
            await octx.step("later", bench.does("later"))

    job = bench.done(body)
    assert (job.status, job.failure_kind, bench.ran) == ("failed", "fatal", ["left"])


@pytest.mark.parametrize("last", [True, False])
def test_a_shutdown_that_is_swallowed_does_not_complete_a_job_whose_step_was_cancelled(
    async_bench: Bench, last: bool
) -> None:
    bench, gate = async_bench, Gate()

    async def hangs(step: Any) -> None:
        bench.ran.append("hangs")
        if bench.ran.count("hangs") == 1:
            gate.reached.set()
            await asyncio.Event().wait()

    async def body(job: Any, octx: Any) -> None:
        with suppress(BaseException):
            await octx.step("hangs", hangs)
        if not last:
            with suppress(BaseException):
                await octx.step("later", bench.does("later"))

    bench.define(body)
    bench.start()
    id = bench.add(max_attempts=1)
    gate.wait()
    assert bench.front.shutdown(0)
    assert bench.ran == ["hangs"]
    job = bench.job(id)
    assert (job.status, job.attempt) == ("queued", 0)
    bench.open()
    bench.define(body)
    bench.start()
    job = bench.ended(id)
    assert (job.status, job.attempt) == ("completed", 1)
    assert bench.ran == ["hangs", "hangs"] + ["later"] * (not last)


def test_a_deadline_that_is_swallowed_does_not_complete_the_job(bench: Bench) -> None:
    async def hang(step: Any) -> None:
        await step.signal.wait(60)

    async def body(job: Any, octx: Any) -> None:
        for n in range(3):
            with suppress(BaseException):
                fn = (lambda step: step.signal.wait(60)) if bench.flavour == "def" else hang
                await octx.step(f"step {n}", fn if n == 1 else bench.does(f"step {n}"), timeout=60)

    bench.define(body, max_duration=0.5)
    bench.start()
    id = bench.add(max_attempts=1)
    job = bench.ended(id)
    assert job.status == "failed"
    assert job.error is not None
    assert job.error["name"] == "MaxDurationExceeded"
    assert bench.ran == ["step 0"]


def test_a_step_that_a_group_of_tasks_is_cancelled_with_ends_no_run(async_bench: Bench) -> None:
    bench = async_bench

    async def hang(step: Any) -> None:
        await asyncio.Event().wait()

    async def body(job: Any, octx: Any) -> None:
        hung = octx.step("hangs", hang)
        hung.cancel()
        with suppress(asyncio.CancelledError):
            await hung
        await octx.step("later", bench.does("later"))

    assert bench.done(body).status == "completed"
    until(lambda: bench.ran == ["later"])
