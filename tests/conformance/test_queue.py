"""What the queue does, in every cell."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from simplequeue import PayloadError, Status
from simplequeue.job import FIELDS
from tests.cells import Cell


def test_a_stored_job_has_exactly_the_nine_root_fields(cell: Cell) -> None:
    job = cell.queue.add("greet", {"name": "Ada"})
    stored = cell.collection.find_one({"_id": job.id})
    assert set(stored) == FIELDS
    assert len(stored) == 9
    assert stored["status"] == "queued"
    assert stored["error"] is stored["started_at"] is stored["finished_at"] is None
    assert stored["created_at"] == stored["updated_at"]
    assert stored["data"] == {"name": "Ada"}
    assert UUID(job.id).version == 7


def test_what_add_returns_is_what_was_stored(cell: Cell) -> None:
    at = datetime(2026, 8, 25, 14, 0, 0, 123_456, tzinfo=UTC)
    job = cell.queue.add("greet", {"at": at, "deep": [{"at": at}], "n": 2**40, "b": b"x", "none": None})
    assert job == cell.queue.get(job.id)
    assert job.data["at"] == datetime(2026, 8, 25, 14, 0, 0, 123_000, tzinfo=UTC)
    assert job.data["deep"][0]["at"].utcoffset() == timedelta(0)
    assert job.created_at.utcoffset() == timedelta(0)
    assert job.document == {**cell.queue.get(job.id).document}
    assert set(job.document) == FIELDS


def test_data_is_copied_and_none_means_empty(cell: Cell) -> None:
    data = {"list": [1]}
    job = cell.queue.add("greet", data)
    data["list"].append(2)
    assert job.data == cell.queue.get(job.id).data == {"list": [1]}
    assert cell.queue.add("greet").data == cell.queue.add("greet", None).data == {}


def test_add_many_keeps_the_order_and_stores_nothing_when_one_is_bad(cell: Cell) -> None:
    jobs = cell.queue.add_many([("a", {"n": 0}), ("b", None), ("a", {"n": 2})])
    assert [job.action for job in jobs] == ["a", "b", "a"]
    assert sorted(job.id for job in jobs) == [job.id for job in jobs]
    assert [cell.queue.get(job.id) for job in jobs] == jobs
    with pytest.raises(PayloadError) as refused:
        cell.queue.add_many([("a", None), ("b", {"x": {1, 2}})])
    assert refused.value.path == "jobs[1].data.x"
    assert cell.collection.count_documents({}) == 3
    assert cell.queue.add_many([]) == []


def test_a_job_is_found_by_its_id_as_text_or_uuid_and_nothing_by_what_is_no_id(cell: Cell) -> None:
    job = cell.queue.add("greet")
    assert cell.queue.get(job.id) == job
    assert cell.queue.get(UUID(job.id)) == job
    for other in (str(uuid4()), "", "x", "\ud800", job.id.upper(), job.id + " ", None, 7, {"$ne": None}, [job.id]):
        assert cell.queue.get(other) is None
        assert cell.queue.cancel(other) is None
        assert cell.queue.update(other, {"x": 1}).matched_count == 0
    assert cell.queue.get(job.id) == job
    assert cell.queue.update(UUID(job.id), {"x": 1}).matched_count == 1
    assert cell.queue.cancel(UUID(job.id)).data == {"x": 1}


def test_update_sets_single_fields_beneath_data_and_leaves_the_root_alone(cell: Cell) -> None:
    job = cell.queue.add("greet", {"name": "Ada", "progress": {"a": 1, "b": 2}})
    result = cell.queue.update(job.id, {"progress": {"a": 3}, "_id": 1, "status": "done", "step": "render"})
    assert result.matched_count == 1
    after = cell.queue.get(job.id)
    assert after.data == {"name": "Ada", "progress": {"a": 3}, "_id": 1, "status": "done", "step": "render"}
    assert after.status is Status.QUEUED
    assert after.updated_at >= job.updated_at
    assert {**after.document, "data": 0, "updated_at": 0} == {**job.document, "data": 0, "updated_at": 0}


def test_update_with_no_fields_only_refreshes_updated_at(cell: Cell) -> None:
    job = cell.queue.add("greet", {"name": "Ada"})
    assert cell.queue.update(job.id, {}).matched_count == 1
    assert cell.queue.get(job.id).data == {"name": "Ada"}


@pytest.mark.parametrize("key", ["a.b", "$inc", "", "a\0b", 1, None, b"x", ".", "\ud800"])
def test_update_refuses_a_key_that_names_no_field_of_data(cell: Cell, key: object) -> None:
    job = cell.queue.add("greet", {"a": 1})
    with pytest.raises(PayloadError, match="data"):
        cell.queue.update(job.id, {key: 1})
    assert cell.queue.get(job.id) == job


def test_update_refuses_to_let_a_job_outgrow_what_can_still_be_ended(cell: Cell) -> None:
    job = cell.queue.add("grow", {"a": "x" * 8_000_000, "b": "y"})
    assert cell.queue.update(job.id, {"b": "y" * 7_900_000}).matched_count == 1
    with pytest.raises(PayloadError, match="16,000,000") as refused:
        cell.queue.update(job.id, {"c": "z" * 200_000})
    assert refused.value.path == "data"
    assert cell.queue.update(job.id, {"a": "short", "c": "z" * 200_000}).matched_count == 1
    assert len(cell.queue.get(job.id).data["b"]) == 7_900_000


def test_cancel_ends_a_queued_job_and_returns_it_once(cell: Cell) -> None:
    job = cell.queue.add("greet")
    cancelled = cell.queue.cancel(job.id)
    assert cancelled.status is Status.CANCELLED
    assert cancelled.finished_at == cancelled.updated_at >= job.created_at
    assert cancelled == cell.queue.get(job.id)
    assert cell.queue.cancel(job.id) is None


@pytest.mark.parametrize("status", ["running", "completed", "failed", "superseded"])
def test_cancel_leaves_a_job_alone_that_is_no_longer_queued(cell: Cell, status: str) -> None:
    job = cell.queue.add("greet")
    cell.collection.update_one({"_id": job.id}, {"$set": {"status": status}})
    assert cell.queue.cancel(job.id) is None
    assert cell.queue.get(job.id).status == status


def test_sweep_deletes_what_ended_at_or_before_the_cutoff_and_nothing_else(cell: Cell) -> None:
    cutoff = datetime(2026, 1, 1, tzinfo=UTC)
    kept: set[str] = set()
    swept: set[str] = set()
    for status in Status:
        for shift in (-1, 0, 1):
            job = cell.queue.add(f"{status}{shift}")
            ended = status not in ("queued", "running")
            finished_at = cutoff + timedelta(milliseconds=shift) if ended else None
            cell.collection.update_one({"_id": job.id}, {"$set": {"status": status, "finished_at": finished_at}})
            (swept if ended and shift <= 0 else kept).add(job.id)
    assert cell.queue.sweep(cutoff).deleted_count == len(swept) == 8
    assert {document["_id"] for document in cell.collection.find({}, {"_id": 1})} == kept


def test_sweep_without_a_cutoff_deletes_all_that_has_ended(cell: Cell) -> None:
    ended, queued = cell.queue.add("a"), cell.queue.add("a")
    cell.queue.cancel(ended.id)
    assert cell.queue.sweep().deleted_count == 1
    assert cell.queue.get(ended.id) is None
    assert cell.queue.get(queued.id) == queued
    assert cell.queue.sweep().deleted_count == 0


def test_sweep_with_a_limit_takes_the_oldest_first(cell: Cell) -> None:
    jobs = cell.queue.add_many([("a", {"n": n}) for n in range(5)])
    for minute, job in enumerate(reversed(jobs)):
        finished_at = datetime(2026, 1, 1, 0, minute, tzinfo=UTC)
        cell.collection.update_one({"_id": job.id}, {"$set": {"status": "failed", "finished_at": finished_at}})
    assert cell.queue.sweep(limit=2).deleted_count == 2
    assert sorted(document["data"]["n"] for document in cell.collection.find()) == [0, 1, 2]


@pytest.mark.parametrize("before", [datetime(2026, 1, 1), "7d", 7, timedelta(days=7)])  # noqa: DTZ001  # on purpose
def test_sweep_refuses_what_is_no_point_in_time(cell: Cell, before: object) -> None:
    with pytest.raises(PayloadError, match="before"):
        cell.queue.sweep(before)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "1"])
def test_sweep_refuses_a_limit_that_is_no_count(cell: Cell, limit: object) -> None:
    with pytest.raises(PayloadError, match="limit"):
        cell.queue.sweep(limit=limit)


@pytest.mark.parametrize("action", ["", None, 7, b"mail", "\ud800", "x" * 1_001, ["mail"]])
def test_an_action_is_a_string_that_names_the_work(cell: Cell, action: object) -> None:
    with pytest.raises(PayloadError, match="action"):
        cell.queue.add(action)
    with pytest.raises(PayloadError, match="action"):
        cell.queue.add_many([(action, None)])
    assert cell.collection.count_documents({}) == 0


@pytest.mark.parametrize("data", [[], ["x"], "x", 7, True, b"x", {1, 2}, object()])
def test_data_is_a_mapping_and_nothing_else(cell: Cell, data: object) -> None:
    with pytest.raises(PayloadError) as refused:
        cell.queue.add("a", data)
    assert refused.value.path == "data"
    assert cell.collection.count_documents({}) == 0


def test_a_job_with_a_status_of_another_program_can_be_read(cell: Cell) -> None:
    job = cell.queue.add("a")
    cell.collection.update_one({"_id": job.id}, {"$set": {"status": "lost"}})
    assert cell.queue.get(job.id).status == "lost"
    assert cell.queue.cancel(job.id) is None


def test_a_job_of_the_extension_is_read_updated_cancelled_and_swept_like_any_other(cell: Cell) -> None:
    job = cell.queue.add("sync")
    durable = {"priority": 1, "attempt": 0}
    cell.collection.update_one({"_id": job.id}, {"$set": {"durable": durable}})
    assert cell.queue.get(job.id).document["durable"] == durable
    assert cell.queue.update(job.id, {"x": 1}).matched_count == 1
    assert cell.queue.cancel(job.id).document["durable"] == durable
    assert cell.queue.sweep().deleted_count == 1
