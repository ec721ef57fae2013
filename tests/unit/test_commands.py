"""What is sent to the database, as plain documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import bson
import mongomock
import pytest

from simplequeue import commands
from simplequeue.failure import StoredError
from simplequeue.job import FIELDS, Document, Job, job_from, new_document
from simplequeue.states import CANCEL, CLAIM, COMPLETE, ENDED, FAIL, MOVES, Move, Status

NOW = datetime(2026, 8, 25, 14, 0, 0, 123_000, tzinfo=UTC)
STARTED = NOW - timedelta(seconds=5)
ERROR: StoredError = {"name": "ValueError", "message": "no", "stack": "..."}
RUNNING = job_from(
    {**new_document("greet", {"name": "Ada"}, STARTED), "_id": "id", "status": "running", "started_at": STARTED}
)

WRITES: dict[Move, Callable[[], tuple[Document, Document]]] = {
    CLAIM: lambda: commands.claim("id", NOW),
    CANCEL: lambda: commands.cancel("id", NOW),
    COMPLETE: lambda: commands.complete(RUNNING, NOW),
    FAIL: lambda: commands.fail(RUNNING, ERROR, NOW),
}
BASE = [move for move in MOVES if move.layer == "base"]


def move_name(move: object) -> str:
    return move.name if isinstance(move, Move) else str(move)


def test_there_is_a_command_for_every_move_of_the_base_layer() -> None:
    assert set(WRITES) == set(BASE)


@pytest.mark.parametrize("move", BASE, ids=move_name)
def test_a_move_asks_for_the_id_and_the_state_it_leaves_and_sets_the_one_it_reaches(move: Move) -> None:
    filter, update = WRITES[move]()
    assert filter["_id"] == "id"
    assert filter["status"] == move.source.value
    assert update["$set"]["status"] == move.target.value
    assert update["$set"]["updated_at"] == NOW
    assert update["$set"].get("finished_at") == (NOW if move.target in ENDED else None)
    assert update["$set"].get("started_at") == (NOW if move.target is Status.RUNNING else None)


@pytest.mark.parametrize("move", BASE, ids=move_name)
@pytest.mark.parametrize("status", list(Status))
def test_a_move_changes_a_job_in_its_source_state_and_in_no_other(move: Move, status: Status) -> None:
    store: Any = mongomock.MongoClient(tz_aware=True).test.job
    before = {**RUNNING.document, "status": status.value}
    store.insert_one(before)
    filter, update = WRITES[move]()
    matched = store.update_one(filter, update).matched_count
    after = store.find_one({"_id": "id"})
    if status is move.source:
        assert matched == 1
        assert after == {**before, **update["$set"]}
    else:
        assert matched == 0
        assert after == before


@pytest.mark.parametrize("move", BASE, ids=move_name)
def test_a_move_leaves_identity_and_payload_alone_and_is_a_plain_set(move: Move) -> None:
    _, update = WRITES[move]()
    assert set(update) == {"$set"}
    assert set(update["$set"]) <= {"status", "updated_at", "started_at", "finished_at", "error"}


@pytest.mark.parametrize("move", BASE, ids=move_name)
def test_what_is_sent_is_made_of_the_plainest_types(move: Move) -> None:
    def values(part: object) -> Iterator[object]:
        if isinstance(part, dict):
            for key, value in part.items():
                yield key
                yield from values(value)
        else:
            yield part

    for document in WRITES[move]():
        assert {type(value) for value in values(document)} <= {str, datetime, type(None)}
        assert bson.encode(document)


def test_a_claim_takes_no_job_of_the_extension() -> None:
    assert commands.claim("id", NOW) == (
        {"_id": "id", "status": "queued", "durable": None},
        {"$set": {"status": "running", "updated_at": NOW, "started_at": NOW}},
    )


def test_an_end_repeats_the_evidence_of_its_claim() -> None:
    fence = {"_id": "id", "status": "running", "started_at": STARTED}
    assert commands.complete(RUNNING, NOW) == (
        fence,
        {"$set": {"status": "completed", "updated_at": NOW, "finished_at": NOW}},
    )
    assert commands.fail(RUNNING, ERROR, NOW) == (
        fence,
        {"$set": {"status": "failed", "updated_at": NOW, "finished_at": NOW, "error": ERROR}},
    )


@pytest.mark.parametrize("end", [COMPLETE, FAIL], ids=move_name)
def test_an_end_does_not_touch_a_later_run_of_the_same_job(end: Move) -> None:
    store: Any = mongomock.MongoClient(tz_aware=True).test.job
    later = {**RUNNING.document, "started_at": STARTED + timedelta(milliseconds=1)}
    store.insert_one(later)
    assert store.update_one(*WRITES[end]()).matched_count == 0
    assert store.find_one({"_id": "id"}) == later


def test_a_cancel_reaches_queued_jobs_of_the_extension_too() -> None:
    assert commands.cancel("id", NOW) == (
        {"_id": "id", "status": "queued"},
        {"$set": {"status": "cancelled", "updated_at": NOW, "finished_at": NOW}},
    )


def test_an_update_names_each_field_beneath_data_and_nothing_else_but_the_time() -> None:
    values = {"progress": 50, "_id": 1, "status": "done", "data": {"data": 1}}
    assert commands.set_data("id", values, NOW) == (
        {"_id": "id"},
        {
            "$set": {
                "data.progress": 50,
                "data._id": 1,
                "data.status": "done",
                "data.data": {"data": 1},
                "updated_at": NOW,
            }
        },
    )
    assert commands.set_data("id", {}, NOW) == ({"_id": "id"}, {"$set": {"updated_at": NOW}})


def test_a_sweep_asks_for_every_end_and_up_to_the_very_time() -> None:
    asked = commands.ended_before(NOW)
    assert set(asked) == {"status", "finished_at"}
    assert set(asked["status"]["$in"]) == {status.value for status in ENDED}
    assert asked["finished_at"] == {"$lte": NOW}


def test_a_listener_of_all_actions_asks_for_queued_jobs_without_the_extensions_field() -> None:
    assert commands.queued_plain(None) == {"status": "queued", "durable": None}


@pytest.mark.parametrize("actions", [["a"], ("b", "a"), {"a": 1}.keys(), []])
def test_a_listener_of_some_actions_asks_for_those_besides(actions: Any) -> None:
    asked = commands.queued_plain(actions)
    assert asked == {"status": "queued", "durable": None, "action": {"$in": list(actions)}}
    assert type(asked["action"]["$in"]) is list


@pytest.mark.parametrize("actions", [None, ["a"]])
def test_what_a_caller_adds_to_a_filter_is_not_in_the_next_one(actions: Any) -> None:
    commands.queued_plain(actions)["_id"] = {"$nin": ["x"]}
    commands.claim("id", NOW)[0]["more"] = 1
    commands.ended_before(NOW)["status"]["$in"].clear()
    assert "_id" not in commands.queued_plain(actions)
    assert "more" not in commands.claim("id", NOW)[0]
    assert commands.ended_before(NOW)["status"]["$in"]


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        (commands.queued_plain(None), commands.next_index(None)),
        (commands.queued_plain(["a"]), commands.next_index(["a"])),
        (commands.claim("id", NOW)[0], commands.NEXT_PLAIN_JOB),
        (commands.ended_before(NOW), commands.ENDED_BEFORE),
    ],
    ids=["next", "next of actions", "claim", "ended"],
)
def test_a_query_repeats_the_filter_of_its_partial_index_word_for_word(asked: Document, index: commands.Index) -> None:
    for field, condition in index.filter.items():
        if isinstance(condition, dict):
            assert sorted(asked[field]["$in"]) == sorted(condition["$in"])
        else:
            assert field in asked
            assert asked[field] == condition
    used = [field in asked for field, _ in index.keys]
    assert used[0]
    assert used == sorted(used, reverse=True), "a field that is asked for stands behind one that is not"


def test_an_index_is_named_after_a_question_and_no_two_share_a_name() -> None:
    indexes = [commands.NEXT_PLAIN_JOB, commands.NEXT_PLAIN_JOB_OF_ACTION, commands.ENDED_BEFORE]
    assert len({index.name for index in indexes}) == len(indexes)
    assert all(index.name.startswith("which_") for index in indexes)
    assert len({tuple(field for field, _ in index.keys) for index in indexes}) == len(indexes)


@pytest.mark.parametrize("actions", [None, ["mail", "sms"]])
def test_the_events_that_mean_work_are_inserts_of_what_a_listener_may_claim(actions: list[str] | None) -> None:
    asked = commands.added_plain(actions)
    assert asked.pop("operationType") == "insert"
    found = {field.removeprefix("fullDocument."): value for field, value in asked.items()}
    assert found == commands.queued_plain(actions)


def test_a_new_document_has_the_nine_fields_and_nothing_has_happened_to_it_yet() -> None:
    document = new_document("greet", {"name": "Ada"}, NOW)
    assert set(document) == FIELDS
    assert len(document) == 9
    assert UUID(document.pop("_id")).version == 7
    assert document == {
        "action": "greet",
        "status": "queued",
        "error": None,
        "created_at": NOW,
        "updated_at": NOW,
        "started_at": None,
        "finished_at": None,
        "data": {"name": "Ada"},
    }


def test_ids_that_are_made_one_after_another_sort_so() -> None:
    ids = [new_document("greet", {}, NOW)["_id"] for _ in range(2_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_a_job_shows_all_nine_fields_and_gives_its_document_back() -> None:
    document = {**new_document("greet", {"name": "Ada"}, NOW), "error": dict(ERROR)}
    job = job_from(document)
    assert job.document == document
    shown = {field.name for field in fields(Job) if not field.name.startswith("_")}
    assert shown == (FIELDS - {"_id"}) | {"id"}
    assert job.status is Status.QUEUED
    assert type(job.document["status"]) is str


def test_a_job_keeps_the_fields_of_others_without_showing_them() -> None:
    document = {**new_document("greet", {}, NOW), "durable": {"attempt": 1}, "note": "x"}
    job = job_from(document)
    assert job.document == document
    assert "durable" not in repr(job)
    assert job == job_from({name: value for name, value in document.items() if name in FIELDS})


def test_a_document_that_lacks_everything_but_id_and_state_is_still_a_job() -> None:
    job = job_from({"_id": "id", "status": "failed"})
    assert (job.id, job.status) == ("id", Status.FAILED)
    others = {name: value for name, value in job.document.items() if name not in ("_id", "status")}
    assert set(others.values()) == {None}
    assert set(job.document) == FIELDS
