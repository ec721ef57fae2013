"""``python -m durabl_ext.lint``: what it prints, and its exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from durabl_ext.lint.__main__ import main
from tests.lint.marked import write

BAD = "async def body(job, octx):\n    await client.get()\n"
GOOD = "async def body(job, octx):\n    await octx.step('x', client.get)\n"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_the_module_prints_each_finding_on_a_line_and_exits_with_1(tmp_path: Path) -> None:
    write(tmp_path, {"flows/b.py": BAD, "flows/a.py": BAD, "flows/deep/er/c.py": BAD, "flows/good.py": GOOD})
    command = [sys.executable, "-m", "durabl_ext.lint", "flows"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    message = (
        "2:11: DUR001 awaits client.get(), which a resume does again: put it into a step: "
        'octx.step("name", lambda step: client.get(...))'
    )
    assert done.stdout.splitlines() == [f"flows/{name}.py:{message}" for name in ("a", "b", "deep/er/c")]
    assert (done.returncode, done.stderr) == (1, "")


def test_nothing_found_is_nothing_printed_and_exit_code_0(tmp_path: Path) -> None:
    write(tmp_path, {"good.py": GOOD, "empty.py": "", "notes.txt": BAD})
    done = run(tmp_path, tmp_path / "good.py")
    assert (done.exit_code, done.output) == (0, "")


def test_a_path_that_is_not_there_is_named_and_the_others_are_checked_all_the_same(tmp_path: Path) -> None:
    write(tmp_path, {"bad.py": BAD})
    done = run(tmp_path / "nowhere", tmp_path / "bad.py")
    assert done.exit_code == 2
    assert done.stderr == f"error: {tmp_path}/nowhere: cannot be read: No such file or directory\n"
    assert "bad.py:2:11: DUR001" in done.stdout


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"def body(:\n", r"invalid syntax \(line 1\)"),
        (b"x = 1\n    y = 2\n", r"unexpected indent \(line 2\)"),
        (b"x = '\xe9'\n", "unicode error"),
        (b"# -*- coding: nope -*-\n", "unknown encoding: nope"),
        (b"x = 1\0\n", "null bytes"),
        (b"x = " + b"-" * 9000 + b"1\n", "deep|recursion|complex"),
        (b"x = " + b"(" * 9000 + b"1\n", "too many nested parentheses"),
    ],
)
def test_a_file_that_does_not_parse_is_named_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    broken = tmp_path / "broken.py"
    broken.write_bytes(content)
    done = run(tmp_path)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {broken}: does not parse: ")
    assert re.search(reason, done.stderr)


def test_no_path_is_wrong_usage() -> None:
    done = run()
    assert done.exit_code == 2
    assert "PATH" in done.stderr


def test_a_file_may_declare_its_encoding(tmp_path: Path) -> None:
    text = "# -*- coding: latin-1 -*-\nasync def body(job, octx):\n    'é'; await client.é()  # noqa: E501\n"
    (tmp_path / "flow.py").write_bytes(text.encode("latin-1"))
    (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbf" + BAD.replace("\n", "\r\n").encode())
    done = run(tmp_path)
    assert "bom.py:2:11: DUR001" in done.stdout
    assert "awaits client.é()" in done.stdout


def test_a_file_with_another_ending_is_checked_when_it_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"flow.txt": BAD})
    assert run(tmp_path).exit_code == 0
    assert run(tmp_path / "flow.txt").exit_code == 1


def test_links_that_lead_back_hidden_folders_and_environments_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, {"a/flow.py": BAD, "a/.hidden/flow.py": BAD, "venv/lib/flow.py": BAD, "venv/pyvenv.cfg": ""})
    (tmp_path / "a" / "back").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "a" / "self.py").symlink_to(tmp_path / "a" / "self.py")
    (tmp_path / "a" / "folder.py").mkdir()
    done = run(tmp_path, tmp_path / "a" / "back", tmp_path / "a" / "flow.py")
    assert [line.partition(": ")[0] for line in done.stdout.splitlines()] == [f"{tmp_path}/a/flow.py:2:11"]
    assert done.exit_code == 1


@pytest.mark.parametrize(
    ("comment", "silenced"),
    [
        ("# noqa", True),
        ("# NOQA", True),
        ("#noqa", True),
        ("# noqa: DUR001", True),
        ("# noqa:dur001", True),
        ("# NoQA: E501, DUR001", True),
        ("# noqa: DUR002 DUR001 - the client is a fake", True),
        ("# noqa: DUR0", True),
        ("# type: ignore[misc]  # noqa: DUR001", True),
        ("# noqa: DUR002", False),
        ("# noqa: E501,DUR003", False),
        ("# noqaa", False),
        ("# no qa", False),
    ],
)
def test_a_noqa_comment_silences_what_it_names_on_its_line(tmp_path: Path, comment: str, silenced: bool) -> None:
    write(tmp_path, {"flow.py": f"async def body(job, octx):\n    await client.get()  {comment}\n"})
    assert run(tmp_path).exit_code == (0 if silenced else 1)


def test_a_noqa_comment_counts_for_no_other_line_and_in_no_text(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "flow.py": '''
                async def body(job, octx):
                    # noqa
                    await client.get()
                    await client.get("# noqa")
                    await client.get(  # noqa
                        await client.url(),
                        """over
                        lines""" + await client.url(),  # noqa: DUR001
                    )
            '''
        },
    )
    assert [line.split(":")[1] for line in run(tmp_path).stdout.splitlines()] == ["4", "5", "7"]


def test_help_says_what_the_rules_and_the_exit_codes_are() -> None:
    shown = run("--help").output
    assert all(word in shown for word in ("DUR001", "DUR002", "DUR003", "noqa", "Exit codes"))
