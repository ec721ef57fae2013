"""The rules run as a plugin of flake8."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.lint.marked import write


def flake8(folder: Path, *arguments: str, stdin: str | None = None) -> list[str]:
    command = [sys.executable, "-m", "flake8", "--isolated", "--select", "DUR", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, input=stdin, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_flake8_reports_findings_where_they_are_and_honours_its_comments(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "flow.py": """\
                import time
                async def body(job, octx):
                    time.time(); time.time()  # noqa: DUR002
                    await client.get()  # noqa: DUR002
                    time.time()
            """
        },
    )
    assert [tuple(line.split()[:2]) for line in flake8(tmp_path, "flow.py")] == [
        ("flow.py:4:11:", "DUR001"),
        ("flow.py:5:5:", "DUR002"),
    ]
    assert flake8(tmp_path, "--extend-ignore", "DUR001,DUR002", "flow.py") == []


def test_flake8_reports_what_a_helper_in_another_file_does_at_the_call_that_leads_there(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "app/__init__.py": "",
            "app/flow.py": """\
                from app.near import near
                async def body(job, octx):
                    x = await near(octx)
                    return await own(octx)

                async def own(c):
                    await near(c)
            """,
            "app/near.py": "from app.far import far\nasync def near(c):\n    far()\n",
            "app/far.py": "import time\ndef far():\n    time.time()\n    time.sleep(1)  # noqa: DUR001\n",
        },
    )
    (line,) = flake8(tmp_path, "app")
    assert line.startswith("app/flow.py:3:15: DUR002 app/far.py:3: time.time() differs on resume")
    assert line.endswith("(on the control path of body, app/flow.py:2)")


def test_flake8_checks_what_comes_on_stdin(tmp_path: Path) -> None:
    text = "async def body(job, octx):\n    await client.get()\n"
    assert [line[:20] for line in flake8(tmp_path, "-", stdin=text)] == ["stdin:2:11: DUR001 a"]
    assert flake8(tmp_path, "--stdin-display-name", "app/flow.py", "-", stdin=text)[0].startswith("app/flow.py:2:11:")


def test_flake8_says_itself_that_a_file_does_not_parse(tmp_path: Path) -> None:
    write(tmp_path, {"flow.py": "async def body(job, octx:\n"})
    assert all("DUR" not in line for line in flake8(tmp_path, "flow.py"))
