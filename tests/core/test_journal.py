"""The journal and the log of a run, in every cell: fenced, repeatable, and never in the way of the job's end."""

from __future__ import annotations

import math
from collections import OrderedDict
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum
from typing import Any

import bson
import pytest

from durabl_ext.core.journal import Limits, Step, append_step, log, read_steps
from durabl_ext.core.plans import How
from durabl_ext.errors import JournalTooLarge
from durabl_ext.job import DurableJob, LogLine
from durabl_ext.outcomes import Appended, Completed, FailedTerminal, LeaseLost, NoRoom, NotFound
from simplequeue.payload import MAX_DATA_BYTES, PayloadError
from tests.core.conftest import FAILURE, LONG_AGO, Core

LIMIT = 8_000_000
LINE = LogLine(LONG_AGO, "seen")


class Level(IntEnum):
    HIGH = 2


def append(core: Core, claimed: tuple[DurableJob, str], seq: str, name: str, limit: int = LIMIT, **record: Any) -> Any:
    job, token = claimed
    return core.cell.do(append_step(core.cell.jobs, job.id, token, Step(seq, name, record), limit))


def write_log(core: Core, claimed: tuple[DurableJob, str], *lines: LogLine, keep: int = 1_000) -> Any:
    job, token = claimed
    return core.cell.do(log(core.cell.jobs, job.id, token, lines, Limits(max_log_entries=keep)))


def steps(core: Core, id: str | None) -> Any:
    return core.cell.do(read_steps(core.cell.jobs, str(id)))


def test_finished_steps_are_read_back_in_order_and_outlive_a_retry(core: Core) -> None:
    id = core.enqueue()
    claimed = core.claim_one()
    append(core, claimed, "0", "load", result=1)
    append(core, claimed, "1", "pay", result={"id": "x"})
    core.settle(claimed, "fail")
    core.make_due(id)
    core.claim_one()
    assert steps(core, id) == [
        {"seq": "0", "name": "load", "result": 1},
        {"seq": "1", "name": "pay", "result": {"id": "x"}},
    ]
    assert steps(core, "0198e15c-8200-7000-8000-000000000001") is None


def test_a_step_that_is_there_is_not_added_again_and_the_stored_one_is_the_answer(core: Core) -> None:
    id = core.enqueue()
    claimed = core.claim_one()
    first = append(core, claimed, "0", "load", result=1)
    assert append(core, claimed, "0", "load", result=2) == first == Appended({"seq": "0", "name": "load", "result": 1})
    assert append(core, claimed, "0", "other", result=3) == first
    assert len(steps(core, id)) == 1


RESULTS: dict[str, Any] = {
    "a tuple": (1, (2, 3)),
    "microseconds": datetime(2026, 1, 1, 12, 0, 0, 999_999, tzinfo=UTC),
    "another zone": datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=9))),
    "an enum": Level.HIGH,
    "bytes": b"\x00\xff",
    "nan": float("nan"),
    "a long": 2**40,
    "nested": {"": [{"x": (1.5, None, True)}], "umlaut": "ä"},
    "an own type": OrderedDict(a=1),
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_the_answer_has_the_step_as_it_is_read_later(core: Core, result: Any) -> None:
    id = core.enqueue()
    claimed = core.claim_one()
    answer = append(core, claimed, "0", "load", result=result)
    again = append(core, claimed, "0", "load", result=result)
    (read,) = steps(core, id)
    assert typed(answer.stored) == typed(read) == typed(again.stored)


def typed(value: Any) -> Any:
    """A value with the types of all its parts; also of a number that is not equal to itself."""
    if isinstance(value, dict):
        return type(value), {name: typed(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [typed(part) for part in value]
    return type(value), "NaN" if isinstance(value, float) and math.isnan(value) else value


def test_a_result_that_is_changed_later_changes_neither_the_answer_nor_the_journal(core: Core) -> None:
    id = core.enqueue()
    result = {"items": [1]}
    answer = append(core, core.claim_one(), "0", "load", result=result)
    result["items"].append(2)
    assert answer.stored["result"] == {"items": [1]}
    assert steps(core, id)[0]["result"] == {"items": [1]}


@pytest.mark.parametrize("result", [2**63, {1: 2}, object(), {"x": {3}}, "\ud800"], ids=repr)
def test_a_result_that_cannot_be_encoded_is_an_error_and_nothing_is_written(core: Core, result: Any) -> None:
    id = core.enqueue()
    claimed = core.claim_one()
    before = core.stored(id)
    with pytest.raises((bson.errors.BSONError, OverflowError, UnicodeEncodeError)):
        append(core, claimed, "0", "load", result=result)
    assert core.stored(id) == before
    assert append(core, claimed, "0", "load", result=1) == Appended({"seq": "0", "name": "load", "result": 1})


def test_a_claim_that_was_lost_writes_neither_steps_nor_logs(core: Core) -> None:
    id = core.enqueue()
    late = core.claim_one()
    core.expire(id)
    core.recover()
    assert append(core, late, "0", "load") == LeaseLost()
    assert write_log(core, late, LINE) == LeaseLost()
    core.make_due(id)
    newer = core.claim_one()
    append(core, newer, "0", "newer")
    stored = core.stored(id)
    assert append(core, late, "0", "load") == LeaseLost()
    assert write_log(core, late, LINE) == LeaseLost()
    assert core.stored(id) == stored
    core.settle(newer, "complete")
    stored = core.stored(id)
    assert append(core, late, "0", "load") == LeaseLost()
    assert append(core, newer, "1", "after the end") == LeaseLost()
    assert write_log(core, late, LINE) == LeaseLost()
    assert core.stored(id) == stored
    core.cell.collection.delete_one({"_id": id})
    assert append(core, late, "0", "load") == NotFound()
    assert write_log(core, late, LINE) == LeaseLost()
    assert core.cell.collection.count_documents({}) == 0


def test_a_journal_beyond_its_budget_is_an_error_that_says_by_how_much(core: Core) -> None:
    id = core.enqueue()
    claimed = core.claim_one()
    append(core, claimed, "0", "small", limit=1_000, result="x" * 500)
    with pytest.raises(JournalTooLarge) as refused:
        append(core, claimed, "1", "large", limit=1_000, result="x" * 500)
    assert (refused.value.job_id, refused.value.step, refused.value.limit) == (id, "large", 1_000)
    assert refused.value.used + refused.value.size > 1_000
    with pytest.raises(JournalTooLarge):
        append(core, claimed, "1", "alone too large", limit=100, result="x" * 500)
    assert len(steps(core, id)) == 1
    assert core.stored(id)["durable"]["journal_bytes"] == refused.value.used


def test_the_newest_lines_of_a_log_are_kept_and_long_ones_are_cut(core: Core) -> None:
    id = core.enqueue()
    claimed = core.claim_one()
    for n in range(5):
        assert write_log(core, claimed, LogLine(LONG_AGO, f"line {n}"), keep=3) == Appended({})
    assert [line.message for line in core.get(id).logs] == ["line 2", "line 3", "line 4"]
    write_log(core, claimed, LogLine(LONG_AGO, "語" * 5_000 + "\ud800\0"))
    message = core.get(id).logs[-1].message
    assert len(message.encode()) <= 4_000
    assert "clipped" in message


def test_logs_beside_full_data_and_a_full_journal_never_keep_a_job_from_its_end(core: Core) -> None:
    id = core.enqueue(data={"x": "x" * (MAX_DATA_BYTES - 20)}, max_attempts=1)
    claimed = core.claim_one()
    with pytest.raises(JournalTooLarge):
        append(core, claimed, "0", "large", result="y" * 700_000)
    append(core, claimed, "0", "fits", result="y" * 300_000)
    lines = [LogLine(LONG_AGO, "語" * 1_333) for _ in range(100)]
    outcomes = [write_log(core, claimed, *lines) for _ in range(3)]
    assert outcomes[-1] == NoRoom()
    assert core.settle(claimed, "fail") == FailedTerminal()
    job = core.get(id)
    assert job.error is not None
    assert job.error["stack"] != ""


@pytest.mark.parametrize("how", ["complete", "fail"])
def test_five_thousand_lines_beside_a_full_journal_leave_the_job_able_to_end(core: Core, how: How) -> None:
    core.enqueue(max_attempts=1)
    claimed = core.claim_one()
    for n in range(16):
        append(core, claimed, str(n), "step", result="y" * 499_000)
    with pytest.raises(JournalTooLarge):
        append(core, claimed, "16", "step", result="y" * 499_000)
    for _ in range(5):
        write_log(core, claimed, *[LogLine(LONG_AGO, "語" * 1_333)] * 1_000)
    assert core.settle(claimed, how) == (Completed() if how == "complete" else FailedTerminal())
    job = core.get(claimed[0].id)
    assert job.error == (None if how == "complete" else FAILURE)
    assert len(job.logs) == 1_000


def test_an_update_of_data_beside_a_full_journal_leaves_the_job_able_to_end(core: Core) -> None:
    id = core.enqueue(max_attempts=1)
    claimed = core.claim_one()
    for n in range(16):
        append(core, claimed, str(n), "step", result="y" * 499_000)
    assert core.cell.queue.update(id, {"x": "x" * 8_000_000}).matched_count == 1
    with pytest.raises(PayloadError, match="no room for the job's end"):
        core.cell.queue.update(id, {"y": "y" * 700_000})
    assert core.settle(claimed, "fail") == FailedTerminal()
