"""A short soak; ``make soak`` runs the long one."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.database import Database

from tests.drain.soak import Soak


def test_mixed_jobs_survive_workers_that_are_killed_and_restarted(mongo_url: str, db: Database[dict[str, Any]]) -> None:
    soak = Soak(db, mongo_url, seed=20)
    assert soak.run(12) == []
    assert sum(soak.asked.values()) > 100
    assert set(soak.done) == {"SIGKILL", "SIGTERM"}


@pytest.mark.parametrize("fault", ["lost", "open", "wrong", "overlap"])
def test_a_soak_finds_what_does_not_add_up(mongo_url: str, db: Database[dict[str, Any]], fault: str) -> None:
    soak = Soak(db, mongo_url, seed=1)
    done = {"action": "works", "status": "completed"}
    jobs = {
        "lost": [],
        "open": [{**done, "status": "running"}],
        "wrong": [{**done, "status": "failed"}],
        "overlap": [done],
    }
    if jobs[fault]:
        db.job.insert_many(jobs[fault])
    soak.asked["works"] = 1
    if fault == "overlap":
        runs = [{"job": "j", "key": None, "process": 1, "began": 1.0, "ended": 3.0}]
        db.runs.insert_many([*runs, {**runs[0], "began": 2.0}])
    assert soak.faults()
