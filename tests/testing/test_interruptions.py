"""A worker that has died does nothing more, whatever its body does; nor does one that has lost its lease."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from durabl_ext import RunAborted
from durabl_ext.testing import CrashNotReached, OrchestrationHarness
from simplequeue import Status

KINDS = pytest.mark.parametrize("kind", [0, 1], ids=["def", "async def"])
INTERRUPT = pytest.mark.parametrize("interrupt", ["crash_before", "crash_after", "lose_lease_before"])


@INTERRUPT
@KINDS
def test_a_body_that_catches_everything_starts_no_step_after_it(kind: int, interrupt: str) -> None:
    done: list[str] = []
    caught: list[str] = []

    def note(step: Any, name: str) -> str:
        done.append(name)
        return name

    def waiting(job: Any, octx: Any) -> None:
        for name in ("a", "b", "c"):
            try:
                octx.step(name, note, name)
            except BaseException as error:
                caught.append(type(error).__name__)
        octx.log("went on to its end")

    async def awaiting(job: Any, octx: Any) -> None:
        for name in ("a", "b", "c"):
            try:
                await octx.step(name, note, name)
            except BaseException as error:
                caught.append(type(error).__name__)
        octx.log("went on to its end")

    harness = OrchestrationHarness((waiting, awaiting)[kind])
    getattr(harness, interrupt)("b")
    assert len(caught) == 2
    if interrupt == "lose_lease_before":
        assert done == ["a", "b", "b", "c"]  # the second b and c are the other worker's
        assert harness.logs == ["went on to its end"]
    else:
        assert done == ["a", "b"]
        assert caught == ["WorkerDied", "WorkerDied"]
        assert harness.logs == []
        assert [step.name for step in harness.steps] == ["a", "b"][: 1 + (interrupt == "crash_after")]
        assert harness.job.status is Status.RUNNING
        harness.resume()
    assert [step.name for step in harness.steps] == ["a", "b", "c"]
    assert harness.job.status is Status.COMPLETED


@INTERRUPT
@KINDS
def test_steps_and_heartbeats_in_finally_have_no_effect_after_it(kind: int, interrupt: str) -> None:
    undone: list[str] = []

    def waiting(job: Any, octx: Any) -> None:
        try:
            octx.step("a", lambda step: None)
        except BaseException:
            octx.step("undo", lambda step: undone.append("a"))
        finally:
            octx.heartbeat()

    async def awaiting(job: Any, octx: Any) -> None:
        try:
            await octx.step("a", lambda step: None)
        except BaseException:
            await octx.step("undo", lambda step: undone.append("a"))
        finally:
            await octx.heartbeat()

    harness = OrchestrationHarness((waiting, awaiting)[kind])
    getattr(harness, interrupt)("a")
    assert undone == []
    assert [step.name for step in harness.steps] == ([] if interrupt == "crash_before" else ["a"])


@INTERRUPT
def test_steps_beside_it_in_a_gather_change_nothing_after_it(interrupt: str) -> None:
    finished: list[str] = []

    async def work(step: Any, name: str) -> str:
        await asyncio.sleep({"quick": 0.01, "slow": 0.3}[name])
        finished.append(name)
        return name

    async def body(job: Any, octx: Any) -> None:
        await asyncio.gather(octx.step("slow", work, "slow"), octx.step("quick", work, "quick"))
        await octx.step("end", work, "quick")

    harness = OrchestrationHarness(body)
    getattr(harness, interrupt)("quick")
    if interrupt == "lose_lease_before":
        assert [step.name for step in harness.steps] == ["quick", "slow", "end"]
    else:
        assert "slow" not in finished, "what a dead worker has begun is waited for"
        assert [step.name for step in harness.steps] == (["quick"] if interrupt == "crash_after" else [])
        harness.resume()
        assert sorted(step.name for step in harness.steps) == ["end", "quick", "slow"]


@pytest.mark.parametrize("interrupt", ["crash_before", "crash_after"])
@KINDS
def test_a_step_that_ends_after_its_worker_died_is_not_journaled(kind: int, interrupt: str) -> None:
    ended: list[str] = []

    def slow(step: Any) -> str:
        if not ended:  # in the first run
            assert step.signal.wait(20), "what a dead worker has begun is told to end"
        ended.append("slow")
        return "slow"

    def waiting(job: Any, octx: Any) -> None:
        octx.all(lambda octx: octx.step("slow", slow), lambda octx: octx.step("quick", lambda step: None))

    async def awaiting(job: Any, octx: Any) -> None:
        await asyncio.gather(octx.step("slow", slow), octx.step("quick", lambda step: None))

    harness = OrchestrationHarness((waiting, awaiting)[kind])
    getattr(harness, interrupt)("quick")
    assert ended == ["slow"]
    assert [step.name for step in harness.steps] == (["quick"] if interrupt == "crash_after" else [])
    harness.resume()
    assert ended == ["slow", "slow"]


def test_a_run_that_lost_its_lease_ends_after_the_other_worker_at_the_earliest() -> None:
    async def pay(step: Any) -> None:
        raise ValueError("declined")

    async def nap(step: Any, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def body(job: Any, octx: Any) -> None:
        with suppress(ValueError):
            await octx.step("pay", pay)
        # The write of that failure begins the first of these. Meanwhile the second finds that the lease is lost, and
        # the whole body is cancelled.
        seconds = 0.01 if job.attempt == 1 else 0.4
        await asyncio.gather(octx.step("tell", nap, seconds), octx.step("note", nap, seconds))

    harness = OrchestrationHarness(body)
    harness.lose_lease_before("pay")
    assert harness.job.status is Status.COMPLETED
    assert sorted(step.name for step in harness.steps) == ["note", "pay", "tell"]


@INTERRUPT
@KINDS
def test_branches_beside_it_change_nothing_after_it(kind: int, interrupt: str) -> None:
    done: list[str] = []

    def note(step: Any) -> str:
        done.append(step.seq)
        return str(step.seq)

    def waiting(job: Any, octx: Any) -> None:
        def branch(octx: Any) -> None:
            for _ in range(3):
                octx.step("work", note)

        octx.all(branch, branch, branch)

    async def awaiting(job: Any, octx: Any) -> None:
        async def branch(octx: Any) -> None:
            for _ in range(3):
                await octx.step("work", note)

        await octx.all(branch, branch, branch)

    harness = OrchestrationHarness((waiting, awaiting)[kind])
    getattr(harness, interrupt)("work", seq="0.1.1")
    if interrupt != "lose_lease_before":
        kept = {step.seq for step in harness.steps}
        assert ("0.1.1" in kept) == (interrupt == "crash_after")
        assert "0.1.2" not in done
        before = list(done)
        harness.resume()
        assert not kept.intersection(done[len(before) :]), "a step in the journal has run again"
    assert {step.seq for step in harness.steps} == {f"0.{branch}.{n}" for branch in range(3) for n in range(3)}
    assert harness.job.status is Status.COMPLETED


@KINDS
def test_a_crash_before_what_now_goes_by_keeps_nothing(kind: int) -> None:
    def waiting(job: Any, octx: Any) -> None:
        octx.now()
        octx.step("start", lambda step: None)

    async def awaiting(job: Any, octx: Any) -> None:
        await octx.uuid("a")
        await octx.step("start", lambda step: None)

    harness = OrchestrationHarness((waiting, awaiting)[kind])
    harness.crash_before("start", seq="start")
    assert harness.job.document["durable"].get("steps") is None
    harness.crash_after("start", seq="start")
    assert [record["seq"] for record in harness.job.document["durable"]["steps"]] == ["start"]
    harness.crash_before("start")
    assert [record["seq"] for record in harness.job.document["durable"]["steps"]] == ["start"]
    harness.resume()
    assert [step.seq for step in harness.steps] == ["0"]
    named = OrchestrationHarness((waiting, awaiting)[kind])
    named.crash_after("start", occurrence=1)
    assert [step.seq for step in named.steps] == ["0"]


@KINDS
def test_the_failure_of_a_step_is_a_write_like_any(kind: int) -> None:
    pays: list[str] = []

    def pay(step: Any) -> None:
        pays.append("pay")
        raise ValueError("declined")

    def waiting(job: Any, octx: Any) -> None:
        try:
            octx.step("pay", pay)
        except ValueError:
            octx.step("tell", lambda step: "declined")

    async def awaiting(job: Any, octx: Any) -> None:
        try:
            await octx.step("pay", pay)
        except ValueError:
            await octx.step("tell", lambda step: "declined")

    harness = OrchestrationHarness((waiting, awaiting)[kind])
    harness.crash_before("pay")
    assert pays == ["pay"]
    harness.crash_after("pay")
    assert pays == ["pay", "pay"]
    assert [(step.name, step.failed) for step in harness.steps] == [("pay", True)]
    harness.resume()
    assert pays == ["pay", "pay"]
    assert [(step.name, step.failed) for step in harness.steps] == [("pay", True), ("tell", False)]


def test_what_the_other_worker_s_run_raises_is_raised() -> None:
    runs: list[int] = []

    def body(job: Any, octx: Any) -> None:
        runs.append(job.attempt)
        octx.step("a", lambda step: None)
        if len(runs) > 1:
            raise OSError("the other one")

    with pytest.raises(OSError, match="the other one"):
        OrchestrationHarness(body).lose_lease_before("a")


@KINDS
def test_a_body_learns_of_its_lost_lease(kind: int) -> None:
    told: list[Any] = []

    def waiting(job: Any, octx: Any) -> None:
        try:
            octx.step("a", lambda step: None)
        except RunAborted as error:
            told.append((error.reason, octx.signal.is_set()))
            raise

    async def awaiting(job: Any, octx: Any) -> None:
        try:
            await octx.step("a", lambda step: None)
        except RunAborted as error:
            told.append((error.reason, octx.signal.is_set()))
            raise

    OrchestrationHarness((waiting, awaiting)[kind]).lose_lease_before("a")
    assert told == [("lease-lost", True)]


def test_a_lease_that_is_lost_at_a_step_that_never_comes_is_an_error() -> None:
    with pytest.raises(CrashNotReached):
        OrchestrationHarness(lambda job, octx: None).lose_lease_before("a")


def test_a_step_left_behind_by_its_timeout_changes_nothing_later() -> None:
    async def main() -> None:
        harness = OrchestrationHarness(
            lambda job, octx: octx.step("slow", lambda step: time.sleep(1.5)), step_timeout=0.05
        )
        with pytest.raises(TimeoutError):
            harness.run()
        before = harness.job.document
        await asyncio.sleep(0.6)
        assert harness.job.document == before

    asyncio.run(main())
