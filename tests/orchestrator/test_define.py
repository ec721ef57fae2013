"""Definitions: what is wrong is said when it is defined; and what can be asked of an orchestrator about its jobs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.database import Database
from uuid6 import uuid7

from durabl_ext import (
    AsyncImmediateBackend,
    AsyncJobQueue,
    AsyncOrchestrator,
    HeartbeatConfigConflict,
    ImmediateBackend,
    JobQueue,
    NotFailed,
    NotFound,
    OrchestrationUnsupportedError,
    Orchestrator,
    OrchestratorTypeConflict,
    PayloadError,
)
from simplequeue import Status, create_queue
from tests.orchestrator.bodies import Once, as_def
from tests.orchestrator.conftest import Bench, Crash, Gate
from tests.orchestrator.test_branches import giving

DB = Database[dict[str, Any]]


async def nothing(job: Any, octx: Any) -> None: ...


def test_an_action_is_defined_once(bench: Bench) -> None:
    bench.define(nothing)
    with pytest.raises(OrchestratorTypeConflict, match="'a' is defined already"):
        bench.define(nothing)


def test_an_action_that_has_a_processor_cannot_be_defined(bench: Bench) -> None:
    bench.front.process("a", lambda job, ctx: None)
    with pytest.raises(OrchestratorTypeConflict, match="'a' has a processor") as refused:
        bench.define(nothing)
    assert refused.value.action == "a"


def test_an_action_that_is_defined_can_have_no_processor(bench: Bench) -> None:
    bench.define(nothing)
    with pytest.raises(ValueError, match="'a' has a handler already"):
        bench.front.process("a", lambda job, ctx: None)


def test_two_orchestrators_of_a_queue_do_not_share_an_action(bench: Bench) -> None:
    bench.define(nothing)
    kind: Any = AsyncOrchestrator if bench.front.is_async else Orchestrator
    with pytest.raises(OrchestratorTypeConflict):
        kind(bench.front.queue).define("a", nothing)


def test_a_heartbeat_that_is_no_shorter_than_the_lease_is_refused(bench: Bench) -> None:
    bench.open(visibility_timeout=5)
    with pytest.raises(HeartbeatConfigConflict):
        bench.define(nothing, heartbeat_interval=5)
    bench.define(nothing, heartbeat_interval=4)  # a definition that was refused has left nothing


@pytest.mark.parametrize(
    ("options", "error"),
    [({"concurrency": 0}, PayloadError), ({"poll_interval": 0}, PayloadError), ({"step_timeout": 0}, PayloadError)],
    ids=str,
)
def test_an_option_out_of_its_range_is_refused_and_leaves_nothing(
    bench: Bench, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        bench.define(nothing, **options)
    bench.define(nothing)


def test_what_is_no_body_is_refused(bench: Bench) -> None:
    def generator(job: Any, octx: Any) -> Any:
        yield

    for body in (7, lambda job: None, generator):
        with pytest.raises(TypeError):
            bench.orchestrator.define("a", body)
    with pytest.raises(PayloadError):
        bench.orchestrator.define("", nothing)
    with pytest.raises(TypeError, match=r"@orchestrator.define\('restart-trial'\)"):
        bench.orchestrator.define(nothing)


def test_an_async_queue_takes_async_bodies_only(mongo_url: str) -> None:
    async def defined() -> None:
        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
            orchestrator: Any = AsyncOrchestrator(AsyncJobQueue(client.unused))
            with pytest.raises(TypeError, match="async def"):
                orchestrator.define("a", lambda job, octx: None)
            with pytest.raises(TypeError, match="AsyncOrchestrator"):
                Orchestrator(orchestrator._queue)

    asyncio.run(defined())


def test_an_orchestrator_is_of_its_colour(db: DB) -> None:
    queue: Any = JobQueue(db)
    with pytest.raises(TypeError, match="on a JobQueue: Orchestrator"):
        AsyncOrchestrator(queue)
    with pytest.raises(TypeError, match="expected a JobQueue"):
        Orchestrator(db)  # type: ignore[arg-type]  # it is to be refused


def test_a_decorator_defines_and_gives_the_body_back(bench: Bench) -> None:
    body = bench.body(giving_one(bench))
    assert bench.orchestrator.define("a", max_duration=60)(body) is body
    bench.start()
    assert bench.ended(bench.add()).status == "completed"
    assert bench.ran == ["one"]


def giving_one(bench: Bench) -> Any:
    async def body(job: Any, octx: Any) -> None:
        await octx.step("one", bench.does("one", {"id": 7}))

    return body


def test_a_backend_that_keeps_no_journal_is_refused() -> None:
    class Forgetful:
        def claim_or_enqueue(self, job: Any, *, lease: Any) -> None: ...

    forgetful: Any = Forgetful()
    queue = JobQueue(forgetful)
    with pytest.raises(OrchestrationUnsupportedError, match="Forgetful"):
        Orchestrator(queue)


def test_a_definition_after_the_start_is_worked_on(bench: Bench) -> None:
    bench.start()
    bench.define(giving_one(bench), "later")
    assert bench.ended(bench.add("later")).status == "completed"


def test_a_plain_job_of_the_base_layer_is_adopted(bench: Bench) -> None:
    plain = create_queue(bench.db).add("a", {"user": 1})

    async def body(job: Any, octx: Any) -> None:
        await octx.step("first", bench.does("first"))
        if job.attempt == 1:
            raise Crash
        await octx.step("second", bench.does("second", job.data))

    bench.define(body)
    bench.start()
    job = bench.ended(plain.id)
    assert (job.status, job.attempt, bench.ran) == ("completed", 2, ["first", "second"])
    assert bench.steps(job.id)[1]["result"] == {"user": 1}


def test_the_job_of_a_plain_handler_becomes_no_orchestration_by_resuming_it(bench: Bench) -> None:
    def fails(job: Any, ctx: Any) -> None:
        raise Crash

    bench.front.process("plain", fails)
    bench.start()
    job = bench.ended(bench.add("plain", max_attempts=1))
    with pytest.raises(OrchestratorTypeConflict, match="'plain' is not defined here"):
        bench.orchestrator.resume(job.id)


def test_resuming_says_why_it_cannot(bench: Bench) -> None:
    bench.define(nothing)
    bench.start()
    job = bench.ended(bench.add())
    assert bench.orchestrator.resume(job.id) == NotFailed(Status.COMPLETED)
    assert bench.orchestrator.resume(str(uuid7())) == NotFound()
    assert bench.orchestrator.resume("no id") == NotFound()
    assert bench.orchestrator.inspect(str(uuid7())) is None


def test_a_resumed_job_goes_on_behind_its_last_step_with_all_its_attempts(bench: Bench) -> None:
    broken = [True]

    async def body(job: Any, octx: Any) -> None:
        await octx.step("first", bench.does("first"))
        if broken:
            raise Crash
        await octx.step("second", bench.does("second"))

    bench.define(body)
    bench.start()
    job = bench.ended(bench.add(max_attempts=2))
    assert (job.status, job.attempt) == ("failed", 2)
    broken.clear()
    job = bench.resumed(job.id)
    assert (job.status, job.attempt, job.error) == ("completed", 1, None)
    assert bench.ran == ["first", "second"]


def test_inspecting_shows_what_is_done_and_where_it_goes_on(bench: Bench) -> None:
    gate = Gate()

    def held(step: Any) -> None:
        gate.hold()

    async def held_async(step: Any) -> None:
        await asyncio.to_thread(gate.hold)

    async def body(job: Any, octx: Any) -> None:
        await octx.now()
        await octx.step("first", bench.does("first", {"secret": 1}))
        await octx.all(giving(bench, "left", 1), giving(bench, "right", 2))
        if job.attempt == 1:
            raise Crash
        await octx.step("held", held if bench.flavour == "def" else held_async)

    bench.define(body)
    bench.start()
    id = bench.add()
    gate.wait()
    view = bench.view(id)
    assert (view.job_id, view.action, view.status, view.attempt) == (id, "a", "running", 2)
    assert {(step.seq, step.name, step.failed, step.result) for step in view.steps} == {
        ("0", "first", False, None),
        ("1.0.0", "left", False, None),
        ("1.1.0", "right", False, None),
    }
    assert view.next_step == "2"
    assert view.failure is not None
    assert view.failure["name"] == "Crash"
    at = view.steps[0].at
    assert at is not None
    assert abs((datetime.now(UTC) - at).total_seconds()) < 60
    shown = bench.view(id, results=True)
    assert {step.name: step.result for step in shown.steps} == {"first": {"secret": 1}, "left": 1, "right": 2}
    gate.opened.set()
    bench.ended(id)
    assert bench.view(id).next_step == "3"


def test_a_job_that_never_ran_shows_no_steps(bench: Bench) -> None:
    id = bench.add("nobody")
    view = bench.view(id)
    assert (view.steps, view.next_step, view.failure, view.failure_kind) == ((), "0", None, None)
    plain = create_queue(bench.db).add("nobody")
    assert bench.view(plain.id).steps == ()


def test_what_a_body_logs_is_kept_with_the_job_in_every_run(bench: Bench) -> None:
    async def body(job: Any, octx: Any) -> None:
        octx.log(f"run {job.attempt}")
        with suppress(TypeError):
            octx.log(object())
        if job.attempt == 1:
            raise Crash

    job = bench.done(body)
    messages = [line.message for line in job.logs]
    assert [message for message in messages if message.startswith("run")] == ["run 1", "run 2"]
    assert len(messages) == 4


def test_a_body_may_be_a_callable_object_and_a_key_is_free_once_it_has_ended(bench: Bench) -> None:
    class Body:
        async def __call__(self, job: Any, octx: Any) -> None:
            await octx.step("one", bench.does("one"))

    bench.orchestrator.define("a", as_def(Body()) if bench.flavour == "def" else Body())
    bench.start()
    id = bench.add(dedupe_key="k")
    assert bench.ended(id).status == "completed"
    assert bench.ended(bench.add(dedupe_key="k")).status == "completed"
    assert bench.ran == ["one", "one"]


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async"])
def test_an_immediate_backend_runs_orchestrations_in_enqueue(is_async: bool) -> None:
    backend = ImmediateBackend()
    queue = JobQueue(backend)
    orchestrator: Any = Orchestrator(queue)
    ran: list[str] = []

    def step(step: Any, name: str) -> str:
        ran.append(name)
        return name

    async def body(job: Any, octx: Any) -> None:
        assert await octx.step("first", step, "first") == "first"
        assert (await octx.now()).tzinfo is UTC
        assert len(await octx.uuid("x")) == 36
        octx.log("seen")
        await octx.all(branch, branch)
        raise Crash

    async def branch(octx: Any) -> None:
        await octx.step("in a branch", step, "in a branch")

    orchestrator.define("a", body if is_async else as_def(body))
    id = queue.enqueue("a")
    assert id is not None
    view = orchestrator.inspect(id)
    assert (view.status, view.failure["name"], view.next_step) == ("queued", "Crash", "2")
    assert ran == ["first", "in a branch", "in a branch"]
    job = queue.get(id)
    assert job is not None
    assert [line.message for line in job.logs] == ["seen"]


def test_an_async_immediate_backend_runs_orchestrations_in_enqueue() -> None:
    async def run() -> None:
        queue = AsyncJobQueue(AsyncImmediateBackend())
        orchestrator: Any = AsyncOrchestrator(queue)

        async def body(job: Any, octx: Any) -> None:
            assert await asyncio.gather(*(octx.step(f"{n}", lambda step, n: n, n) for n in range(3))) == [0, 1, 2]
            await octx.all(branch, branch)

        async def branch(octx: Any) -> None:
            await octx.step("in a branch", lambda step: step.seq)

        orchestrator.define("a", body)
        id = await queue.enqueue("a")
        view = await orchestrator.inspect(id, results=True)
        assert view.status == "completed"
        assert sorted(step.result for step in view.steps if "." in step.seq) == ["3.0.0", "3.1.0"]

    asyncio.run(run())


def test_a_transactional_step_in_memory_fails_the_job_for_good_and_does_not_run() -> None:
    queue = JobQueue(ImmediateBackend())
    orchestrator: Any = Orchestrator(queue)
    ran: list[int] = []
    orchestrator.define("a", as_def(lambda job, octx: octx.step("x", ran.append, transactional=True)))
    id = queue.enqueue("a")
    assert id is not None
    job = queue.get(id)
    assert job is not None
    assert (job.failure_kind, job.error and job.error["name"], ran) == ("fatal", "TransactionsUnsupportedError", [])


def test_a_def_function_cannot_be_transactional_on_an_async_driver(bench: Bench) -> None:
    if bench.flavour != "async":
        return
    ran: list[Any] = []

    async def body(job: Any, octx: Any) -> None:
        await octx.step("pay", ran.append, transactional=True)

    job = bench.done(body)
    assert job.failure_kind == "fatal"
    assert job.error is not None
    assert ("async def" in job.error["message"], ran) == (True, [])


def test_the_octx_of_a_body_shows_what_it_has(bench: Bench) -> None:
    """The tests' own wrapper hides nothing of it."""
    seen: list[set[str]] = []

    async def body(job: Any, octx: Any) -> None:
        seen.append({name for name in dir(octx.inner if isinstance(octx, Once) else octx) if not name.startswith("_")})

    assert bench.done(body).status == "completed"
    assert seen == [{"step", "all", "now", "uuid", "log", "heartbeat", "signal"}]
