"""Workers that are killed at every boundary of an orchestration: what is left is done by another, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from uuid6 import uuid7

from durabl_ext import JobQueue
from tests.orchestrator.programs import APP_NAME, APPENDS, FLAVOURS, Point, Work, Workers, workers
from tests.watching import until

DB = Database[dict[str, Any]]
SIGKILLED = -9
PAST = datetime(2020, 1, 1, tzinfo=UTC)
IN_ORDER = ("sequence", "loop", "transactional", "catching", "compensating", "undoing")
"""Bodies that do one thing at a time."""


@pytest.fixture(scope="module")
def place(client: MongoClient[dict[str, Any]]) -> Iterator[DB]:
    """A database for all of these tests, since starting a program for each would take their time."""
    database = client[f"test_{uuid7().hex}"]
    yield database
    client.drop_database(database)


@pytest.fixture(scope="module")
def processes(place: DB, mongo_url: str) -> Iterator[Workers]:
    with workers(mongo_url, place.name) as started:
        yield started


@dataclass
class Crashed:
    """A job whose worker was killed, as it was found then."""

    id: str
    point: Point
    journaled: set[str]
    effects: Counter[str]


def effects_of(place: DB, id: str) -> Counter[str]:
    return Counter(effect["seq"] for effect in place.effects.find({"job": id}))


def connections(place: DB) -> list[Any]:
    """What the server still does for workers."""
    every = {"$currentOp": {"allUsers": True, "idleConnections": True}}
    return list(place.client.admin.aggregate([every, {"$match": {"appName": APP_NAME}}]))


def points(body: str) -> list[Point]:
    commits = 1 if body == "transactional" else 0
    counts = {"append": APPENDS[body], "commit": commits, "end": 1}
    return [
        Point(when, what, number + 1)
        for what, count in counts.items()
        for number in range(count)
        for when in ("before", "after")
    ]


def crashed(place: DB, processes: Workers, flavour: str, body: str, point: Point) -> Crashed:
    action = f"{flavour} {body} {point.when} {point.what} {point.number}"
    id = JobQueue(place).enqueue(action, backoff="fixed", backoff_delay=0.05)
    assert id is not None
    assert processes.run(Work(flavour, {action: body}, point)) == (SIGKILLED, Counter()), point
    place.client.admin.command("killAllSessions", [])  # a transaction of the dead would last for a minute
    until(lambda: not connections(place))  # what it had sent is done
    document = place.job.find_one({"_id": id})
    assert document is not None
    assert document["status"] == ("completed" if point == Point("after", "end", 1) else "running")
    return Crashed(id, point, {step["seq"] for step in document["durable"].get("steps", ())}, effects_of(place, id))


@pytest.mark.parametrize(
    ("flavour", "body"),
    [(flavour, body) for flavour in FLAVOURS for body in APPENDS if (flavour, body) != ("def", "gather")],
)
def test_a_job_whose_worker_is_killed_at_any_boundary_is_completed_by_another_that_does_only_what_is_left(
    place: DB, processes: Workers, flavour: str, body: str
) -> None:
    place.effects.delete_one({"_id": "account"})
    crashes = [crashed(place, processes, flavour, body, point) for point in points(body)]
    running = {"_id": {"$in": [crash.id for crash in crashes]}, "status": "running"}
    place.job.update_many(running, {"$set": {"durable.lease_expires_at": PAST}})
    actions = {job["action"]: body for job in place.job.find(running)}

    code, counts = processes.run(Work(flavour, actions))

    assert code == 0
    assert counts["append"] == sum(APPENDS[body] - len(crash.journaled) for crash in crashes)
    for crash in crashes:
        check(place, crash, body)
    if body == "transactional":
        account = place.effects.find_one({"_id": "account"})
        assert account == {"_id": "account", "sum": 5 * len(crashes)}


def check(place: DB, crash: Crashed, body: str) -> None:
    document = place.job.find_one({"_id": crash.id})
    assert document is not None
    assert (document["status"], len(document["durable"]["steps"])) == ("completed", APPENDS[body]), crash
    after = effects_of(place, crash.id)
    assert set(after) == {step["seq"] for step in document["durable"]["steps"]}, crash
    paid = {effect["seq"] for effect in place.effects.find({"job": crash.id, "paid": True})}
    for seq, times in after.items():
        before = crash.effects[seq]
        if seq in crash.journaled:
            assert (before, times) == (1, 1), (seq, crash)  # it is not run again
        elif seq in paid:
            assert (before, times) == (0, 1), (seq, crash)  # it was done as a whole, or not at all
        else:
            assert before <= 1, (seq, crash)
            assert times == before + 1, (seq, crash)  # what was left was run once
    keys = {(effect["seq"], effect["key"]) for effect in place.effects.find({"job": crash.id})}
    assert len(keys) == len(after), crash
    assert len({key for _, key in keys}) == len(keys), crash
    if body in IN_ORDER and crash.point.what == "append" and not paid & {str(crash.point.number - 1)}:
        assert len(crash.journaled) == crash.point.number - (crash.point.when == "before"), crash
        assert sum(crash.effects.values()) == crash.point.number, crash
    if crash.point.what == "end":
        assert crash.effects == after, crash  # nothing was left
