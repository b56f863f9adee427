"""The description of a checkout, against a repository made here with git itself."""

import subprocess
from functools import partial

import pytest
import torch

from posenc.support import provenance


@pytest.fixture
def checkout(tmp_path):
    """A folder with one committed file, and git in it."""
    git = partial(subprocess.run, cwd=tmp_path, check=True, capture_output=True, text=True)
    (tmp_path / "__init__.py").write_text("")
    name = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    git(["git", "init", "-q"])
    git(["git", "add", "__init__.py"])
    git(["git", *name, "commit", "-qm", "one"])
    return tmp_path, git(["git", "log", "-1", "--format=%h"]).stdout.strip()


def test_names_the_commit_and_whether_anything_was_changed_since(checkout):
    folder, head = checkout
    assert provenance.commit(folder) == head
    (folder / "__init__.py").write_text("changed = True")
    assert provenance.commit(folder) == f"{head}, changed since"


def test_a_copy_inside_somebody_elses_checkout_is_not_theirs(checkout):
    folder, _ = checkout
    copy = folder / "site-packages"
    copy.mkdir()
    (copy / "__init__.py").write_text("")
    assert provenance.commit(copy) is None


def test_no_checkout_and_no_git_are_no_commit(checkout, tmp_path_factory, monkeypatch):
    assert provenance.commit(tmp_path_factory.mktemp("plain")) is None
    monkeypatch.setenv("PATH", "")
    assert provenance.commit(checkout[0]) is None


def test_says_what_was_typed_where_and_how_long_it_took(monkeypatch):
    monkeypatch.setattr(provenance.time, "time", lambda: 1_700_000_005.0)
    made = provenance.since(1_700_000_000.0, seed=3)
    assert (made.seed, made.device, made.threads) == (3, "cpu", torch.get_num_threads())
    assert made.seconds == 5
    assert made.versions["torch"] == torch.__version__
    assert made.versions.keys() >= {"posenc", "python"}


def test_no_program_is_run_that_a_repository_names(checkout, tmp_path_factory):
    """git runs the program of `core.fsmonitor` to list changes."""
    folder, head = checkout
    ran = tmp_path_factory.mktemp("elsewhere") / "ran"
    config = folder / ".git" / "config"
    config.write_text(config.read_text() + f'[core]\n\tfsmonitor = "touch {ran}; false"\n')
    subprocess.run(["git", "status"], cwd=folder, check=True, capture_output=True)
    assert ran.exists()  # so it would be seen
    ran.unlink()
    assert provenance.commit(folder) == head
    assert not ran.exists()
