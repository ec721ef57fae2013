"""A server that fails while a step is to be journaled: the step's function is not run again for that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from simplequeue.collection import CollectionJobs
from simplequeue.embedded import Mongod
from tests.listening.conftest import FailCommand
from tests.listening.test_outage import frozen, pass_time
from tests.orchestrator.conftest import Bench
from tests.orchestrator.programs import FLAVOURS
from tests.orchestrator.test_guarantees import paying
from tests.runtime.conftest import Opener

DB = Database[dict[str, Any]]
Fail = Callable[..., Callable[[], int]]


@pytest.fixture
def fail(fail_command: FailCommand) -> Iterator[Fail]:
    """Has the server fail commands until the end of the test, and gives what says how often it has."""
    with ExitStack() as failing:
        yield lambda *args, **how: failing.enter_context(fail_command(*args, **how))


@pytest.fixture(params=FLAVOURS)
def own_bench(request: pytest.FixtureRequest, server: Mongod, own_db: DB) -> Iterator[Bench]:
    """Orchestrations on a server that a test may make fail."""
    url = server.uri + "&serverSelectionTimeoutMS=2000"
    opener = Opener("async" if request.param == "async" else "sync", own_db.name, own_db, url)
    yield Bench(request.param, opener, own_db)
    opener.close()


def failing_after_the_function(bench: Bench, begin: Any, **options: Any) -> Any:
    """A body whose first step makes the server fail when its function has run."""

    async def body(job: Any, octx: Any) -> None:
        assert await octx.step("first", bench.does("first", 1, act=begin), **options) == 1
        assert await octx.step("second", bench.does("second", 2)) == 2

    return body


@pytest.mark.parametrize("how", [{"closeConnection": True}, {"errorCode": 50}], ids=str)
def test_a_function_is_not_run_again_when_its_step_cannot_be_stored_at_once(
    own_bench: Bench, fail: Fail, how: dict[str, Any]
) -> None:
    bench = own_bench
    counts: list[Callable[[], int]] = []

    def begin(step: Any) -> None:
        counts.append(fail(["update"], times=4, **how))

    job = bench.done(failing_after_the_function(bench, begin))
    assert counts[0]() == 4
    assert (job.status, job.attempt, bench.ran) == ("completed", 1, ["first", "second"])
    assert len(bench.steps(job.id)) == 2


def test_a_function_is_not_run_again_when_the_answer_of_the_write_is_lost(own_bench: Bench, fail: Fail) -> None:
    bench = own_bench

    def begin(step: Any) -> None:
        # The write is done; that a majority has it is not answered.
        concern = {"code": 64, "errmsg": "timed out"}
        fail(["update"], times=3, writeConcernError=concern)

    job = bench.done(failing_after_the_function(bench, begin))
    assert (job.status, job.attempt, bench.ran) == ("completed", 1, ["first", "second"])
    assert [step["name"] for step in bench.steps(job.id)] == ["first", "second"]


def test_a_function_is_not_run_again_when_the_time_cannot_be_had(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is asked of the server once a minute, so that a step of some length has to ask."""
    answer = CollectionJobs.now
    refused: list[int] = []

    async def now(jobs: CollectionJobs) -> Any:
        if bench.ran == ["first"] and len(refused) < 3:
            refused.append(1)
            raise AutoReconnect("no answer")
        return await answer(jobs)

    monkeypatch.setattr(CollectionJobs, "now", now)
    job = bench.done(failing_after_the_function(bench, None))
    assert (job.status, job.attempt, bench.ran, len(refused)) == ("completed", 1, ["first", "second"], 3)


def test_a_server_that_is_away_for_a_while_costs_no_run(own_bench: Bench, server: Mongod) -> None:
    bench = own_bench
    bench.open(visibility_timeout=60)
    away = threading.Event()

    def begin(step: Any) -> None:
        def outage() -> None:
            with frozen(server):
                away.set()
                pass_time(2.5)  # longer than the client waits for a server

        threading.Thread(target=outage).start()
        away.wait(60)

    job = bench.done(failing_after_the_function(bench, begin))
    assert (job.status, job.attempt, bench.ran) == ("completed", 1, ["first", "second"])


def test_a_server_that_refuses_a_step_for_good_ends_the_run_instead_of_holding_it_for_ever(own_bench: Bench) -> None:
    """Its lease is renewed meanwhile, so nobody else would ever get the job."""
    bench = own_bench
    bench.open(visibility_timeout=0.6)

    def begin(step: Any) -> None:
        bench.db.command("collMod", "job", validator={"durable.steps.name": {"$ne": "first"}})

    job = bench.done(failing_after_the_function(bench, begin), max_attempts=1)
    assert (job.status, job.failure_kind, bench.ran) == ("failed", "retries-exhausted", ["first"])
    assert bench.steps(job.id) == []


@pytest.mark.parametrize("what", ["commitTransaction", "update"])
def test_a_transactional_step_takes_effect_once_when_the_server_fails_at_its_commit(
    own_bench: Bench, fail: Fail, what: str
) -> None:
    bench = own_bench

    def begin(step: Any) -> None:
        if bench.ran == ["pay"]:
            fail([what], times=3, closeConnection=True)

    async def body(job: Any, octx: Any) -> None:
        assert await octx.step("pay", paying(bench, begin), transactional=True) == "paid"

    job = bench.done(body)
    assert (job.status, job.attempt) == ("completed", 1)
    assert bench.db.effects.count_documents({}) == 1
