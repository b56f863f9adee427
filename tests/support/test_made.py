"""Data that are made once: found again for the same modules, not for changed ones."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import posenc
from posenc.support import made

COPIED = """
import sys
from posenc.support import made
print(made.digest(["posenc.encodings.rotary.rope"]), made.digest(["posenc.encodings.bias.alibi"]))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("POSENC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


MODULES = ("posenc.support.text",)


def test_what_is_kept_is_read_again(cache):
    assert made.read("seen", "rope", MODULES) is None
    made.keep("seen", "rope", MODULES, {"θ": [1.5, None]})
    assert made.read("seen", "rope", MODULES) == {"θ": [1.5, None]}
    assert made.read("seen", "rope", MODULES, given="other") is None
    assert made.read("seen", "rope", ("posenc.support.numbers",)) is None
    assert made.read("seen", "alibi", MODULES) is None


def test_what_is_damaged_is_made_again(cache):
    made.keep("seen", "rope", MODULES, {"a": 1})
    (file,) = cache.iterdir()
    file.write_text("{")
    assert made.read("seen", "rope", MODULES) is None


def test_a_few_versions_are_kept(cache):
    for number in range(2 * made.MOST_KEPT):
        made.keep("seen", "rope", MODULES, {}, given=str(number))
    made.keep("seen", "alibi", MODULES, {})
    assert len([*cache.iterdir()]) == made.MOST_KEPT + 1


def test_where_nothing_can_be_written_nothing_fails(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("POSENC_CACHE", str(tmp_path / "file"))
    made.keep("seen", "rope", MODULES, {"a": 1})
    assert made.read("seen", "rope", MODULES) is None


def test_only_encodings_that_import_a_changed_file_are_made_again(tmp_path):
    """In a copy in which one file has one more line, each in a process of its own."""
    home = tmp_path / "posenc"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(posenc.__file__).parent, home, ignore=ignored)

    def digests():
        run = [sys.executable, "-c", COPIED]
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        done = subprocess.run(run, capture_output=True, text=True, env=environment, check=True)
        return done.stdout.split()

    rope, alibi = digests()
    changes = {  # file: whether RoPE and ALiBi follow from it
        "encodings/rotary/rope.py": (True, False),
        "encodings/bias/alibi.py": (False, True),
        "encodings/bias/fire.py": (False, False),
        "rotation/rotate.py": (True, False),
        "core/masks.py": (True, True),
        "models/check/verdict.py": (False, False),
    }
    for file, changed in changes.items():
        with (home / file).open("a", encoding="utf-8") as source:
            source.write("\n")
        after = digests()
        assert (after[0] != rope, after[1] != alibi) == changed, file
        rope, alibi = after


def test_data_of_the_whole_package_are_made_again_after_any_change(tmp_path, monkeypatch):
    """Files that Python or posenc writes beside the source change nothing."""
    monkeypatch.setattr(made, "POSENC", tmp_path)
    monkeypatch.setattr(made, "PACKAGED", tmp_path / "made")

    def digest():
        made.package_digest.cache_clear()
        return made.package_digest()

    names = ("a.py", "b/table.toml", "b/page.js")
    for name in (*names, "made/kept.json", "__pycache__/a.nbi"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    seen = [digest()]
    (tmp_path / "made" / "kept.json").write_text("2")
    (tmp_path / "__pycache__" / "a.nbi").write_text("2")
    assert [digest()] == seen
    for name in names:
        (tmp_path / name).write_text("2")
        seen.append(digest())
    (tmp_path / "a.py").rename(tmp_path / "c.py")
    seen.append(digest())
    assert len({*seen}) == len(seen)
    made.package_digest.cache_clear()
