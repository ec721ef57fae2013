"""The check of a result against the last recorded one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from benchmarks import check

MACHINE = {"cores": 2, "python": "3.11.7", "load_before": [0.1, 0.2, 0.3]}


def result(*lines: tuple[str, float, str | None], recorded: str = "2026-01-01", **more: Any) -> dict[str, Any]:
    written = [{"name": name, "ratio": ratio, "better": better} for name, ratio, better in lines]
    return {"recorded": recorded, "note": "", "quick": False, "machine": MACHINE, "lines": written, **more}


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    monkeypatch.setattr(check, "RESULTS", folder)
    return folder


def record(folder: Path, name: str, content: dict[str, Any]) -> Path:
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def checked(path: Path, *options: str) -> Result:
    return CliRunner().invoke(check.main, [str(path), *options])


def test_a_ratio_that_fell_by_more_than_15_percent_is_an_error_that_names_it(history: Path, tmp_path: Path) -> None:
    record(history, "old.json", result(("throughput", 0.8, "more"), ("enqueue", 2.0, "more")))
    said = checked(record(tmp_path, "new.json", result(("throughput", 0.67, "more"), ("enqueue", 2.1, "more"))))
    assert said.exit_code == 1
    assert "fell by more than 15%: throughput." in said.output
    assert "+5%" in said.output


def test_a_ratio_that_fell_by_less_is_none(history: Path, tmp_path: Path) -> None:
    record(history, "old.json", result(("throughput", 0.8, "more")))
    said = checked(record(tmp_path, "new.json", result(("throughput", 0.69, "more"))))
    assert (said.exit_code, "none of 1 ratios fell" in said.output) == (0, True)


@pytest.mark.parametrize(("now", "code"), [(1.1, 0), (1.25, 1), (0.5, 0)])
def test_of_a_ratio_that_is_to_be_small_a_rise_is_a_fall(history: Path, tmp_path: Path, now: float, code: int) -> None:
    record(history, "old.json", result(("pickup", 1.0, "less")))
    assert checked(record(tmp_path, "new.json", result(("pickup", now, "less")))).exit_code == code


def test_what_is_no_ratio_is_not_compared(history: Path, tmp_path: Path) -> None:
    record(history, "old.json", result(("throughput", 0.8, "more"), ("heartbeats", 1.0, None)))
    said = checked(record(tmp_path, "new.json", result(("throughput", 0.8, "more"), ("heartbeats", 9.0, None))))
    assert (said.exit_code, "heartbeats" in said.output) == (0, False)


def test_the_last_recorded_result_is_the_one_that_counts_and_never_the_checked_one(history: Path) -> None:
    record(history, "z.json", result(("throughput", 0.1, "more"), recorded="2026-01-01"))
    record(history, "a.json", result(("throughput", 0.8, "more"), recorded="2026-01-02", note="a quiet machine"))
    newest = record(history, "new.json", result(("throughput", 0.5, "more"), recorded="2026-01-03"))
    said = checked(newest)
    assert said.exit_code == 1
    assert "beside a.json: a quiet machine" in said.output


def test_another_result_can_be_named(history: Path, tmp_path: Path) -> None:
    record(history, "old.json", result(("throughput", 0.8, "more")))
    other = record(tmp_path, "other.json", result(("throughput", 0.5, "more")))
    new = record(tmp_path, "new.json", result(("throughput", 0.5, "more")))
    assert checked(new, "--against", str(other)).exit_code == 0


def test_what_was_not_measured_and_another_machine_are_told(history: Path, tmp_path: Path) -> None:
    record(history, "old.json", result(("throughput", 0.8, "more"), ("peer", 3.0, "more")))
    machine = {**MACHINE, "cores": 8, "load_before": [9.0, 9.0, 9.0]}
    said = checked(record(tmp_path, "new.json", result(("throughput", 0.8, "more"), machine=machine)))
    assert said.exit_code == 0
    assert "not measured this time: peer" in said.output
    assert "not the same machine: cores: 2 before, 8 now" in said.output
    assert "load" not in said.output


@pytest.mark.parametrize("quick", ["old", "new"])
def test_a_quick_result_is_refused(history: Path, tmp_path: Path, quick: str) -> None:
    record(history, "old.json", result(("throughput", 0.8, "more"), quick=quick == "old"))
    new = record(tmp_path, "new.json", result(("throughput", 0.8, "more"), quick=quick == "new"))
    said = checked(new)
    assert (said.exit_code, "quick run" in said.output) == (2, True)


def test_without_a_recorded_result_there_is_nothing_to_compare_with(history: Path, tmp_path: Path) -> None:
    said = checked(record(tmp_path, "new.json", result(("throughput", 0.8, "more"))))
    assert (said.exit_code, "no result is recorded" in said.output) == (2, True)


def test_results_without_a_ratio_in_common_are_refused(history: Path, tmp_path: Path) -> None:
    record(history, "old.json", result(("throughput", 0.8, "more")))
    assert checked(record(tmp_path, "new.json", result(("enqueue", 2.0, "more")))).exit_code == 2
