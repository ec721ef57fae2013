"""What must be true of a stored job by itself, of its journal between two looks, and of all jobs of a key.

Pure functions over documents; ``invariants`` has the history that they are judged in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import bson

from durabl_ext.options import Dedupe

Document = dict[str, Any]
LIVE = ("queued", "running")


class BrokenPromiseError(AssertionError):
    """Says which promise was broken, and by what."""


def must(promise: object, broken: str, *evidence: object) -> None:
    """Raises unless a promise was kept."""
    if not promise:
        raise BrokenPromiseError(broken, *evidence)


def judge_alone(document: Document) -> None:
    """One document by itself."""
    if (durable := document.get("durable")) is None:
        return
    has = {"token", "lease_expires_at"} & durable.keys()
    if document["status"] == "queued":
        must(not has, "a job that waits has a token or a lease", document)
    if document["status"] == "running":
        must(len(has) == 2, "a run without token or lease", document)
    if document["status"] in LIVE:
        must((document["finished_at"] is None), "a live job has finished", document)
    else:
        must("lease_expires_at" not in durable, "an ended job has a lease", document)
        must(document["finished_at"] is not None, "an ended job has not finished", document)
    must(0 <= durable["attempt"] <= durable.get("max_attempts", 3), "more attempts than it may have", document)


def judge_rest(old: Document, new: Document) -> None:
    """A job that was written without a move."""
    if new["status"] == "running":
        was, now = old["durable"], new["durable"]
        must(was["token"] == now["token"], "a run changed hands", old, new)
        must(was["attempt"] == now["attempt"], "a run's attempt changed", old, new)
        must(was["lease_expires_at"] <= now["lease_expires_at"], "a lease was cut", old, new)
    elif new["status"] != "queued":
        told = {name: value for name, value in new.items() if name not in ("data", "updated_at")}
        must(told.items() <= old.items(), "an ended job was changed", old, new)


def judge_journal(old: Document, new: Document) -> None:
    """What a run has written stays, once, until a new request takes its job over; nobody else writes it."""
    was, steps = steps_of(old), steps_of(new)
    places = [step["seq"] for step in steps]
    must(len(places) == len(set(places)), "a step is in the journal twice", new)
    if steps != was and not (old["status"] == new["status"] == "queued" and not steps):
        must(old["status"] == new["status"] == "running", "a journal has changed outside a run", old, new)
        must(steps[: len(was)] == was, "a step was lost or changed", old, new)
        token = new["durable"]["token"]
        must({step["by"] for step in steps[len(was) :]} == {token}, "a step of another run was written", new)
    lines, before = _lines(new), _lines(old)
    if lines != before and lines:
        must(old["status"] == new["status"] == "running", "a log has changed outside a run", old, new)
        must(lines[-1].startswith(new["durable"]["token"] + " "), "a line of another run was written", new)
    size = sum(len(bson.encode(step)) for step in steps)
    must(size <= (new.get("durable") or {}).get("journal_bytes", 0), "a journal is larger than it says", size, new)


def steps_of(document: Document) -> list[Document]:
    steps: list[Document] = (document.get("durable") or {}).get("steps", [])
    return steps


def _lines(document: Document) -> list[str]:
    return [line["message"] for line in (document.get("durable") or {}).get("logs", [])]


def runs_under(document: Document, token: str) -> bool:
    return bool(document["status"] == "running" and document["durable"].get("token") == token)


def judge_keys(documents: Iterable[Document]) -> None:
    """What the scopes promise of all jobs of a key."""
    live: dict[str, list[tuple[str, str]]] = {}
    for document in documents:
        dedupe = (document.get("durable") or {}).get("dedupe")
        if dedupe and document["status"] in LIVE:
            live.setdefault(dedupe["key"], []).append((document["status"], dedupe["scope"]))
    for key, holders in live.items():
        statuses = [status for status, _ in holders]
        must(len(statuses) == len(set(statuses)), "two of one key wait, or two run", key, holders)
        alone = len(holders) == 1 or all(scope == "queued" for _, scope in holders)
        must(alone, "a key that excludes all others has company", key, holders)


def taken(documents: Iterable[Document], dedupe: Dedupe) -> bool:
    holders = [
        document["status"]
        for document in documents
        if document["status"] in LIVE and (document.get("durable") or {}).get("dedupe", {}).get("key") == dedupe.key
    ]
    return "queued" in holders or (dedupe.scope == "queued+running" and bool(holders))
