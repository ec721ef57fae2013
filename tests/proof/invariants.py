"""What must be true of every moment of a queue, of every move between two, and of what workers are told.

``History`` looks at the whole collection after every write, so that nothing passes unseen between two looks. It knows
the promises and none of the code that keeps them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from durabl_ext.job import DurableJob
from durabl_ext.options import Dedupe
from durabl_ext.outcomes import (
    AlreadyTerminal,
    Appended,
    Completed,
    FailedTerminal,
    LeaseLost,
    NotFound,
    Released,
    RetryScheduled,
    Settled,
    Superseded,
)
from tests.proof.documents import (
    LIVE,
    Document,
    judge_alone,
    judge_journal,
    judge_keys,
    judge_rest,
    must,
    runs_under,
    steps_of,
    taken,
)

Moment = Mapping[str, Document]
MOVES = {
    ("queued", "running"),
    ("queued", "cancelled"),
    ("running", "completed"),
    ("running", "failed"),
    ("running", "superseded"),
    ("running", "queued"),
    ("failed", "queued"),
}


class History:
    """What happened to every job of a collection, and what was said about it.

    Args:
        collection: The collection, with aware times.
    """

    def __init__(self, collection: Any) -> None:
        self._collection = collection
        self.moments: list[Moment] = [{}]
        self.ends: Counter[str] = Counter()
        self.replays: Counter[str] = Counter()
        self.acknowledged: set[str] = set()
        self._runs: dict[tuple[str, str], int] = {}
        self._receipts: set[tuple[str, str, str]] = set()
        self._seen: set[tuple[str, str, str | None]] = set()
        self._waited_with: set[tuple[str, Any]] = set()
        self._given: set[tuple[str, str]] = set()
        self._completed: dict[str, str] = {}
        self._asked: set[tuple[str, str]] = set()
        self._given_up: dict[str, int] = {}
        self._newest: dict[str, int] = {}

    @property
    def now(self) -> int:
        """The number of the present moment."""
        return len(self.moments) - 1

    def look(self) -> None:
        """Looks at all jobs and judges what has become of each since the last look."""
        before = self.moments[-1]
        after = {document["_id"]: document for document in self._collection.find()}
        must(before.keys() <= after.keys(), "a job is gone", before.keys() - after.keys())
        self.moments.append(after)
        for id, document in after.items():
            if document != before.get(id):
                judge_alone(document)
                self._judge_move(before.get(id), document)
                self._remember(document)
        judge_keys(after.values())

    def enqueued(self, began: int, dedupe: Dedupe | None, data: Any, id: str | None) -> None:
        """Judges the answer to an enqueue: the job waits, or the key was taken at some moment of the call."""
        if id is None:
            assert dedupe is not None
            must(
                any(taken(moment.values(), dedupe) for moment in self.moments[began:]),
                "told that a key is taken when it was not",
                dedupe,
            )
        else:
            must((id, repr(data)) in self._waited_with, "no job has waited with what was acknowledged", id, data)
            self.acknowledged.add(id)
            self._newest[id] = max(began, self._newest.get(id, began))

    def gave_up(self, data: Any) -> None:
        """Takes note that the caller of an enqueue had no answer. Its data may still arrive, but replace none newer."""
        self._given_up[repr(data)] = self.now

    def claimed(self, token: str, jobs: Iterable[DurableJob]) -> None:
        """Judges what a claim was given: each job once, to the one whose token is on it, as it was in the run."""
        for job in jobs:
            claim = (job.id, token)
            must(claim in self._runs, "a job was given to one that does not have it", job.id, token)
            must(claim not in self._given, "a run was given away twice", job.id, token)
            self._given.add(claim)
            payloads = [moment[job.id]["data"] for moment in self.moments[self._runs[claim] :]]
            must(job.data in payloads, "a run was given an old payload", job.data, payloads)

    def asked(self, id: str, token: str) -> None:
        """Takes note that a claim is to be settled, before it is tried."""
        self._asked.add((id, token))

    def given(self, token: str) -> set[str]:
        """Which jobs a claim was given."""
        return {id for id, whose in self._given if whose == token}

    def settled(self, job: DurableJob, token: str, outcome: Settled) -> None:
        """Judges what the settler of a claim was told."""
        id = job.id
        match outcome:
            case Completed():
                must((id, "completed", token) in self._seen, "told completed, but it is not", id)
                must(self._completed.setdefault(id, token) == token, "completed twice", id)
            case FailedTerminal():
                must((id, "failed", token) in self._seen, "told failed, but it has not", id)
            case Superseded():
                must((id, "superseded", token) in self._seen, "told superseded, but it is not", id)
            case Released():
                must((id, token, "release") in self._receipts, "told released, but it was not", id)
            case RetryScheduled():
                must((id, token, "retry") in self._receipts, "told of a retry that is not", id)
            case AlreadyTerminal(status):
                must((id, status.value, token) in self._seen, "told of an end that was not", id, status)
            case LeaseLost():
                must(not runs_under(self.moments[-1][id], token), "told that a lease is lost that it has", id)
            case _:
                must(None, "a job that is there was not found", id)

    def journaled(self, began: int, id: str, token: str, seq: str, answer: Appended | LeaseLost | NotFound) -> None:
        """Judges what the writer of a step was told."""
        present = self.moments[-1][id]
        match answer:
            case Appended(stored):
                journals = [steps_of(moment[id]) for moment in self.moments[began:]]
                must(any(stored in steps for steps in journals), "told of a step that is not in the journal", stored)
                must(stored["seq"] == seq, "told of another step", stored, seq)
            case LeaseLost():
                must(not runs_under(present, token), "told that a lease is lost that it has", id)
            case _:
                must(None, "a job that is there was not found", id)

    def judge_the_end(self) -> None:
        """Judges the whole once all work is done: every job has ended, as often as it was begun anew, and once."""
        last = self.moments[-1]
        for id, document in last.items():
            must(document["status"] not in LIVE, "a job is left behind", document)
            must(self.ends[id] == 1 + self.replays[id], "a job ended more than once", id, self.ends[id])
        must(self.acknowledged <= last.keys(), "an acknowledged job is gone", self.acknowledged - last.keys())

    def _judge_move(self, old: Document | None, new: Document) -> None:
        if old is None:
            must(new["status"] in LIVE, "a job began ended", new)
            return
        judge_journal(old, new)
        if old["status"] == new["status"]:
            judge_rest(old, new)
            if new["status"] == "queued" and old["data"] != new["data"]:
                newest, given_up = self._newest.get(new["_id"], -1), self._given_up.get(repr(new["data"]), self.now)
                must(newest < given_up, "an old payload has replaced a newer one that was acknowledged", old, new)
            return
        must((old["status"], new["status"]) in MOVES, "a move that is not in the table", old, new)
        was, now = old.get("durable") or {}, new.get("durable") or {}
        if new["status"] == "running":
            due = was.get("run_at", new["started_at"])  # a plain job has no time
            must(due <= new["started_at"], "started before its time", old, new)
            must(now["attempt"] == was.get("attempt", 0) + 1, "a start did not count as an attempt", old, new)
        elif old["status"] == "failed":
            self.replays[new["_id"]] += 1
        elif new["status"] == "queued":
            last = (now.get("receipts") or [{}])[-1]
            receipt = last["move"] if last.get("token") == was["token"] else None
            must(
                now["attempt"] == was["attempt"] - (receipt == "release"),
                "a release counts no attempt, all else counts one",
                old,
                new,
            )
            self._judge_hand(was, new, by_its_worker=receipt is not None)
        else:
            self.ends[new["_id"]] += 1
            if old["status"] == "running":
                self._judge_hand(was, new, by_its_worker=now.get("token") == was["token"])

    def _judge_hand(self, was: Document, new: Document, *, by_its_worker: bool) -> None:
        """Who may end a run: the one that has it, or anybody once its lease has ended."""
        if by_its_worker:
            must((new["_id"], was["token"]) in self._asked, "a run was ended by one that does not have it", new)
        else:
            must(was["lease_expires_at"] <= new["updated_at"], "a run was taken away within its lease", was, new)

    def _remember(self, document: Document) -> None:
        id, durable = document["_id"], document.get("durable") or {}
        token = durable.get("token")
        self._seen.add((id, document["status"], token))
        self._receipts.update((id, receipt["token"], receipt["move"]) for receipt in durable.get("receipts", ()))
        if document["status"] == "queued":
            self._waited_with.add((id, repr(document["data"])))
        if document["status"] == "running":
            self._runs.setdefault((id, durable["token"]), self.now)
