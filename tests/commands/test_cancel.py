"""``simplequeue cancel``."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext import JobQueue
from simplequeue import Queue
from simplequeue.states import Status
from simplequeue_scripts import cancel as module
from simplequeue_scripts.cancel import queued
from tests.commands.conftest import Shell, added, begun, documents
from tests.commands.processes import answered, at_a_terminal
from tests.commands.profile import profiled, stages

Db = Database[dict[str, Any]]
UNKNOWN = "0198e15c-8200-7000-8000-000000000001"


def statuses(db: Db) -> dict[str, int]:
    return {
        group["_id"]: group["n"] for group in db.job.aggregate([{"$sortByCount": "$status"}, {"$set": {"n": "$count"}}])
    }


def test_it_cancels_a_queued_job(shell: Shell, queue: Queue) -> None:
    job = queue.add("greet")
    result = shell("cancel", job.id)
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{job.id} cancelled\n", "")
    now = queue.get(job.id)
    assert now is not None
    assert now.status == "cancelled"


def test_it_says_of_each_id_what_became_of_it(shell: Shell, queue: Queue, db: Db) -> None:
    jobs = [queue.add("greet") for _ in range(3)]
    db.job.update_one({"_id": jobs[1].id}, {"$set": {"status": "running"}})
    queue.cancel(jobs[2].id)
    ids = [job.id for job in jobs]
    dry = shell("cancel", "--dry-run", *ids, UNKNOWN, "\udcff")
    assert dry.exit_code == 1
    assert dry.stdout.splitlines() == [
        f"{ids[0]} would be cancelled",
        f"{ids[1]} not queued any more (running)",
        f"{ids[2]} not queued any more (cancelled)",
        f"{UNKNOWN} not found",
        "\\udcff not found",
    ]
    assert statuses(db)["queued"] == 1
    result = shell("cancel", "--yes", *ids, UNKNOWN, ids[0], "--json")
    assert result.exit_code == 1
    assert documents(result) == [
        {"id": ids[0], "cancelled": True, "status": "cancelled"},
        {"id": ids[1], "cancelled": False, "status": "running"},
        {"id": ids[2], "cancelled": False, "status": "cancelled"},
        {"id": UNKNOWN, "cancelled": False, "status": None},
    ]


def test_a_job_that_comes_back_to_the_queue_in_between_is_cancelled(
    shell: Shell, queue: Queue, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = queue.add("greet")
    db.job.update_one({"_id": job.id}, {"$set": {"status": "running"}})
    read = module.status_of

    def released_first(store: Any, id: str) -> str | None:
        db.job.update_one({"_id": job.id, "status": "running"}, {"$set": {"status": "queued"}})
        return read(store, id)

    monkeypatch.setattr(module, "status_of", released_first)
    assert shell("cancel", job.id).stdout == f"{job.id} cancelled\n"


def test_an_action_cancels_all_its_queued_jobs_in_batches(
    shell: Shell, queue: Queue, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 10)
    queue.add_many([("mail", {})] * 25 + [("greet", {})] * 2 + [("other", {})])
    db.job.update_one({"action": "mail"}, {"$set": {"status": "running"}})
    # A job of the extension is cancelled like any other.
    db.job.update_one({"action": "mail", "status": "queued"}, {"$set": {"durable": {"priority": 0}}})
    dry = shell("cancel", "--action", "mail", "--dry-run")
    assert (dry.exit_code, dry.stdout) == (0, "would cancel 24 queued jobs\n")
    with profiled(db) as profile:
        result = shell("cancel", "--action", "mail", "--action", "greet", "--yes", "--json")
        calls = profile(op="update", ns=f"{db.name}.job")
    assert documents(result) == [{"actions": ["mail", "greet"], "queued": 26, "cancelled": 26}]
    assert statuses(db) == {"cancelled": 26, "running": 1, "queued": 1}
    assert {call["planSummary"] for call in calls} == {"IXSCAN { _id: 1 }"}
    assert shell("cancel", "--action", "mail").stdout == "cancelled 0 of 0 queued jobs\n"


def test_jobs_claimed_or_added_since_the_question_stay(
    shell: Shell, queue: Queue, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.add_many([("mail", {})] * 3)

    def meanwhile(count: int, verb: str, question: str, yes: bool) -> None:
        assert question == "Cancel 3 queued jobs of mail? Jobs added from now on stay."
        db.job.update_one({"status": "queued"}, {"$set": {"status": "running"}})
        queue.add("mail")

    monkeypatch.setattr(module, "ask", meanwhile)
    result = shell("cancel", "--action", "mail")
    assert (result.exit_code, result.stdout) == (1, "cancelled 2 of 3 queued jobs\n")
    assert statuses(db) == {"cancelled": 2, "running": 1, "queued": 1}


@pytest.mark.parametrize("words", [["--action", "mail"], []])
def test_without_a_terminal_it_refuses_to_cancel_many(shell: Shell, queue: Queue, db: Db, words: list[str]) -> None:
    ids = [queue.add("mail").id for _ in range(2)]
    result = shell("cancel", *(words or ids))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "this would cancel 2 jobs and there is no terminal to ask at: pass --yes" in result.stderr
    assert statuses(db) == {"queued": 2}
    db.job.delete_one({})
    assert shell("cancel", "--action", "mail").stdout == "cancelled 1 of 1 queued job\n"


@pytest.mark.parametrize(
    "words", [[], ["--yes"], [UNKNOWN, "--action", "mail"], ["--action", ""], ["--action", "\udcff"]]
)
def test_wrong_usage_is_told(shell: Shell, words: list[str]) -> None:
    result = shell("cancel", *words)
    assert (result.exit_code, result.stdout) == (2, "")


def test_at_a_terminal_it_asks_first(queue: Queue, db: Db, environment: dict[str, str]) -> None:
    ids = [queue.add("mail").id for _ in range(2)]
    with at_a_terminal(environment, "cancel", "--action", "mail") as (process, terminal):
        assert answered(process, terminal, b"Cancel 2 queued jobs of mail?", b"n\n").strip() == b""
    assert process.returncode == 1
    assert statuses(db) == {"queued": 2}
    with at_a_terminal(environment, "cancel", *ids) as (process, terminal):
        printed = answered(process, terminal, b"Cancel 2 jobs?", b"y\n")
    assert process.returncode == 0
    assert printed.decode().splitlines() == [f"{id} cancelled" for id in ids]
    assert statuses(db) == {"cancelled": 2}


def test_at_a_terminal_it_shows_how_far_it_is(queue: Queue, environment: dict[str, str]) -> None:
    queue.add_many([("mail", {})] * 3)
    with at_a_terminal(environment, "cancel", "--action", "mail", "--yes") as (process, terminal):
        assert answered(process, terminal, b"100%", b"") == b"cancelled 3 of 3 queued jobs\n"


def test_it_finds_an_actions_jobs_without_a_sort_and_by_an_index_of_the_extension(
    shell: Shell, queue: Queue, db: Db
) -> None:
    queue.add_many([("mail", {})] * 5 + [("greet", {})] * 500)
    keys = {"action": 1, "durable.priority": 1, "durable.run_at": 1, "_id": 1}
    for indexed in (False, True):
        if indexed:
            db.job.create_index(list(keys.items()), partialFilterExpression={"status": "queued"})
        plan = db.command(
            "explain", {"find": "job", "filter": queued(["mail"]), "projection": {"_id": 1}}, verbosity="executionStats"
        )["executionStats"]
        assert "SORT" not in stages(plan["executionStages"])
        # One read of the collection where only the base layer's indexes are; see queued_ids.
        assert plan["totalDocsExamined"] == (5 if indexed else 505)
    with profiled(db) as profile:
        shell("cancel", "--action", "mail", "--dry-run")
        (find,) = profile(op="query", ns=f"{db.name}.job")
    assert find["command"]["filter"] == queued(["mail"])
    assert find["docsExamined"] == 5
    assert "hasSortStage" not in find


def test_a_durable_job_is_cancelled_while_it_waits_and_its_key_is_free(shell: Shell, durable: JobQueue) -> None:
    waiting = added(durable, delay=3_600, dedupe_key="k")
    again = begun(durable)
    again.fail("no")
    running = begun(durable)
    result = shell("cancel", "--yes", waiting, again.job.id, running.job.id)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{waiting} cancelled",
        f"{again.job.id} cancelled",
        f"{running.job.id} not queued any more (running)",
    ]
    assert durable.enqueue("mail", dedupe_key="k") is not None


def test_every_status_but_queued_is_left_alone(shell: Shell, queue: Queue, db: Db) -> None:
    for status in Status:
        db.job.update_one({"_id": queue.add("mail").id}, {"$set": {"status": status.value}})
    before = statuses(db)
    assert shell("cancel", "--action", "mail").exit_code == 0
    assert statuses(db) == {**{name: n for name, n in before.items() if name != "queued"}, "cancelled": 2}
