"""The lock of a folder, tested from another process."""

import errno
import fcntl
import os
import re
import subprocess
import sys

import pytest
from refusals import refused

from posenc.lab.study.lock import NAME, Locked, locked
from posenc.lab.study.safe_files import NotRegular

HOLD = "import sys; from posenc.lab.study.lock import locked\nwith locked(__import__('pathlib').Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"  # noqa: E501


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_who_holds_it_is_named(tmp_path, holder):
    named = re.escape(f"{tmp_path} is in use by process {holder.pid} on ")
    with pytest.raises(Locked, match=named), locked(tmp_path):
        pass


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "a").write_text("")
    with refused(NotRegular, tmp_path / "a", "a file"), locked(tmp_path / "a"):
        pass


def test_a_holder_that_is_killed_leaves_it_free(tmp_path, holder):
    holder.kill()
    holder.wait()
    with locked(tmp_path):
        assert f'"pid": {os.getpid()}' in (tmp_path / NAME).read_text()


def test_a_holder_that_wrote_no_sense_is_another_process(tmp_path, holder):
    (tmp_path / NAME).write_text("[1]")
    with pytest.raises(Locked, match="in use by another process"), locked(tmp_path):
        pass


def test_the_folder_is_made_and_the_lock_is_given_back_after_an_error(tmp_path):
    folder = tmp_path / "of" / "mine"
    with pytest.raises(KeyError), locked(folder):
        raise KeyError
    with locked(folder):
        pass


def test_a_file_system_without_locks_does_not_stop_a_study(tmp_path, monkeypatch):
    def missing(*words):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", missing)
    with locked(tmp_path):
        assert f'"pid": {os.getpid()}' in (tmp_path / NAME).read_text()


def test_a_contender_leaves_the_name_of_the_holder(tmp_path, holder):
    """Some locks empty the file as they open it."""
    for _ in range(2):
        with refused(Locked, holder.pid), locked(tmp_path):
            pass


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / NAME).symlink_to(tmp_path / "mine")
    with refused(NotRegular, tmp_path / NAME, "a link"), locked(tmp_path):
        pass
    assert (tmp_path / "mine").read_text() == "mine"
