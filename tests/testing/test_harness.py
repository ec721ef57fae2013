"""The harness: what a test can do to a body, and what it sees of it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from durabl_ext import (
    JournalTooLarge,
    NondeterminismError,
    NonRetryable,
    NonSerializableStepResult,
    PayloadError,
    StepTimeout,
    TransactionsUnsupportedError,
)
from durabl_ext.testing import CrashNotReached, OrchestrationHarness
from simplequeue import Status
from tests.testing.provider import Body, Provider, two_steps

KINDS = pytest.mark.parametrize("kind", [0, 1], ids=["def", "async def"])
DATA = {"who": "ada"}


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture(params=[0, 1], ids=["def", "async def"])
def body(request: pytest.FixtureRequest, provider: Provider) -> Body:
    made: Body = two_steps(provider)[request.param]
    return made


def test_a_run_calls_each_step_and_completes_the_job(body: Body, provider: Provider) -> None:
    harness = OrchestrationHarness(body, data=DATA)
    job = harness.run()
    assert job.status is Status.COMPLETED
    assert provider.calls == ["ada", "ship ship"]
    assert [(step.seq, step.name, step.result) for step in harness.steps] == [
        ("0", "charge", "receipt of ada"),
        ("1", "ship", "parcel for receipt of ada"),
    ]
    assert harness.logs == ["charged in attempt 1"]
    assert harness.attempts == 1


def test_a_step_that_was_journaled_before_a_crash_is_skipped_by_resume(body: Body, provider: Provider) -> None:
    harness = OrchestrationHarness(body, data=DATA)
    harness.crash_after("charge")
    assert [step.name for step in harness.steps] == ["charge"]
    assert harness.job.status is Status.RUNNING
    assert harness.resume().status is Status.COMPLETED
    assert provider.calls == ["ada", "ship ship"]
    assert [step.name for step in harness.steps] == ["charge", "ship"]
    assert harness.attempts == 2


def test_a_step_that_was_not_journaled_before_a_crash_runs_again_with_its_key(body: Body, provider: Provider) -> None:
    harness = OrchestrationHarness(body, data=DATA)
    harness.crash_before("charge")
    assert harness.steps == []
    harness.resume()
    assert provider.calls == ["ada", "ada", "ship ship"]
    assert provider.charged == [("ada", 5)]


def test_a_job_may_crash_at_one_step_after_another(body: Body, provider: Provider) -> None:
    harness = OrchestrationHarness(body, data=DATA)
    for _ in range(5):  # more often than it has attempts
        harness.crash_before("charge")
    harness.crash_after("charge")
    harness.crash_before("ship")
    harness.crash_after("ship")
    assert harness.resume().status is Status.COMPLETED
    assert harness.attempts == 9
    assert provider.charged == [("ada", 5)]


def test_a_completed_job_that_is_resumed_is_a_second_delivery_and_calls_nothing(body: Body, provider: Provider) -> None:
    harness = OrchestrationHarness(body, data=DATA)
    harness.run()
    calls = list(provider.calls)
    for _ in range(4):
        assert harness.resume().status is Status.COMPLETED
    assert provider.calls == calls
    assert harness.attempts == 5


def test_a_lost_lease_has_another_worker_end_the_job_and_the_first_change_nothing(
    body: Body, provider: Provider
) -> None:
    harness = OrchestrationHarness(body, data=DATA)
    harness.lose_lease_before("charge")
    assert harness.job.status is Status.COMPLETED
    assert provider.calls == ["ada", "ada", "ship ship"]
    assert harness.logs == ["charged in attempt 2"]
    assert harness.attempts == 2


def test_what_was_logged_until_a_crash_is_there_and_nothing_after_it(provider: Provider) -> None:
    def logs(job: Any, octx: Any) -> None:
        octx.log("before")
        try:
            octx.step("a", lambda step: octx.log("inside"))
        finally:
            octx.log("after")

    harness = OrchestrationHarness(logs)
    harness.crash_before("a")
    assert harness.logs == ["before", "inside"]


def test_a_crash_at_a_step_that_never_comes_says_what_came(body: Body) -> None:
    harness = OrchestrationHarness(body, data=DATA)
    with pytest.raises(CrashNotReached) as raised:
        harness.crash_after("chrage")
    assert str(raised.value) == (
        "nothing was interrupted: the run returned and did not write step 'chrage'. The journal has 'charge' at 0, "
        "'ship' at 1; a step that is in it is not written again"
    )
    assert harness.job.status is Status.COMPLETED


def test_a_crash_behind_the_end_of_a_body_that_failed_says_how_it_failed() -> None:
    def fails(job: Any, octx: Any) -> None:
        raise LookupError("no such user")

    with pytest.raises(CrashNotReached, match="raised LookupError: no such user and did not write step 'a'") as raised:
        OrchestrationHarness(fails).crash_before("a")
    assert isinstance(raised.value.__cause__, LookupError)


def test_a_step_in_the_journal_cannot_crash_again(body: Body) -> None:
    harness = OrchestrationHarness(body, data=DATA)
    harness.crash_after("charge")
    with pytest.raises(CrashNotReached, match="a step that is in it is not written again"):
        harness.crash_after("charge")


@KINDS
def test_occurrences_of_a_name_count_over_all_runs(kind: int) -> None:
    sent: list[int] = []

    def waiting(job: Any, octx: Any) -> None:
        for n in range(4):
            octx.step("send", lambda step, n: sent.append(n), n)

    async def awaiting(job: Any, octx: Any) -> None:
        for n in range(4):
            await octx.step("send", lambda step, n: sent.append(n), n)

    harness = OrchestrationHarness((waiting, awaiting)[kind])
    harness.crash_after("send", occurrence=2)
    assert sent == [0, 1]
    harness.crash_before("send", occurrence=3)
    assert sent == [0, 1, 2]
    with pytest.raises(CrashNotReached, match="occurrence 2 of step 'send'"):
        harness.crash_before("send", occurrence=2)
    assert sent == [0, 1, 2, 2, 3]


@KINDS
def test_a_place_tells_steps_of_one_name_in_nested_branches_apart(kind: int) -> None:
    done: list[str] = []

    def note(step: Any) -> str:
        done.append(step.seq)
        return str(step.seq)

    def waiting(job: Any, octx: Any) -> None:
        def leaf(octx: Any) -> Any:
            return octx.step("work", note)

        octx.all(leaf, lambda octx: octx.all(leaf, leaf))
        octx.step("end", note)

    async def awaiting(job: Any, octx: Any) -> None:
        async def leaf(octx: Any) -> Any:
            return await octx.step("work", note)

        async def inner(octx: Any) -> Any:
            return await octx.all(leaf, leaf)

        await octx.all(leaf, inner)
        await octx.step("end", note)

    harness = OrchestrationHarness((waiting, awaiting)[kind])
    harness.crash_before("work", seq="0.1.0.1.0")
    assert "0.1.0.1.0" not in [step.seq for step in harness.steps]
    assert "end" not in done
    harness.resume()
    assert sorted(step.seq for step in harness.steps) == ["0.0.0", "0.1.0.0.0", "0.1.0.1.0", "1"]


def test_what_a_body_raises_is_raised_and_stored_and_resume_is_the_next_attempt() -> None:
    tries: list[int] = []

    def flaky(job: Any, octx: Any) -> None:
        octx.step("a", lambda step: None)
        tries.append(job.attempt)
        if len(tries) < 3:
            raise ConnectionError("not yet")

    harness = OrchestrationHarness(flaky)
    with pytest.raises(ConnectionError, match="not yet"):
        harness.run()
    assert harness.job.status is Status.QUEUED
    assert harness.job.error is not None
    assert harness.job.error["name"] == "ConnectionError"
    with pytest.raises(ConnectionError):
        harness.resume()
    assert harness.resume().status is Status.COMPLETED
    assert tries == [1, 2, 3]


def test_a_job_that_failed_for_good_resumes_as_by_its_operator() -> None:
    stops: list[int] = []

    def stopped(job: Any, octx: Any) -> None:
        octx.step("a", lambda step: None)
        stops.append(job.attempt)
        if len(stops) == 1:
            raise NonRetryable("closed")

    harness = OrchestrationHarness(stopped)
    with pytest.raises(NonRetryable):
        harness.run()
    assert (harness.job.status, harness.job.failure_kind) == (Status.FAILED, "fatal")
    assert harness.resume().status is Status.COMPLETED
    assert stops == [1, 1]
    assert harness.attempts == 2


def test_an_edited_body_that_diverges_is_refused_and_the_old_one_goes_on(body: Body, provider: Provider) -> None:
    def edited(job: Any, octx: Any) -> None:
        octx.step("check", lambda step: provider.calls.append("check"))

    harness = OrchestrationHarness(body, data=DATA)
    harness.crash_after("charge")
    with pytest.raises(NondeterminismError, match="the journal has step 'charge', the body calls step 'check'"):
        harness.resume_with(edited)
    assert provider.calls == ["ada"]
    assert harness.job.failure_kind == "fatal"
    assert harness.resume().status is Status.COMPLETED


def test_an_edited_body_that_only_adds_at_the_end_is_accepted(body: Body, provider: Provider) -> None:
    def longer(job: Any, octx: Any) -> None:
        receipt = octx.step("charge", lambda step: "never")
        octx.step("ship", lambda step: "never")
        octx.step("tell", lambda step: f"told of {receipt}")

    harness = OrchestrationHarness(body, data=DATA)
    harness.run()
    harness.resume_with(longer)
    assert harness.steps[-1].result == "told of receipt of ada"


@KINDS
def test_now_and_uuid_are_fixed(kind: int) -> None:
    def waiting(job: Any, octx: Any) -> None:
        octx.step("see", lambda step, *seen: list(seen), octx.now(), octx.uuid("a"), job.created_at, job.id)

    async def awaiting(job: Any, octx: Any) -> None:
        now, id = await octx.now(), await octx.uuid("a")
        await octx.step("see", lambda step, *seen: list(seen), now, id, job.created_at, job.id)

    def seen(**settings: Any) -> tuple[Any, datetime | None]:
        harness = OrchestrationHarness((waiting, awaiting)[kind], **settings)
        harness.run()
        assert harness.logs == []
        return harness.steps[0].result, harness.steps[0].at

    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    job = "0198e15c-8200-7000-8000-000000000001"
    assert seen() == ([noon, "1e080319-0a22-5636-b8c7-37ba80dee479", noon, job], noon)
    later = datetime(2030, 5, 5, tzinfo=UTC)
    other = seen(now=later, seed="another", job_id="0198e15c-8200-7000-8000-00000000000f")
    assert other[0][0] == other[1] == later
    assert other[0][1] != seen()[0][1]
    assert other[0][3].endswith("f")


@pytest.mark.parametrize("result", [(1, 2), {1, 2}, object(), {1: "a"}, datetime(2026, 1, 1)], ids=repr)  # noqa: DTZ001
@KINDS
def test_what_production_could_not_store_fails_here_too(result: object, kind: int) -> None:
    def waiting(job: Any, octx: Any) -> None:
        octx.step("odd", lambda step: result)

    async def awaiting(job: Any, octx: Any) -> None:
        await octx.step("odd", lambda step: result)

    harness = OrchestrationHarness((waiting, awaiting)[kind])
    with pytest.raises(NonSerializableStepResult, match="'odd'"):
        harness.run()
    assert harness.steps == []


def test_a_result_that_is_too_large_fails_here_too() -> None:
    harness = OrchestrationHarness(lambda job, octx: octx.step("big", lambda step: "x" * 9_000_000))
    with pytest.raises(JournalTooLarge):
        harness.run()


def test_a_step_may_take_the_harness_s_timeout() -> None:
    harness = OrchestrationHarness(
        lambda job, octx: octx.step("slow", lambda step: step.signal.wait(20)), step_timeout=0.05
    )
    with pytest.raises(StepTimeout):
        harness.run()


def test_a_transactional_step_in_memory_names_the_fixture_that_has_a_server() -> None:
    def body(job: Any, octx: Any) -> None:
        octx.step("pay", lambda step: None, transactional=True)

    with pytest.raises(TransactionsUnsupportedError, match="mongo_replica_set"):
        OrchestrationHarness(body).run()


def test_it_works_under_a_running_loop_and_in_a_step_s_thread(body: Body, provider: Provider) -> None:
    async def main() -> None:
        harness = OrchestrationHarness(body, data=DATA)
        harness.crash_before("ship")
        harness.resume()
        assert [step.name for step in harness.steps] == ["charge", "ship"]

    asyncio.run(main())

    def inner(step: Any) -> str:
        return OrchestrationHarness(body, data=DATA).run().status.value

    harness = OrchestrationHarness(lambda job, octx: octx.step("inner", inner))
    harness.run()
    assert harness.steps[0].result == "completed"


def test_a_harness_on_the_loop_of_the_bodies_is_refused_and_does_not_hang(body: Body) -> None:
    async def inner(step: Any) -> None:
        OrchestrationHarness(body, data=DATA).run()

    async def outer(job: Any, octx: Any) -> None:
        await octx.step("inner", inner)

    with pytest.raises(RuntimeError, match="use it outside of them"):
        OrchestrationHarness(outer).run()


def test_bodies_of_one_process_run_on_one_loop_and_see_the_caller_s_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("of the test")
    loops: list[Any] = []

    async def body(job: Any, octx: Any) -> None:
        loops.append(asyncio.get_running_loop())
        await octx.step("see", lambda step: variable.get())

    for _ in range(2):
        harness = OrchestrationHarness(body)
        harness.run()
        assert harness.steps[0].result == "of the test"
    assert loops[0] is loops[1]


def test_many_runs_leave_no_threads_behind(provider: Provider) -> None:
    waiting, awaiting = two_steps(provider)
    for body in (waiting, awaiting):
        OrchestrationHarness(body, data=DATA).run()
    before = threading.active_count()
    for _ in range(10):
        for body in (waiting, awaiting):
            harness = OrchestrationHarness(body, data=DATA)
            harness.crash_after("charge")
            harness.resume()
    assert threading.active_count() <= before + 2


def test_calls_out_of_turn_say_what_to_call(body: Body) -> None:
    harness = OrchestrationHarness(body, data=DATA)
    for call in (harness.resume, lambda: harness.resume_with(body), lambda: harness.job, lambda: harness.steps):
        with pytest.raises(RuntimeError, match=r"run\(\)"):
            call()
    harness.run()
    with pytest.raises(RuntimeError, match=r"resume\(\) is its next run"):
        harness.run()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"data": {"when": datetime(2026, 1, 1)}}, PayloadError),  # noqa: DTZ001
        ({"job_id": "one"}, PayloadError),
        ({"now": datetime(2026, 1, 1)}, PayloadError),  # noqa: DTZ001
        ({"seed": ""}, PayloadError),
        ({"step_timeout": 0}, PayloadError),
        ({"max_duration": -1}, PayloadError),
        ({"max_attempts": 0}, PayloadError),
        ({"action": ""}, PayloadError),
        ({"db": "app"}, TypeError),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_arguments_are_checked_as_production_checks_them(settings: Any, error: type[Exception], body: Body) -> None:
    with pytest.raises(error):
        OrchestrationHarness(body, **settings)


def test_the_arguments_of_a_crash_are_checked(body: Body) -> None:
    harness = OrchestrationHarness(body, data=DATA)
    for step, options in (("", {}), ("charge", {"occurrence": 0}), ("charge", {"seq": ""})):
        with pytest.raises(PayloadError):
            harness.crash_after(step, **options)
    with pytest.raises(TypeError):
        OrchestrationHarness("body")  # type: ignore[arg-type]
    assert harness.attempts == 0
