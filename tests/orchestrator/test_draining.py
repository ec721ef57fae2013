"""A shutdown in the middle of a step: what has ended is kept, the job is given back, and no attempt is spent."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from durabl_ext import RunAborted
from tests.orchestrator.conftest import Bench, Gate
from tests.watching import until


def draining(bench: Bench) -> threading.Thread:
    """Begins a shutdown that waits for nothing, and gives its thread."""
    front = bench.front
    thread = threading.Thread(target=lambda: front.shutdown(0))
    thread.start()
    return thread


def told(gate: Gate, result: str) -> Any:
    """A ``def`` function that ends once its signal is set."""

    def fn(step: Any) -> str:
        gate.reached.set()
        assert step.signal.wait(60)
        return result

    return fn


def again(bench: Bench, body: Any) -> None:
    """Works on with a queue of another process."""
    bench.open()
    bench.define(body)
    bench.start()


def test_the_result_of_a_def_function_that_ends_after_it_was_told_is_kept_and_no_attempt_is_spent(
    bench: Bench,
) -> None:
    gate = Gate()

    async def body(job: Any, octx: Any) -> None:
        fn = told(gate, "kept")
        assert await octx.step("told", fn) == "kept"
        await octx.step("later", bench.does("later"))

    bench.define(body)
    bench.start()
    id = bench.add(max_attempts=1)
    gate.wait()
    draining(bench).join()
    job = bench.job(id)
    assert (job.status, job.attempt, job.error) == ("queued", 0, None)
    assert [step["result"] for step in bench.steps(id)] == ["kept"]
    assert bench.ran == []
    again(bench, body)
    job = bench.ended(id)
    assert (job.status, job.attempt, bench.ran) == ("completed", 1, ["later"])


def test_a_body_whose_last_step_ends_after_it_was_told_is_not_done_twice(bench: Bench) -> None:
    gate = Gate()

    async def body(job: Any, octx: Any) -> None:
        assert await octx.step("told", told(gate, "kept")) == "kept"
        bench.ran.append("end")

    bench.define(body)
    bench.start()
    id = bench.add(max_attempts=1)
    gate.wait()
    draining(bench).join()
    assert bench.job(id).status in ("completed", "queued")
    again(bench, body)
    assert bench.ended(id).status == "completed"
    assert bench.ran == ["end"]


def test_an_async_function_is_cancelled_and_runs_again_with_the_same_key(async_bench: Bench) -> None:
    bench, gate = async_bench, Gate()
    keys: list[str] = []

    async def fn(step: Any) -> None:
        keys.append(step.idempotency_key)
        gate.reached.set()
        if len(keys) == 1:
            await asyncio.Event().wait()

    async def body(job: Any, octx: Any) -> None:
        await octx.step("first", bench.does("first"))
        await octx.step("fn", fn)

    bench.define(body)
    bench.start()
    id = bench.add(max_attempts=1)
    gate.wait()
    draining(bench).join()
    job = bench.job(id)
    assert (job.status, job.attempt) == ("queued", 0)
    again(bench, body)
    assert bench.ended(id).status == "completed"
    assert keys == [f"{id}:1:fn"] * 2
    assert bench.ran == ["first"]


def test_an_async_function_that_ends_all_the_same_is_kept(async_bench: Bench) -> None:
    bench, gate = async_bench, Gate()

    async def fn(step: Any) -> str:
        gate.reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            bench.ran.append("paid")
            return "paid"
        return ""

    async def body(job: Any, octx: Any) -> None:
        assert await octx.step("fn", fn) == "paid"
        await octx.step("later", bench.does("later"))

    bench.define(body)
    bench.start()
    id = bench.add(max_attempts=1)
    gate.wait()
    draining(bench).join()
    assert [step["result"] for step in bench.steps(id)] == ["paid"]
    again(bench, body)
    assert bench.ended(id).status == "completed"
    assert bench.ran == ["paid", "later"]


def test_branches_are_told_together_and_what_each_has_ended_is_kept(bench: Bench) -> None:
    gates = [Gate(), Gate()]

    async def body(job: Any, octx: Any) -> None:
        def branch(n: int) -> Any:
            async def branched(octx: Any) -> None:
                await octx.step(f"told {n}", told(gates[n], f"kept {n}"))
                await octx.step(f"later {n}", bench.does(f"later {n}"))

            return branched

        await octx.all(branch(0), branch(1))

    bench.define(body)
    bench.start()
    id = bench.add(max_attempts=1)
    for gate in gates:
        gate.wait()
    draining(bench).join()
    assert sorted(step["result"] for step in bench.steps(id)) == ["kept 0", "kept 1"]
    assert bench.ran == []
    again(bench, body)
    assert bench.ended(id).status == "completed"
    assert sorted(bench.ran) == ["later 0", "later 1"]


def test_a_run_is_not_given_back_before_its_def_body_has_ended(def_bench: Bench) -> None:
    bench, gate = def_bench, Gate()
    live: list[int] = []
    most: list[int] = []

    async def body(job: Any, octx: Any) -> None:
        live.append(1)
        most.append(len(live))
        try:
            await octx.step("told", told(gate, "kept") if len(most) == 1 else bench.does("again"))
            await octx.step("later", bench.does("later"))
        except RunAborted:
            assert bench.job(job.id).status == "running"  # its end is this exception's
            raise
        finally:
            live.pop()

    bench.define(body)
    bench.start()
    id = bench.add(max_attempts=1)
    gate.wait()
    thread = draining(bench)
    again(bench, body)
    thread.join()
    assert bench.ended(id).status == "completed"
    assert most == [1, 1]
    assert bench.ran == ["later"]


def test_what_goes_on_after_its_run_was_given_back_changes_nothing(bench: Bench) -> None:
    gate, others = Gate(), set(threading.enumerate())

    async def swallows(step: Any) -> str:
        gate.reached.set()
        while not gate.opened.is_set():
            try:
                await asyncio.to_thread(gate.opened.wait, 60)
            except asyncio.CancelledError:
                bench.ran.append("told")
        return "orphan"

    def hangs(step: Any) -> str:
        gate.hold()
        return "orphan"

    async def body(job: Any, octx: Any) -> None:
        await octx.step("hangs", hangs if bench.flavour == "def" else swallows)
        bench.ran.append("end")

    bench.define(body)
    bench.start()
    id = bench.add(max_attempts=1)
    gate.wait()
    assert bench.front.shutdown(0) is False
    stored = bench.db.job.find_one({"_id": id})
    assert stored is not None
    assert (stored["status"], stored["durable"]["attempt"]) == ("queued", 0)
    gate.opened.set()
    until(lambda: "durabl-worker" not in {thread.name for thread in {*threading.enumerate()} - others})
    assert "end" not in bench.ran
    assert bench.db.job.find_one({"_id": id}) == stored


@pytest.mark.parametrize("transactional", [False, True])
def test_a_shutdown_between_steps_ends_the_run_at_the_next(bench: Bench, transactional: bool) -> None:
    gate = Gate()

    async def body(job: Any, octx: Any) -> None:
        await octx.step("first", bench.does("first"))
        if len(bench.ran) == 1:
            gate.reached.set()
            waiting = octx.signal.wait(60)
            if not isinstance(waiting, bool):
                await waiting
        await octx.step("second", bench.does("second"), transactional=transactional)

    bench.define(body)
    bench.start()
    id = bench.add(max_attempts=1)
    gate.wait()
    draining(bench).join()
    job = bench.job(id)
    assert (job.status, job.attempt, bench.ran) == ("queued", 0, ["first"])
    bench.ran.append("shut down")
    again(bench, body)
    assert bench.ended(id).status == "completed"
    assert bench.ran == ["first", "shut down", "second"]
