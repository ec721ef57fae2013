"""Branches: results in order at any depth, and one that fails ends the others at their next step, in every run."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from tests.orchestrator.conftest import Bench, Crash, Gate
from tests.watching import until


def giving(bench: Bench, name: str, result: Any = None) -> Any:
    """A branch of one step."""

    async def branch(octx: Any) -> Any:
        return await octx.step(name, bench.does(name, result))

    return branch


def raising(error: Exception) -> Any:
    def act(step: Any) -> None:
        raise error

    return act


def waits_until(bench: Bench, name: str, holds: Any) -> Any:
    """A function that waits for a condition, and blocks no loop."""

    def fn(step: Any) -> str:
        until(lambda: holds(step))
        bench.ran.append(name)
        return name

    async def fn_async(step: Any) -> str:
        return await asyncio.to_thread(fn, step)

    return fn if bench.flavour == "def" else fn_async


def test_results_come_in_the_order_of_the_branches_at_any_depth(bench: Bench) -> None:
    seen: list[Any] = []

    async def body(job: Any, octx: Any) -> None:
        def nested(depth: int) -> Any:
            async def branch(octx: Any) -> Any:
                if depth == 0:
                    return await octx.step("leaf", bench.does("leaf", depth))
                return [depth, *await octx.all(nested(depth - 1), giving(bench, "right", "r"))]

            return branch

        seen.append(await octx.all(nested(3), giving(bench, "side", "s"), nested(0)))
        seen.append(await octx.step("last", bench.does("last", 1)))
        if job.attempt == 1:
            raise Crash

    job = bench.done(body)
    expected = [[[3, [2, [1, 0, "r"], "r"], "r"], "s", 0], 1]
    assert seen == expected * 2
    assert len(bench.ran) == 7
    assert {"0.0.0.0.0.0.0.0.0", "0.0.0.1.0", "0.1.0", "0.2.0", "1"} <= {step["seq"] for step in bench.steps(job.id)}


def test_no_branches_give_no_results(bench: Bench) -> None:
    async def body(job: Any, octx: Any) -> None:
        assert await octx.all() == []

    assert bench.done(body).status == "completed"


@pytest.mark.parametrize("branch", [7, lambda: None, lambda a, b: None], ids=["a number", "no argument", "two"])
def test_a_branch_is_a_function_of_its_own_octx(bench: Bench, branch: Any) -> None:
    async def body(job: Any, octx: Any) -> None:
        getattr(octx, "inner", octx).all(branch)

    bench.define(body)
    bench.start()
    job = bench.ended(bench.add(max_attempts=1))
    assert job.error is not None
    assert (job.error["name"], "its own octx" in job.error["message"]) == ("TypeError", True)


def test_the_first_failure_lets_the_others_finish_their_step_and_start_no_other(bench: Bench) -> None:
    failed = Gate()
    seen: list[Any] = []

    async def fails(octx: Any) -> None:
        await octx.step("meets", waits_until(bench, "meets", lambda step: failed.reached.is_set()))
        await octx.step("fails", bench.does("fails", act=raising(ConnectionError("first"))))

    def has_failed(step: Any) -> bool:
        failed.reached.set()
        return failed.opened.is_set()

    async def slow(octx: Any) -> None:
        try:
            await octx.step("slow", waits_until(bench, "slow", has_failed))
            await octx.step("never", bench.does("never"))
        finally:
            seen.append("slow ended")

    async def body(job: Any, octx: Any) -> None:
        async def marks(octx: Any) -> None:
            try:
                await fails(octx)
            finally:
                failed.opened.set()

        try:
            await octx.all(slow, marks)
        except ConnectionError as error:
            seen.append(error.args)
            raise

    bench.define(body)
    bench.start()
    job = bench.ended(bench.add(max_attempts=1))
    assert job.error is not None
    assert job.error["message"] == "first"
    assert sorted(bench.ran) == ["fails", "meets", "slow"]
    assert seen == ["slow ended", ("first",)]
    assert [step["name"] for step in bench.steps(job.id)] == ["meets", "slow"]


def test_a_branch_that_swallows_its_end_starts_no_other_step(bench: Bench) -> None:
    failed = Gate()

    def has_failed(step: Any) -> bool:
        failed.reached.set()
        return failed.opened.is_set()

    async def swallows(octx: Any) -> None:
        await octx.step("waits", waits_until(bench, "waits", has_failed))
        for n in range(3):
            with suppress(BaseException):
                await octx.step(f"never {n}", bench.does(f"never {n}"))
            with suppress(BaseException):
                await octx.all(giving(bench, "never"))

    async def fails(octx: Any) -> None:
        await octx.step("meets", waits_until(bench, "meets", lambda step: failed.reached.is_set()))
        failed.opened.set()
        raise ConnectionError

    async def body(job: Any, octx: Any) -> None:
        await octx.all(swallows, fails)

    bench.define(body)
    bench.start()
    assert bench.ended(bench.add(max_attempts=1)).status == "failed"
    assert sorted(bench.ran) == ["meets", "waits"]


@pytest.mark.parametrize("depth", [1, 2])
def test_a_compensated_failure_of_branches_stays_compensated(bench: Bench, depth: int) -> None:
    """What was not started when a branch had failed must not be started after its undoing."""
    undone: list[list[str]] = []

    def in_branches(octx: Any, *branches: Any) -> Any:
        async def inside(octx: Any) -> Any:
            return await octx.all(*branches)

        return octx.all(*branches) if depth == 1 else octx.all(inside)

    async def body(job: Any, octx: Any) -> None:
        booked: list[str] = []

        async def hotel(octx: Any) -> None:
            await octx.step("hotel", waits_until(bench, "hotel", lambda step: "flight" in bench.ran))
            booked.append("hotel")
            await octx.step("hotel extra", bench.does("hotel extra"))
            booked.append("hotel extra")

        async def flight(octx: Any) -> None:
            await octx.step("seat", bench.does("seat"))
            booked.append("seat")
            await octx.step("flight", bench.does("flight", act=raising(ConnectionError("full", 7))))

        try:
            await in_branches(octx, hotel, flight)
        except ConnectionError as error:
            assert error.args == ("full", 7)  # noqa: PT017  # in every run
            undone.append(sorted(booked))
            for name in sorted(booked):
                await octx.step(f"undo {name}", bench.does(f"undo {name}"))
        if job.attempt <= 2:
            raise Crash

    job = bench.done(body, max_attempts=5)
    assert (job.status, job.error, job.attempt) == ("completed", None, 3)
    assert bench.ran.count("hotel extra") == undone[0].count("hotel extra")
    assert undone == [undone[0]] * 3
    assert len(bench.ran) == len(set(bench.ran))


def test_a_group_after_which_the_body_went_on_in_a_group_stays_as_it_was(bench: Bench) -> None:
    failed = Gate()

    def has_failed(step: Any) -> bool:
        failed.reached.set()
        return failed.opened.is_set()

    async def body(job: Any, octx: Any) -> None:
        async def stopped(octx: Any) -> None:
            await octx.step("waits", waits_until(bench, "waits", has_failed))
            await octx.step("never", bench.does("never"))

        async def fails(octx: Any) -> None:
            await octx.step("meets", waits_until(bench, "meets", lambda step: failed.reached.is_set()))
            failed.opened.set()
            raise ConnectionError("by itself")

        with suppress(ConnectionError):
            await octx.all(stopped, fails)
        await octx.all(giving(bench, "undo 1"), giving(bench, "undo 2"))
        if job.attempt == 1:
            raise Crash

    job = bench.done(body)
    assert (job.status, job.error, job.attempt) == ("completed", None, 2)
    assert bench.ran.count("never") == 0
    assert sorted(bench.ran) == ["meets", "undo 1", "undo 2", "waits"]


def test_groups_in_a_branch_that_was_done_before_another_failed_are_replayed(bench: Bench) -> None:
    async def body(job: Any, octx: Any) -> None:
        async def done(octx: Any) -> None:
            await octx.step("a", bench.does("a"))
            await octx.all(giving(bench, "b"), giving(bench, "c"))

        async def fails(octx: Any) -> None:
            await octx.step("fails", waits_until(bench, "fails", lambda step: len(bench.steps(step.job_id)) == 3))
            raise ConnectionError

        with suppress(ConnectionError):
            await octx.all(fails, done)
        await octx.step("later", bench.does("later"))
        if job.attempt == 1:
            raise Crash

    job = bench.done(body)
    assert (job.status, job.error, job.attempt) == ("completed", None, 2)
    assert sorted(bench.ran) == ["a", "b", "c", "fails", "later"]


@pytest.mark.parametrize("edit", ["a step at the end of a branch", "a branch", "branches in a branch"])
def test_what_is_added_to_branches_behind_which_the_body_went_on_is_refused(bench: Bench, edit: str) -> None:
    async def body(job: Any, octx: Any) -> None:
        edited = job.attempt == 2

        async def first(octx: Any) -> None:
            await octx.step("a", bench.does("a"))
            if edited and edit == "a step at the end of a branch":
                await octx.step("NEW", bench.does("NEW"))
            if edited and edit == "branches in a branch":
                await octx.all(giving(bench, "NEW"))

        more = [giving(bench, "NEW")] if edited and edit == "a branch" else []
        await octx.all(first, giving(bench, "b"), *more)
        await octx.step("c", bench.does("c"))
        if job.attempt == 1:
            raise Crash

    job = bench.done(body)
    assert sorted(bench.ran) == ["a", "b", "c"]
    assert (job.status, job.failure_kind) == ("failed", "fatal")
    assert job.error is not None
    assert job.error["name"] == "NondeterminismError"
    assert ("'NEW'" if edit != "branches in a branch" else "1 branches") in job.error["message"]


def test_branches_beside_which_the_body_goes_on_may_go_on_after_a_crash(async_bench: Bench) -> None:
    bench = async_bench
    seen: list[Any] = []

    async def body(job: Any, octx: Any) -> None:
        async def slow(octx: Any) -> Any:
            await octx.step("a", waits_until(bench, "a", lambda step: beside or job.attempt == 2))
            if job.attempt == 1:
                raise Crash
            return await octx.step("b", bench.does("b", "b"))

        group = octx.all(slow)
        beside.append(await octx.step("beside", bench.does("beside", 1)))
        seen.append(await group)

    beside: list[int] = []
    job = bench.done(body)
    assert (job.status, job.error) == ("completed", None)
    assert seen == [["b"]]
    assert bench.ran == ["beside", "a", "b"]


def test_a_branch_that_returns_with_a_step_running_is_an_error_that_names_it(async_bench: Bench) -> None:
    bench, gate = async_bench, Gate()
    left = []

    async def body(job: Any, octx: Any) -> None:
        async def branch(octx: Any) -> None:
            left.append(octx.step("left behind", gate.hold))
            gate.opened.set()

        await octx.all(branch)

    job = bench.done(body)
    assert job.failure_kind == "fatal"
    assert job.error is not None
    assert "'left behind'" in job.error["message"]
