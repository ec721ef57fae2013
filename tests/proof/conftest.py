"""A world on a real server for each proof."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.database import Database

from tests.proof.world import World


@pytest.fixture
def world(db: Database[dict[str, Any]]) -> World:
    return World(db.job)
