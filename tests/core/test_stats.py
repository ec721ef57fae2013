"""Stats, in every cell: what is counted, how far a queue is behind, and what is outstanding under a key."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS

from durabl_ext.core.plans import How
from durabl_ext.core.replay import list_failed
from durabl_ext.core.stats import get_stats, has_outstanding
from durabl_ext.options import Enqueue
from durabl_ext.stats import QueueStats
from simplequeue.payload import PayloadError
from tests.core.conftest import FAILURE, LONG_AGO, Core

NO_KIND = {"retries-exhausted": 0, "fatal": 0, "stalled": 0}
NOTHING = QueueStats(0, 0, 0, 0, 0, 0, NO_KIND, None, 0.0)  # type: ignore[arg-type]  # mypy takes the keys for any str


def stats(core: Core, action: str | None = None) -> QueueStats:
    found: QueueStats = core.cell.do(get_stats(core.cell.jobs, action))
    return found


def outstanding(core: Core, action: Any, key: Any) -> bool:
    found: bool = core.cell.do(has_outstanding(core.cell.jobs, action, key))
    return found


def counts(core: Core, action: str | None = None) -> tuple[int, ...]:
    now = stats(core, action)
    return now.queued, now.running, now.completed, now.failed, now.cancelled, now.superseded


def end(core: Core, action: str, how: How) -> None:
    core.enqueue(action, priority=-9, max_attempts=1)
    core.settle(core.claim_one(action), how)


def supersede(core: Core) -> None:
    """Leaves a superseded job of action ``a`` and the queued one that covers its work."""
    core.enqueue(dedupe_key="k", dedupe_scope="queued")
    claimed = core.claim_one()
    core.enqueue(dedupe_key="k", dedupe_scope="queued")
    core.settle(claimed, "fail")


def test_an_empty_queue_has_nothing_and_no_lag(core: Core) -> None:
    assert stats(core) == NOTHING
    assert stats(core, "a") == NOTHING


def test_each_status_is_counted_of_one_action_and_of_all(core: Core) -> None:
    supersede(core)
    for _ in range(2):
        end(core, "a", "complete")
    for _ in range(3):
        end(core, "a", "fail")
    end(core, "b", "complete")
    for _ in range(4):
        core.cell.queue.cancel(core.enqueue("a"))
    core.enqueue_many(*[Enqueue("b")] * 5)
    core.claim("b", limit=2)
    assert counts(core) == (4, 2, 3, 3, 4, 1)
    assert counts(core, "a") == (1, 0, 2, 3, 4, 1)
    assert counts(core, "b") == (3, 2, 1, 0, 0, 0)
    assert counts(core, "c") == (0, 0, 0, 0, 0, 0)


def test_plain_jobs_count_in_every_status(core: Core) -> None:
    statuses = ("queued", "running", "completed", "failed", "cancelled")
    for status in statuses:
        core.change(core.cell.queue.add("a").id, status=status)
    core.enqueue("a")
    core.enqueue("b")
    assert counts(core) == (3, 1, 1, 1, 1, 0)
    assert counts(core, "a") == (2, 1, 1, 1, 1, 0)


def test_failed_jobs_are_counted_by_kind(core: Core) -> None:
    end(core, "a", "fail")
    end(core, "a", "fail_fatal")
    end(core, "a", "fail_fatal")
    end(core, "b", "fail_fatal")
    id = core.enqueue("b", max_attempts=1)
    core.claim_one("b")
    core.expire(id)
    core.recover()
    assert stats(core).failed_by_kind == {"retries-exhausted": 1, "fatal": 3, "stalled": 1}
    assert stats(core, "a").failed_by_kind == {"retries-exhausted": 1, "fatal": 2, "stalled": 0}
    assert stats(core, "b").failed_by_kind == {"retries-exhausted": 0, "fatal": 1, "stalled": 1}


def test_a_failed_plain_job_has_no_kind_in_the_counts_and_none_in_the_list(core: Core) -> None:
    core.change(core.cell.queue.add("a").id, status="failed", error=FAILURE, finished_at=LONG_AGO)
    now = stats(core)
    assert (now.failed, now.failed_by_kind) == (1, NO_KIND)
    kinds: Any = tuple(NO_KIND)
    assert [core.cell.do(list_failed(core.cell.jobs, None, kind, 50)) for kind in kinds] == [[], [], []]


def test_a_replayed_job_is_queued_and_no_longer_failed(core: Core) -> None:
    end(core, "a", "fail")
    core.change(core.cell.collection.find_one()["_id"], status="queued")
    assert counts(core) == (1, 0, 0, 0, 0, 0)
    assert stats(core).failed_by_kind == NO_KIND


def test_a_job_whose_time_has_not_come_is_queued_and_no_lag(core: Core) -> None:
    core.enqueue(delay=3_600)
    now = stats(core)
    assert (now.queued, now.oldest_queued_run_at, now.oldest_queued_lag) == (1, None, 0.0)


def test_the_oldest_due_job_is_found_among_actions_and_priorities(core: Core) -> None:
    ids = core.enqueue_many(*[Enqueue("ab"[n % 2], priority=n % 3 - 1) for n in range(12)], Enqueue("a", delay=3_600))
    for n, id in enumerate(ids[:12]):
        core.change(id, durable__run_at=LONG_AGO + timedelta(hours=(n * 7) % 12))
    hours: list[datetime | None] = [LONG_AGO + timedelta(hours=n) for n in range(12)]
    # The seventh multiples: those of action "a" fall on even hours, those of "b" on odd ones.
    assert stats(core).oldest_queued_run_at == hours[0]
    assert stats(core, "a").oldest_queued_run_at == hours[0]
    assert stats(core, "b").oldest_queued_run_at == hours[1]
    assert stats(core, "c").oldest_queued_run_at is None


def test_the_lag_is_what_has_passed_since_the_oldest_was_due(core: Core) -> None:
    core.make_due(core.enqueue())
    core.enqueue()
    before = core.cell.do(core.cell.jobs.now())
    now = stats(core)
    after = core.cell.do(core.cell.jobs.now())
    assert now.oldest_queued_run_at == LONG_AGO
    assert (before - LONG_AGO).total_seconds() <= now.oldest_queued_lag <= (after - LONG_AGO).total_seconds()


@pytest.mark.parametrize("action", [None, "a"])
@pytest.mark.parametrize("later", [-1, 1])
def test_a_plain_job_is_due_since_it_was_added(core: Core, action: str | None, later: int) -> None:
    plain = core.cell.queue.add("a")
    assert stats(core, action).oldest_queued_run_at == plain.created_at
    core.change(plain.id, created_at=LONG_AGO)
    core.change(core.enqueue(), durable__run_at=LONG_AGO + timedelta(seconds=later))
    assert stats(core, action).oldest_queued_run_at == LONG_AGO + timedelta(seconds=min(later, 0))


def test_a_job_that_is_claimed_or_has_ended_is_no_lag(core: Core) -> None:
    core.make_due(core.enqueue())
    claimed = core.claim_one()
    assert stats(core).oldest_queued_run_at is None
    core.settle(claimed, "complete")
    assert stats(core).oldest_queued_run_at is None


LONGER_AGO = LONG_AGO - timedelta(days=1)
ODD: list[Any] = ["soon", 7, True, None, {"a": [1]}, ["x", 1], [], [LONGER_AGO, 5], [{"run_at": LONGER_AGO}], b"x"]


@pytest.mark.parametrize(
    "field", ["action", "created_at", "durable", "durable.run_at", "durable.priority", "updated_at"]
)
def test_a_foreign_document_breaks_no_count_and_hides_no_job(core: Core, field: str) -> None:
    core.make_due(core.enqueue("a", priority=3))
    plain = core.cell.queue.add("b")
    for number, value in enumerate(ODD):
        common: dict[str, Any] = {"action": "f", "status": "queued", "created_at": plain.created_at}
        durable: dict[str, Any] = {"durable": {"run_at": plain.created_at, "priority": 0}} if "." in field else {}
        document: dict[str, Any] = {"_id": f"0{number}", **common, **durable}
        durable.get("durable", document)[field.rpartition(".")[2]] = value
        core.cell.collection.insert_one(document)
    assert counts(core) == (2 + len(ODD), 0, 0, 0, 0, 0)
    assert counts(core, "a") == (1, 0, 0, 0, 0, 0)
    assert stats(core).oldest_queued_run_at == LONG_AGO
    assert stats(core, "b").oldest_queued_run_at == plain.created_at


@pytest.mark.parametrize("durable", ["soon", 7, {}, {"run_at": "soon"}, [], [{}], ["x"]])
def test_a_foreign_job_that_no_worker_can_claim_is_queued_and_no_lag(core: Core, durable: Any) -> None:
    core.cell.collection.insert_one(
        {"_id": "0", "action": "a", "status": "queued", "created_at": LONG_AGO, "durable": durable}
    )
    now = stats(core)
    assert (now.queued, now.oldest_queued_run_at) == (1, None)
    assert core.claim(limit=5) == []


def test_a_foreign_time_before_all_datetimes_is_not_the_oldest(core: Core) -> None:
    if core.cell.real:
        core.change(core.enqueue(), durable__run_at=DatetimeMS(-(10**15)))
    core.make_due(core.enqueue())
    assert stats(core).oldest_queued_run_at == LONG_AGO


def test_foreign_statuses_and_kinds_are_counted_nowhere_else(core: Core) -> None:
    for status in ("paused", 7, None, ["queued", "failed"]):
        core.cell.collection.insert_one({"action": "a", "status": status, "created_at": LONG_AGO})
    core.cell.collection.insert_one({"action": "a", "status": "failed", "durable": {"failure_kind": "bored"}})
    now = stats(core)
    assert (now.running, now.completed, now.cancelled, now.superseded) == (0, 0, 0, 0)
    assert now.failed_by_kind == NO_KIND
    assert now.failed >= 1


@pytest.mark.parametrize("action", ["", 7, {"$ne": None}])
def test_an_action_that_no_job_can_have_is_refused(core: Core, action: Any) -> None:
    with pytest.raises(PayloadError, match="action"):
        stats(core, action)
    with pytest.raises(PayloadError, match="action"):
        outstanding(core, action, "k")


@pytest.mark.parametrize("key", [None, "", 7, {"$ne": None}])
def test_a_key_that_no_job_can_have_is_refused_rather_than_found_on_keyless_jobs(core: Core, key: Any) -> None:
    core.enqueue()
    with pytest.raises(PayloadError, match="dedupe_key"):
        outstanding(core, "a", key)


@pytest.mark.parametrize("scope", ["queued", "queued+running"])
def test_work_is_outstanding_from_the_enqueue_to_the_end(core: Core, scope: Any) -> None:
    assert not outstanding(core, "a", "k")
    core.enqueue(dedupe_key="k", dedupe_scope=scope)
    assert outstanding(core, "a", "k")
    claimed = core.claim_one()
    assert outstanding(core, "a", "k")
    core.settle(claimed, "fail")
    assert outstanding(core, "a", "k")
    core.make_due(claimed[0].id)
    core.settle(core.claim_one(), "complete")
    assert not outstanding(core, "a", "k")


def test_outstanding_is_asked_of_one_action_and_one_key(core: Core) -> None:
    core.enqueue("a", dedupe_key="k", dedupe_scope="queued")
    core.claim_one("a")
    core.enqueue("b", dedupe_key="k", dedupe_scope="queued")
    core.enqueue("a", dedupe_key="other")
    assert outstanding(core, "a", "k")
    assert outstanding(core, "b", "k")
    assert not outstanding(core, "b", "other")
    assert not outstanding(core, "c", "k")
    assert not outstanding(core, "a", "none")
