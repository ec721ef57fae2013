"""What hangs: its run ends as a failure to be tried again, its slot is free, what is left behind changes nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from durabl_ext import PayloadError
from durabl_ext.orchestrator import awaiting, watchdog
from tests.orchestrator.conftest import Bench, Gate
from tests.watching import until

GENEROUS = 20.0
"""Seconds within which what should take two has to be over, on a machine that is busy."""


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told to end has a tenth of a second for it, so that these tests take less time."""
    for module in (awaiting, watchdog):
        monkeypatch.setattr(module, "GRACE", 0.1)


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Where the hung ones hang; opened at the end at the latest."""
    made = Gate()
    yield made
    made.opened.set()


def hung(gate: Gate) -> Any:
    """A ``def`` function that heeds no signal."""

    def fn(step: Any) -> str:
        gate.hold()
        return "late"

    return fn


def cancelled(gate: Gate) -> Any:
    """An ``async def`` function that is cancelled."""

    async def fn(step: Any) -> None:
        gate.reached.set()
        await asyncio.Event().wait()

    return fn


def swallowing(gate: Gate) -> Any:
    """An ``async def`` function that heeds no cancellation."""

    async def fn(step: Any) -> str:
        gate.reached.set()
        while not gate.opened.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.to_thread(gate.opened.wait, 60)
        return "late"

    return fn


def ends_though(bench: Bench, gate: Gate, body: Any, error: str, **options: Any) -> None:
    """A run of the body ends, another job has the slot meanwhile, and the next attempt completes it."""
    bench.define(body, **options)
    bench.start()
    began = time.monotonic()
    id = bench.add(max_attempts=2, backoff_delay=0.3)
    gate.wait()
    until(lambda: bench.job(id).status == "queued", GENEROUS)
    assert time.monotonic() - began < GENEROUS
    job = bench.job(id)
    assert job.error is not None
    assert (job.error["name"], job.attempt, job.lease_expires_at) == (error, 1, None)
    other = bench.ended(bench.add(data={"quick": True}))  # one slot: the hung run does not have it
    assert other.status == "completed"
    job = bench.ended(id)
    assert (job.status, job.attempt) == ("completed", 2)
    stored = bench.db.job.find_one({"_id": id})
    gate.opened.set()
    assert bench.front.shutdown(GENEROUS)
    assert bench.db.job.find_one({"_id": id}) == stored
    assert [step.get("result") for step in bench.steps(id)] == ["before", "again"]


def hanging(bench: Bench, fn: Any, **options: Any) -> Any:
    """A body whose second step hangs in the first run."""

    async def body(job: Any, octx: Any) -> None:
        if job.data.get("quick"):
            return
        await octx.step("before", bench.does("before", "before"))
        hangs = job.attempt == 1
        await octx.step("hangs", fn if hangs else bench.does("again", "again"), **options)

    return body


@pytest.mark.parametrize("kind", [hung, cancelled, swallowing], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("where", ["of the step", "of all steps", "of the run"])
def test_a_step_that_hangs_ends_the_run_of_an_async_body(async_bench: Bench, gate: Gate, kind: Any, where: str) -> None:
    if where == "of the step":
        ends_though(async_bench, gate, hanging(async_bench, kind(gate), timeout=0.2), "StepTimeout")
    elif where == "of all steps":
        body = hanging(async_bench, kind(gate))
        ends_though(async_bench, gate, body, "StepTimeout", step_timeout=timedelta(seconds=0.2))
    else:
        ends_though(async_bench, gate, hanging(async_bench, kind(gate)), "MaxDurationExceeded", max_duration=0.4)


def test_a_step_has_the_time_of_all_steps_unless_it_says_otherwise(async_bench: Bench, gate: Gate) -> None:
    ends_though(async_bench, gate, hanging(async_bench, cancelled(gate)), "StepTimeout", step_timeout=0.2)


@pytest.mark.parametrize("where", ["of the step", "of all steps", "of the run"])
def test_a_step_that_hangs_ends_the_run_of_a_def_body(def_bench: Bench, gate: Gate, where: str) -> None:
    if where == "of the step":
        ends_though(def_bench, gate, hanging(def_bench, hung(gate), timeout=0.2), "StepTimeout")
    elif where == "of all steps":
        ends_though(def_bench, gate, hanging(def_bench, hung(gate)), "StepTimeout", step_timeout=0.2)
    else:
        ends_though(def_bench, gate, hanging(def_bench, hung(gate)), "MaxDurationExceeded", max_duration=0.4)


def test_a_step_in_a_branch_that_hangs_ends_the_run(bench: Bench, gate: Gate) -> None:
    async def body(job: Any, octx: Any) -> None:
        if job.data.get("quick"):
            return
        await octx.step("before", bench.does("before", "before"))

        async def branch(octx: Any) -> None:
            fn = (hung if bench.flavour == "def" else cancelled)(gate)
            await octx.step("hangs", fn if job.attempt == 1 else bench.does("again", "again"), timeout=0.2)

        await octx.all(branch)

    ends_though(bench, gate, body, "StepTimeout")


def test_a_control_path_that_hangs_ends_the_run(bench: Bench, gate: Gate) -> None:
    async def body(job: Any, octx: Any) -> None:
        if job.data.get("quick"):
            return
        await octx.step("before", bench.does("before", "before"))
        if job.attempt == 1:
            if bench.flavour == "def":
                gate.hold()
            else:
                gate.reached.set()
                while not gate.opened.is_set():
                    with suppress(asyncio.CancelledError):
                        await asyncio.to_thread(gate.opened.wait, 60)
            with suppress(BaseException):
                await octx.step("late", bench.does("late", "late"))
        else:
            await octx.step("again", bench.does("again", "again"))

    ends_though(bench, gate, body, "MaxDurationExceeded", max_duration=0.4)
    assert "late" not in bench.ran


def test_the_heartbeats_of_a_run_that_is_left_behind_stop(bench: Bench, gate: Gate) -> None:
    bench.open(visibility_timeout=0.6)
    fn = hung(gate) if bench.flavour == "def" else swallowing(gate)
    bench.define(hanging(bench, fn, timeout=0.2))
    bench.start()
    id = bench.add(max_attempts=1)
    job = bench.ended(id)
    assert (job.failure_kind, job.lease_expires_at) == ("retries-exhausted", None)
    beats = bench.db.job.find_one({"_id": id})
    other = bench.add("none", run_at=job.updated_at + timedelta(seconds=1.2))
    until(lambda: bench.front.get_stats("none").oldest_queued_lag > 0 if other else False)  # two leases later
    assert bench.db.job.find_one({"_id": id}) == beats


def test_a_step_that_heeds_its_signal_is_told_in_time_and_leaves_no_thread_behind(def_bench: Bench) -> None:
    bench = def_bench
    reasons: list[Any] = []

    def heeds(step: Any) -> None:
        step.signal.wait(60)
        reasons.append(step.signal.reason)

    async def body(job: Any, octx: Any) -> None:
        await octx.step("heeds", heeds, timeout=0.2)

    bench.define(body)
    bench.start()
    job = bench.ended(bench.add(max_attempts=1))
    assert job.error is not None
    assert (job.error["name"], reasons) == ("StepTimeout", ["deadline"])


def test_a_body_may_go_on_after_a_step_that_took_too_long(bench: Bench, gate: Gate) -> None:
    async def slow(step: Any) -> None:
        await asyncio.Event().wait()

    def heeds(step: Any) -> None:
        step.signal.wait(60)

    async def body(job: Any, octx: Any) -> None:
        with suppress(TimeoutError):
            await octx.step("slow", heeds if bench.flavour == "def" else slow, timeout=0.2)
        await octx.step("later", bench.does("later"))

    job = bench.done(body)
    assert (job.status, job.attempt, bench.ran) == ("completed", 1, ["later"])
    assert [("error" in step, step["name"]) for step in bench.steps(job.id)] == [(True, "slow"), (False, "later")]


def test_what_ends_in_time_is_no_failure_however_many_limits_there_were(bench: Bench) -> None:
    async def body(job: Any, octx: Any) -> None:
        for n in range(30):
            await octx.step("quick", bench.does("quick"), timeout=30 - n)

    bench.define(body, max_duration=60, step_timeout=60)
    bench.start()
    assert bench.ended(bench.add()).status == "completed"
    assert len(bench.ran) == 30
    left = [thread.name for thread in threading.enumerate() if "watch" in thread.name]
    assert left == []


@pytest.mark.parametrize("option", ["step_timeout", "max_duration"])
@pytest.mark.parametrize("value", [0, -1, "x", float("nan")])
def test_a_limit_is_more_than_no_time(bench: Bench, option: str, value: Any) -> None:
    async def body(job: Any, octx: Any) -> None: ...

    with pytest.raises(PayloadError, match=option):
        bench.define(body, **{option: value})
