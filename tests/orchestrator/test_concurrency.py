"""Chains of steps that run at once: an order that is left to chance is refused at the first run, branches are not."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from durabl_ext import DurableJob
from tests.orchestrator.conftest import Bench, Crash
from tests.watching import until


def refused(job: DurableJob) -> str:
    """The message of a job that failed for good in its first run since an order was left to chance."""
    assert (job.status, job.failure_kind, job.attempt) == ("failed", "fatal", 1)
    assert job.error is not None
    assert job.error["name"] == "NondeterminismError"
    return job.error["message"]


async def at_once_by_gather(octx: Any, chain: Callable[[str], Any]) -> None:
    await asyncio.gather(chain("x"), chain("y"))


async def at_once_by_tasks(octx: Any, chain: Callable[[str], Any]) -> None:
    tasks = [asyncio.create_task(chain(name)) for name in "xy"]
    await asyncio.wait(tasks)


async def at_once_in_a_group(octx: Any, chain: Callable[[str], Any]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(chain("x"))
        group.create_task(chain("y"))


async def one_in_a_task(octx: Any, chain: Callable[[str], Any]) -> None:
    await asyncio.create_task(chain("x"))


@pytest.mark.parametrize(
    "at_once", [at_once_by_gather, at_once_by_tasks, at_once_in_a_group, one_in_a_task], ids=lambda fn: fn.__name__
)
def test_two_chains_of_coroutines_are_refused_at_the_first_run_and_branches_are_named(
    async_bench: Bench, at_once: Callable[..., Any]
) -> None:
    bench = async_bench

    async def body(job: Any, octx: Any) -> None:
        async def chain(name: str) -> None:
            done = await octx.step("work", bench.does(f"work {name}"))
            await octx.step("mark", bench.does(f"mark {done}"))

        await at_once(octx, chain)

    message = refused(bench.done(body))
    assert "octx.all(" in message
    assert "'work'" in message
    assert bench.ran == []


def test_two_chains_of_threads_are_refused_at_the_first_run_and_branches_are_named(def_bench: Bench) -> None:
    bench = def_bench

    def body(job: Any, octx: Any) -> None:
        def chain(name: str) -> None:
            octx.step("work", bench.does(f"work {name}"))
            octx.step("mark", bench.does(f"mark {name}"))

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(chain, "xy"))

    bench.orchestrator.define("a", body)
    bench.start()
    assert "octx.all(" in refused(bench.ended(bench.add()))
    assert bench.ran == []


def test_a_thread_of_an_async_body_that_calls_a_step_is_refused(async_bench: Bench) -> None:
    bench = async_bench

    async def body(job: Any, octx: Any) -> None:
        await asyncio.to_thread(octx.step, "work", bench.does("work"))

    assert "octx.all(" in refused(bench.done(body))
    assert bench.ran == []


def test_a_step_inside_of_a_step_is_refused(bench: Bench) -> None:
    async def body(job: Any, octx: Any) -> None:
        async def outer_async(step: Any) -> None:
            bench.ran.append("outer")
            await octx.step("inner", bench.does("inner"))

        def outer(step: Any) -> None:
            bench.ran.append("outer")
            octx.inner.step("inner", bench.does("inner"))

        await octx.step("outer", outer if bench.flavour == "def" else outer_async)

    message = refused(bench.done(body))
    assert "'inner'" in message
    assert bench.ran == ["outer"]


@pytest.mark.parametrize("what", ["step", "all"])
def test_the_octx_of_the_body_is_refused_inside_of_a_branch(bench: Bench, what: str) -> None:
    async def body(job: Any, octx: Any) -> None:
        async def branch(own: Any) -> None:
            await own.step("right", bench.does("right"))
            await (octx.step("wrong", bench.does("wrong")) if what == "step" else octx.all(branch))

        await octx.all(branch)

    assert "octx.all(" in refused(bench.done(body))
    assert bench.ran == ["right"]


def test_the_octx_of_a_branch_is_refused_outside_of_it(bench: Bench) -> None:
    kept: list[Any] = []

    async def body(job: Any, octx: Any) -> None:
        async def branch(own: Any) -> None:
            kept.append(own)

        await octx.all(branch)
        await kept[0].step("late", bench.does("late"))

    refused(bench.done(body))
    assert bench.ran == []


def test_chains_in_branches_see_the_same_on_resume_whatever_the_timings(bench: Bench) -> None:
    slow, seen = ["x"], []

    async def body(job: Any, octx: Any) -> None:
        def chain(name: str) -> Any:
            async def chained(octx: Any) -> Any:
                done = await octx.step("work", timed(name))
                return [done, await octx.step("mark", bench.does(f"mark {done}", f"marked {done}"))]

            return chained

        seen.append(await octx.all(chain("x"), chain("y")))
        if job.attempt == 1:
            slow[:] = ["y"]
            raise Crash

    def timed(name: str) -> Any:
        def work(step: Any) -> str:
            if slow == [name]:  # the other one is through with both of its steps
                until(lambda: len(bench.steps(step.job_id)) == 2)
            bench.ran.append(f"work {name}")
            return name

        async def work_async(step: Any) -> str:
            return await asyncio.to_thread(contextvars.copy_context().run, work, step)

        return work if bench.flavour == "def" else work_async

    job = bench.done(body)
    assert (job.status, job.attempt) == ("completed", 2)
    assert seen == [[["x", "marked x"], ["y", "marked y"]]] * 2
    assert bench.ran == ["work y", "mark y", "work x", "mark x"]
    assert {(step["seq"], step["result"]) for step in bench.steps(job.id)} == {
        ("0.0.0", "x"),
        ("0.0.1", "marked x"),
        ("0.1.0", "y"),
        ("0.1.1", "marked y"),
    }


def test_branches_of_a_def_body_run_at_once(def_bench: Bench) -> None:
    bench = def_bench
    met = threading.Barrier(3)

    def body(job: Any, octx: Any) -> None:
        def branch(octx: Any) -> None:
            octx.step("meet", lambda step: met.wait(60) and None)

        octx.all(branch, branch, branch)

    bench.orchestrator.define("a", body)
    bench.start()
    assert bench.ended(bench.add()).status == "completed"
