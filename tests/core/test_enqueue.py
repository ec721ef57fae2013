"""Enqueue, in every cell: what is stored, and who gets a key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durabl_ext.core import enqueue
from durabl_ext.core.enqueue import coalesce, holders
from durabl_ext.core.plans import How
from durabl_ext.errors import DedupeScopeConflictError
from durabl_ext.job import new_durable
from durabl_ext.options import Enqueue, checked
from durabl_ext.outcomes import FailedTerminal
from simplequeue.job import FIELDS
from simplequeue.payload import MAX_DATA_BYTES
from simplequeue.states import Status
from tests.core.conftest import FAILURE, LONG_AGO, Core

QUEUED: Any = {"dedupe_key": "k", "dedupe_scope": "queued"}


def test_a_job_is_stored_with_its_rules_and_nothing_that_is_absent(core: Core) -> None:
    id = core.enqueue("mail", {"to": "ada"}, priority=-3, max_attempts=5, backoff="fixed", backoff_delay=2)
    stored = core.stored(id)
    assert set(stored) == FIELDS | {"durable"}
    assert stored["status"] == "queued"
    assert stored["durable"] == {
        "priority": -3,
        "run_at": stored["created_at"],
        "attempt": 0,
        "max_attempts": 5,
        "backoff": {"kind": "fixed", "delay": 2.0, "max_delay": 60.0},
    }
    with_key = core.stored(core.enqueue(dedupe_key="k"))
    assert with_key["durable"]["dedupe"] == {"key": "k", "scope": "queued+running"}


def test_a_delay_and_a_time_say_when_it_is_due_and_a_past_time_means_now(core: Core) -> None:
    delayed = core.get(core.enqueue(delay=timedelta(minutes=5)))
    assert delayed.run_at == delayed.created_at + timedelta(minutes=5)
    at = datetime(2100, 1, 1, 12, 0, 0, 999_999, tzinfo=UTC)
    assert core.get(core.enqueue(run_at=at)).run_at == at.replace(microsecond=999_000)
    past = core.get(core.enqueue(run_at=datetime(2001, 1, 1, tzinfo=UTC)))
    assert past.run_at == past.created_at


def test_many_are_stored_in_order_and_answered_in_order(core: Core) -> None:
    ids = core.enqueue_many(
        Enqueue("a", {"n": 0}),
        Enqueue("a", {"n": 1}, dedupe_key="k"),
        Enqueue("b", {"n": 2}, dedupe_key="k"),
        Enqueue("a", {"n": 3}),
    )
    assert [id is None for id in ids] == [False, False, True, False]
    assert [core.get(id).data["n"] for id in ids if id] == [0, 1, 3]
    assert core.cell.collection.count_documents({}) == 3
    assert core.enqueue_many() == []


def test_jobs_without_a_key_never_collide(core: Core) -> None:
    ids = [core.enqueue(), core.enqueue(dedupe_key=None), core.enqueue()]
    assert len(set(ids)) == 3
    assert all("dedupe" not in core.stored(id)["durable"] for id in ids)


@pytest.mark.parametrize("key", ["k" * 2_048, "k" * 4_096, "a.b", "$k", "ключ", " ", "None", "0", "a\0b"], ids=len)
def test_any_text_of_a_few_kilobytes_is_a_key(core: Core, key: str) -> None:
    id = core.enqueue(dedupe_key=key)
    assert core.get(id).dedupe_key == key
    assert core.enqueue(dedupe_key=key) is None
    assert core.enqueue(dedupe_key=key + "x" if len(key) < 4_096 else key[:-1]) is not None


def test_in_the_default_scope_a_key_is_taken_while_its_job_is_queued_and_while_it_runs(core: Core) -> None:
    first = core.enqueue(dedupe_key="k")
    assert core.enqueue("another action", dedupe_key="k") is None
    claimed = core.claim_one()
    assert core.enqueue(dedupe_key="k") is None
    core.settle(claimed, "complete")
    assert core.enqueue(dedupe_key="k") not in (None, first)


def test_in_scope_queued_one_may_wait_behind_one_that_runs(core: Core) -> None:
    core.enqueue(dedupe_key="k", dedupe_scope="queued")
    assert core.enqueue(dedupe_key="k", dedupe_scope="queued") is None
    core.claim_one()
    assert core.enqueue(dedupe_key="k", dedupe_scope="queued") is not None
    assert core.enqueue(dedupe_key="k", dedupe_scope="queued") is None


@pytest.mark.parametrize("how", ["complete", "fail_fatal"])
def test_a_key_is_free_at_once_when_its_job_has_ended(core: Core, how: How) -> None:
    core.enqueue(dedupe_key="k")
    core.settle(core.claim_one(), how)
    assert core.enqueue(dedupe_key="k") is not None


@pytest.mark.parametrize("end", ["cancel", "delete"])
def test_a_key_is_free_at_once_when_the_base_layer_ends_or_deletes_its_job(core: Core, end: str) -> None:
    id = core.enqueue(dedupe_key="k")
    if end == "cancel":
        assert core.cell.queue.cancel(id) is not None
    else:
        core.cell.collection.delete_one({"_id": id})
    assert core.enqueue(dedupe_key="k") is not None


@pytest.mark.parametrize(("held", "asked"), [("queued", "queued+running"), ("queued+running", "queued")])
@pytest.mark.parametrize("running", [False, True])
def test_a_key_held_in_the_other_scope_is_an_error_that_names_both(
    core: Core, held: Any, asked: Any, running: bool
) -> None:
    id = core.enqueue(dedupe_key="k", dedupe_scope=held)
    if running:
        core.claim_one()
    with pytest.raises(DedupeScopeConflictError) as conflict:
        core.enqueue(dedupe_key="k", dedupe_scope=asked)
    assert (conflict.value.held, conflict.value.asked, conflict.value.holder) == (held, asked, id)
    assert core.cell.collection.count_documents({}) == 1


def test_latest_replaces_the_data_of_the_job_that_waits_and_makes_it_a_new_request(core: Core) -> None:
    first = core.enqueue(data={"v": 1}, **QUEUED)
    core.claim_one()
    core.change(first, durable__steps=[1], durable__journal_bytes=9, durable__logs=[{"at": LONG_AGO, "message": "1"}])
    core.settle((core.get(first), core.stored(first)["durable"]["token"]), "fail")
    assert core.get(first).error == FAILURE
    assert core.enqueue(data={"v": 2}, coalesce="latest", **QUEUED) == first
    job, stored = core.get(first), core.stored(first)
    assert (job.data, job.attempt, job.error, job.status) == ({"v": 2}, 0, None, Status.QUEUED)
    assert not {"steps", "journal_bytes", "logs", "failure_kind"} & set(stored["durable"])
    assert core.enqueue(data={"v": 3}, **QUEUED) is None  # without coalesce the waiting one keeps what it has
    assert core.stored(first)["data"] == {"v": 2}
    assert core.enqueue(data={"v": 4}, coalesce="latest", **QUEUED) == first
    assert core.stored(first)["data"] == {"v": 4}


def test_latest_is_not_held_back_by_the_backoff_or_the_delay_of_what_it_replaces(core: Core) -> None:
    first = core.enqueue(delay=3_600, **QUEUED)
    in_a_minute = core.get(first).created_at + timedelta(minutes=1)
    core.enqueue(run_at=in_a_minute, coalesce="latest", **QUEUED)
    assert core.get(first).run_at == in_a_minute
    core.enqueue(delay=7_200, coalesce="latest", **QUEUED)
    assert core.get(first).run_at == in_a_minute  # what was promised earlier is not put off
    core.enqueue(data={"v": 2}, coalesce="latest", **QUEUED)
    assert core.claim_one()[0].data == {"v": 2}


@pytest.mark.parametrize("running", [False, True])
def test_latest_leaves_a_waiting_job_of_another_action_alone_and_the_key_is_taken(core: Core, running: bool) -> None:
    if running:
        core.enqueue("b", **QUEUED)
        core.claim_one("b")
    waits = core.enqueue("a", {"v": 1}, **QUEUED)
    stored = core.stored(waits)
    assert core.enqueue("b", {"v": 2}, coalesce="latest", **QUEUED) is None
    assert core.stored(waits) == stored
    assert core.enqueue_many(Enqueue("b", coalesce="latest", **QUEUED), Enqueue("b"))[0] is None
    assert core.stored(waits) == stored


def test_latest_has_all_the_room_of_a_new_job(core: Core) -> None:
    """The log of the request before would leave a payload of the allowed size none, or the job's end none."""
    first = core.enqueue(data={"v": 1}, backoff_delay=0, max_attempts=2, **QUEUED)
    core.settle(core.claim_one(), "fail")
    core.change(first, durable__logs=[{"at": LONG_AGO, "message": "x" * 4_000}] * 1_000, durable__run_at=LONG_AGO)
    assert core.enqueue(data={"x": "x" * (MAX_DATA_BYTES - 20)}, coalesce="latest", **QUEUED) == first
    assert core.settle(core.claim_one(), "fail_fatal") == FailedTerminal()
    assert core.get(first).error == FAILURE


def test_a_delayed_latest_never_replaces_a_newer_payload(core: Core) -> None:
    """What was read is the evidence: neither an equal time nor an absent count lets an old write through."""
    first = core.enqueue(data={"v": 0}, **QUEUED)
    jobs = core.cell.jobs
    old, new = (checked(Enqueue("a", {"v": v}, coalesce="latest", **QUEUED), jobs.codec) for v in (1, 2))
    for _ in range(2):  # with the count absent, and with one
        held = core.cell.do(holders(jobs, ("k",)))
        assert core.cell.do(coalesce(jobs, new, held[0])) == first
        core.change(first, updated_at=held[0]["updated_at"])
        assert core.cell.do(coalesce(jobs, old, held[0])) is None
        assert core.get(first).data == {"v": 2}


@pytest.mark.parametrize("lacks", ["updated_at", "data", "error", "durable.attempt", "durable.run_at"])
def test_latest_replaces_what_another_program_left_incomplete(core: Core, lacks: str) -> None:
    first = core.enqueue(**QUEUED)
    core.cell.collection.update_one({"_id": first}, {"$unset": {lacks: ""}})
    assert core.enqueue(data={"v": 2}, coalesce="latest", **QUEUED) == first
    assert core.claim_one()[0].data == {"v": 2}


def test_a_latest_that_lost_looks_again(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    first = core.enqueue(data={"v": 0}, **QUEUED)
    jobs, real, looks = core.cell.jobs, enqueue.holders, []

    async def rivalled(*args: Any) -> Any:
        held = await real(*args)
        looks.append(held)
        if len(looks) == 1:
            rival = checked(Enqueue("a", {"v": "rival"}, coalesce="latest", **QUEUED), jobs.codec)
            assert await coalesce(jobs, rival, held[0]) == first
        return held

    monkeypatch.setattr(enqueue, "holders", rivalled)
    assert core.enqueue(data={"v": "mine"}, coalesce="latest", **QUEUED) == first
    assert core.get(first).data == {"v": "mine"}
    assert len(looks) == 2


def test_latest_never_changes_what_a_run_was_given(core: Core) -> None:
    options: Any = {"dedupe_key": "k", "dedupe_scope": "queued", "coalesce": "latest"}
    first = core.enqueue(data={"v": 1}, **options)
    core.claim_one()
    follower = core.enqueue(data={"v": 2}, **options)
    assert follower not in (None, first)
    assert core.enqueue(data={"v": 3}, **options) == follower
    assert core.stored(first)["data"] == {"v": 1}
    assert core.stored(follower)["data"] == {"v": 3}
    assert core.get(first).status is Status.RUNNING


def test_of_two_latest_in_one_call_the_second_wins_also_when_the_key_moves_in_between(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    latest: Any = {"dedupe_key": "k", "dedupe_scope": "queued", "coalesce": "latest"}
    holder = core.enqueue(**latest)
    insert_each = core.cell.jobs.insert_each

    async def one_by_one(documents: list[dict[str, Any]], **options: Any) -> set[int]:
        refused = set()
        for place, document in enumerate(documents):
            if await insert_each([document], **options):
                refused.add(place)
            core.change(holder, status="running")
        return refused

    monkeypatch.setattr(core.cell.jobs, "insert_each", one_by_one)
    ids = core.enqueue_many(Enqueue("a", {"n": 1}, **latest), Enqueue("a"), Enqueue("a", {"n": 2}, **latest))
    assert ids[0] == ids[2]
    assert core.get(ids[0]).data == {"n": 2}


@pytest.mark.parametrize("key", [None, "k"])
def test_a_job_that_is_inserted_again_counts_as_stored_whatever_has_become_of_it(
    real_core: Core, key: str | None
) -> None:
    jobs = real_core.cell.jobs
    document = new_durable(checked(Enqueue("a", dedupe_key=key), jobs.codec), LONG_AGO)
    assert real_core.cell.do(jobs.insert_each([document])) == set()
    assert real_core.cell.do(jobs.insert_each([document])) == set()
    real_core.settle(real_core.claim_one(), "complete")
    assert real_core.cell.do(jobs.insert_each([document])) == set()
    assert real_core.get(document["_id"]).status is Status.COMPLETED
