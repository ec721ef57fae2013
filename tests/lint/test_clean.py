"""What is written as it should be is passed without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from durabl_ext.lint import check
from tests.lint.clean import ASYNC, MODULE, SYNC
from tests.lint.marked import in_body


@pytest.mark.parametrize("name", ASYNC)
def test_an_async_body_as_it_should_be_is_passed(tmp_path: Path, name: str) -> None:
    flow = tmp_path / "flow.py"
    flow.write_text(MODULE + in_body(ASYNC[name]))
    report = check([flow])
    assert report.unreadable == []
    assert [str(finding) for finding in report.findings] == []


@pytest.mark.parametrize("name", SYNC)
def test_a_sync_body_as_it_should_be_is_passed(tmp_path: Path, name: str) -> None:
    flow = tmp_path / "flow.py"
    flow.write_text(MODULE + in_body(SYNC[name], "def"))
    report = check([flow])
    assert report.unreadable == []
    assert [str(finding) for finding in report.findings] == []


@pytest.mark.parametrize("name", ASYNC)
def test_each_of_these_bodies_is_looked_at(tmp_path: Path, name: str) -> None:
    flow = tmp_path / "flow.py"
    flow.write_text(MODULE + in_body(ASYNC[name] + "    await client.get(time.time())\n"))
    assert [finding.code for finding in check([flow]).findings] == ["DUR001", "DUR002"]
