"""The public types, for type checkers only: nothing here runs, and pytest does not collect it."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

from pymongo import AsyncMongoClient, MongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession
from pymongo.results import DeleteResult, UpdateResult

from durabl_ext import (
    AsyncBackend,
    AsyncDummyBackend,
    AsyncJobContext,
    AsyncJobHandle,
    AsyncJobQueue,
    AsyncMongoJobQueue,
    AsyncOrchestrationContext,
    AsyncOrchestrator,
    AsyncStepContext,
    Backend,
    Claim,
    DummyBackend,
    DurableJob,
    Enqueue,
    ImmediateBackend,
    JobContext,
    JobHandle,
    JobQueue,
    JournalView,
    KeyBusy,
    LeaseLost,
    MongoJobQueue,
    NotFailed,
    NotFound,
    OrchestrationContext,
    Orchestrator,
    QueueStats,
    Renewed,
    Retried,
    Settled,
    StepContext,
    upgrade,
)
from simplequeue import AsyncListener, AsyncQueue, Job, Listener, Queue, Status, create_queue
from simplequeue.embedded import Mongod, mongod
from simplequeue.failure import StoredError


def handler(job: Job) -> None: ...


async def async_handler(job: Job) -> int:
    return 1


def sync_queue(client: MongoClient[dict[str, Any]]) -> None:
    queue = create_queue(client.app, collection="job")
    assert_type(queue, Queue)
    job = queue.add("greet", {"name": "Ada"})
    assert_type(job, Job)
    assert_type(job.id, str)
    assert_type(job.status, Status)
    assert_type(job.error, StoredError | None)
    assert_type(job.created_at, datetime)
    assert_type(job.finished_at, datetime | None)
    assert_type(job.data, dict[str, Any])
    assert_type(job.document, dict[str, Any])
    assert_type(queue.add_many([("a", {"n": 1}), ("b", None)]), list[Job])
    assert_type(queue.get(job.id), Job | None)
    assert_type(queue.update(job.id, {"n": 2}), UpdateResult)
    assert_type(queue.cancel(job.id), Job | None)
    id = UUID(job.id)
    assert_type(queue.get(id), Job | None)
    assert_type(queue.update(id, {"n": 2}), UpdateResult)
    assert_type(queue.cancel(id), Job | None)
    queue.get(7)  # type: ignore[arg-type]  # an id is a string or a UUID
    assert_type(queue.sweep(datetime.now().astimezone(), limit=10), DeleteResult)
    with client.start_session() as session:
        queue.add("greet", session=session)
    assert_type(
        queue.listen(async_handler, actions=("a",), concurrency=2, poll_interval=timedelta(seconds=1)), Listener
    )
    with queue.listen(handler) as listener:
        assert_type(listener, Listener)
        assert_type(listener.wait(1.5), bool)
        assert_type(listener.stop(), bool)
    queue.add("greet", ["a list"])  # type: ignore[arg-type]  # data is a mapping
    queue.listen(embedded)  # type: ignore[arg-type]  # a handler takes a job
    job.status = Status.FAILED  # type: ignore[misc]  # a job is frozen


async def async_queue(client: AsyncMongoClient[dict[str, Any]]) -> None:
    queue = create_queue(client.app)
    assert_type(queue, AsyncQueue)
    job = await queue.add("greet")
    assert_type(job, Job)
    assert_type(await queue.add_many([("a", None)]), list[Job])
    assert_type(await queue.get(job.id), Job | None)
    assert_type(await queue.update(job.id, {}), UpdateResult)
    assert_type(await queue.cancel(job.id), Job | None)
    id = UUID(job.id)
    assert_type(await queue.get(id), Job | None)
    assert_type(await queue.update(id, {}), UpdateResult)
    assert_type(await queue.cancel(id), Job | None)
    assert_type(await queue.sweep(), DeleteResult)
    async with client.start_session() as session:
        await queue.add("greet", session=session)
    async with await queue.listen(async_handler) as listener:
        assert_type(listener, AsyncListener)
        assert_type(await listener.wait(1), bool)
        assert_type(await listener.stop(), bool)


def embedded() -> None:
    server = mongod("data")
    assert_type(server, Mongod)
    with server as client:
        assert_type(client, MongoClient[dict[str, Any]])
        assert_type(server.uri, str)


def durable_queue(client: MongoClient[dict[str, Any]], own: Backend) -> None:
    assert_type(upgrade(create_queue(client.app), visibility_timeout=timedelta(minutes=5)), JobQueue)
    backends: list[Backend] = [MongoJobQueue(client.app, push=False), DummyBackend(), ImmediateBackend(), own]
    queue = JobQueue(client.app, visibility_timeout=60, collection="tasks")
    assert_type(queue.backend, Backend)
    JobQueue(backends[0])
    JobQueue(AsyncDummyBackend())  # type: ignore[arg-type]  # an async backend in a sync queue
    assert_type(queue.enqueue("a", {"n": 1}, priority=1, delay=timedelta(seconds=1), dedupe_key="k"), str | None)
    queue.enqueue("a", priority="high")  # type: ignore[arg-type]  # a number
    queue.enqueue("a", dedupe_scope="running")  # type: ignore[arg-type]  # one of two
    queue.enqueue("a", prio=1)  # type: ignore[call-arg]  # no such option
    assert_type(queue.enqueue_many([Enqueue("a"), Enqueue("b", coalesce="latest")]), list[str | None])
    with client.start_session() as session:
        queue.enqueue("a", session=session)
    handle = queue.claim_or_enqueue("a", max_attempts=1)
    assert_type(handle, JobHandle | None)
    if handle is not None:
        assert_type(handle.job, DurableJob)
        assert_type(handle.claim, Claim)
        assert_type(handle.complete(), Settled)
        assert_type(handle.heartbeat(), Renewed | LeaseLost)
    assert_type(queue.get("id"), DurableJob | None)
    assert_type(queue.retry("id"), Retried | KeyBusy | NotFailed | NotFound)
    assert_type(queue.list_failed(failure_kind="fatal"), list[DurableJob])
    queue.list_failed(failure_kind="poison")  # type: ignore[arg-type]  # one of three
    assert_type(queue.get_stats(), QueueStats)
    assert_type(queue.sweep(), DeleteResult)
    assert_type(DummyBackend().jobs, list[DurableJob])


async def async_durable_queue(client: AsyncMongoClient[dict[str, Any]], own: AsyncBackend) -> None:
    assert_type(upgrade(create_queue(client.app)), AsyncJobQueue)
    backends: list[AsyncBackend] = [AsyncMongoJobQueue(client.app), AsyncDummyBackend(), own]
    AsyncJobQueue(backends[0])
    AsyncJobQueue(DummyBackend())  # type: ignore[arg-type]  # a sync backend in an async queue
    queue = AsyncJobQueue(client.app)
    assert_type(await queue.enqueue("a", run_at=datetime.now().astimezone()), str | None)
    handle = await queue.claim_or_enqueue("a")
    assert_type(handle, AsyncJobHandle | None)
    if handle is not None:
        assert_type(await handle.fail(ValueError()), Settled)
    assert_type(await queue.get_stats("a"), QueueStats)


def orchestrations(queue: JobQueue, id: str) -> None:
    orchestrator = Orchestrator(queue, logger=None)
    Orchestrator(AsyncJobQueue(AsyncDummyBackend()))  # type: ignore[arg-type]  # an async queue

    def charge(step: StepContext, user: str, cents: int) -> float:
        assert_type(step.idempotency_key, str)
        assert_type(step.session, ClientSession)
        return cents / 100

    @orchestrator.define("sync", step_timeout=timedelta(seconds=1), max_duration=60)
    def body(job: DurableJob, octx: OrchestrationContext) -> None:
        assert_type(octx.step("charge", charge, "u", 5, idempotency_key="k", timeout=2.0), float)
        octx.step("charge", charge, "u")  # type: ignore[arg-type]  # an argument is missing
        octx.step("charge", charge, "u", "5")  # type: ignore[arg-type]  # a number
        assert_type(octx.all(lambda octx: 1, lambda octx: 2), list[int])
        assert_type(octx.now(), datetime)
        assert_type(octx.uuid("label"), str)
        assert_type(octx.heartbeat(), Renewed | LeaseLost)
        assert_type(octx.signal.is_set(), bool)

    @orchestrator.define("async")
    async def async_body(job: DurableJob, octx: AsyncOrchestrationContext) -> None:
        assert_type(await octx.step("charge", charge, "u", 5, transactional=True), float)
        assert_type(await octx.now(), datetime)

    assert_type(orchestrator.inspect(id, results=True), JournalView | None)
    assert_type(orchestrator.resume(id), Retried | KeyBusy | NotFailed | NotFound)

    def handler(job: DurableJob, ctx: JobContext) -> None:
        with ctx.transaction() as session:
            assert_type(session, ClientSession)


async def async_orchestrations(queue: AsyncJobQueue, id: str) -> None:
    orchestrator = AsyncOrchestrator(queue)

    async def fetch(step: AsyncStepContext, part: str) -> list[str]:
        assert_type(step.session, AsyncClientSession)
        assert_type(await step.signal.wait(1), bool)
        return [part]

    async def branch(octx: AsyncOrchestrationContext) -> int:
        return await octx.step("one", lambda step: 1)

    @orchestrator.define("report")
    async def body(job: DurableJob, octx: AsyncOrchestrationContext) -> None:
        assert_type(octx.step("fetch", fetch, "a"), asyncio.Task[list[str]])
        assert_type(
            await asyncio.gather(octx.step("a", fetch, "a"), octx.step("b", fetch, "b")), tuple[list[str], list[str]]
        )
        assert_type(await octx.all(branch, branch), list[int])

    @orchestrator.define("def")  # type: ignore[type-var]  # on an async queue a body awaits
    def sync_body(job: DurableJob, octx: OrchestrationContext) -> None: ...

    assert_type(await orchestrator.inspect(id), JournalView | None)

    async def handler(job: DurableJob, ctx: AsyncJobContext) -> None:
        async with ctx.transaction() as session:
            assert_type(session, AsyncClientSession)
