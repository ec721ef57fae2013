"""Each command the layer sends uses an index, and no more of it than it has to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from simplequeue import commands, create_queue
from simplequeue.jobs import Room, run
from simplequeue.payload import MAX_DATA_BYTES, MAX_DOCUMENT_BYTES
from tests import plans

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def explain(db: Database[dict[str, Any]], command: dict[str, Any]) -> tuple[int, int, tuple[str, ...]]:
    """The keys and documents a command examines, and the stages of its plan."""
    plan = plans.explain(db, command)
    return plan.keys, plan.documents, plan.stages


def look(actions: list[str] | None, limit: int) -> dict[str, Any]:
    """The find that a listener looks for work with, as ``runs.waiting`` sends it."""
    return {
        "find": "job",
        "filter": commands.queued_plain(actions),
        "projection": {"_id": 1},
        "sort": {"_id": 1},
        "limit": limit,
        "hint": commands.next_index(actions).name,
    }


@pytest.fixture
def crowded(db: Database[dict[str, Any]]) -> Database[dict[str, Any]]:
    """100,000 queued jobs of the extension, 20,000 ended ones, and 1,000 plain ones of another action."""
    queue = create_queue(db)
    for index in (commands.NEXT_PLAIN_JOB, commands.NEXT_PLAIN_JOB_OF_ACTION, commands.ENDED_BEFORE):
        run(queue._jobs.ensure_index(index))
    common: dict[str, Any] = {"error": None, "created_at": NOW, "updated_at": NOW, "started_at": None, "data": {}}
    durable = {"action": "sync", "status": "queued", "finished_at": None, "durable": {"priority": 0}, **common}
    db.job.insert_many([{"_id": f"durable{n:06}", **durable} for n in range(100_000)], ordered=False)
    db.job.insert_many(
        [
            {
                "_id": f"ended{n:06}",
                "action": "sync",
                "status": ("completed", "failed", "cancelled", "superseded")[n % 4],
                "finished_at": NOW - timedelta(minutes=n),
                **common,
            }
            for n in range(20_000)
        ],
        ordered=False,
    )
    return db


def test_a_look_beside_100_000_jobs_of_the_extension_examines_at_most_two_keys(
    crowded: Database[dict[str, Any]],
) -> None:
    queue = create_queue(crowded)
    for actions in (None, ["mail"], ["mail", "sync"]):
        keys, documents, stages = explain(crowded, look(actions, 16))
        assert keys <= 2
        assert documents <= 1
        assert not {"SORT", "COLLSCAN"} & set(stages)
    queue.add("mail")
    for actions in (None, ["mail"], ["mail", "sync"]):
        keys, documents, stages = explain(crowded, look(actions, 16))
        assert keys <= 2
        assert documents <= 1
        assert not {"SORT", "COLLSCAN"} & set(stages)


@pytest.mark.parametrize("actions", [None, ["mail"], ["mail", "sms", "push"]])
def test_a_look_examines_a_key_for_each_id_it_gives_and_one_for_each_action(
    crowded: Database[dict[str, Any]], actions: list[str] | None
) -> None:
    queue = create_queue(crowded)
    queue.add_many([("other", None)] * 1_000)
    queue.add_many([(("mail", "sms", "push")[n % 3], None) for n in range(1_000)])
    keys, documents, stages = explain(crowded, look(actions, 16))
    assert keys <= 16 + len(actions or [])
    assert documents <= 16
    assert not {"SORT", "COLLSCAN"} & set(stages)


def test_a_claim_a_cancel_and_both_endings_examine_one_key(crowded: Database[dict[str, Any]]) -> None:
    job = create_queue(crowded).add("mail")
    for filter, update in (
        commands.claim(job.id, NOW),
        commands.cancel(job.id, NOW),
        commands.complete(job, NOW),
        commands.fail(job, {"name": "", "message": "", "stack": ""}, NOW),
    ):
        keys, documents, stages = explain(crowded, {"findAndModify": "job", "query": filter, "update": update})
        assert (keys, documents) == (1, 1)
        assert "IXSCAN _id_" in stages or "IDHACK" in stages


def test_an_update_examines_one_key_with_its_check_for_room(crowded: Database[dict[str, Any]]) -> None:
    job = create_queue(crowded).add("mail")
    filter, update = commands.set_data(job.id, {"progress": 50}, NOW)
    room = Room("data", {"progress": 50}, 20, MAX_DATA_BYTES, MAX_DOCUMENT_BYTES)
    command = {"update": "job", "updates": [{"q": {**filter, **room.as_filter()}, "u": update}]}
    keys, documents, _stages = explain(crowded, command)
    assert (keys, documents) == (1, 1)


def test_a_batch_of_a_sweep_examines_a_key_for_each_job_it_deletes(crowded: Database[dict[str, Any]]) -> None:
    ended = commands.ended_before(NOW - timedelta(minutes=5_000))
    find = {"find": "job", "filter": ended, "projection": {"_id": 1}, "sort": {"finished_at": 1}, "limit": 1_000}
    keys, _documents, stages = explain(crowded, find)
    assert 1_000 <= keys <= 1_000 + 4  # one more for each status that is merged
    assert "IXSCAN which_jobs_ended_before" in stages
    assert not {"SORT", "COLLSCAN"} & set(stages)
    ids = [document["_id"] for document in crowded.job.find(ended, {"_id": 1}).sort("finished_at", 1).limit(1_000)]
    delete = {"delete": "job", "deletes": [{"q": {"_id": {"$in": ids}, **ended}, "limit": 0, "hint": "_id_"}]}
    keys, documents, stages = explain(crowded, delete)
    assert keys <= 1_001
    assert documents <= 1_000
    assert "COLLSCAN" not in stages


def test_the_claims_of_a_listener_read_no_more_than_the_jobs_it_runs(crowded: Database[dict[str, Any]]) -> None:
    queue = create_queue(crowded)
    ids = [job.id for job in queue.add_many([("mail", None)] * 100)]
    crowded.command({"profile": 2})
    with queue.listen(lambda job: None, concurrency=4):
        pass
    crowded.command({"profile": 0})
    sent = list(crowded["system.profile"].find({"ns": f"{crowded.name}.job", "op": {"$ne": "getmore"}}))
    looks = [entry for entry in sent if entry.get("command", {}).get("find") == "job"]
    assert looks
    assert max(entry["keysExamined"] for entry in looks) <= 2 + len(ids)
    assert all("COLLSCAN" not in entry.get("planSummary", "") for entry in sent if "find" in entry.get("command", {}))


def test_a_producer_sends_one_command_for_each_add_and_one_for_many(db: Database[dict[str, Any]]) -> None:
    queue = create_queue(db)
    queue.add("warm", None)  # measures the server's clock, once a minute
    db.command({"profile": 2})
    queue.add("a")
    queue.add_many([("a", None)] * 100)
    db.command({"profile": 0})
    assert [entry["op"] for entry in db["system.profile"].find({"ns": f"{db.name}.job"})] == ["insert", "insert"]
