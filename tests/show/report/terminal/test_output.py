"""Standard output of any kind, as a shell gives it, held to the bytes that come out."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from posenc import CATALOG
from posenc.commands import cli
from posenc.show.report.terminal import output

FULL = Path("/dev/full")
NO_ROOM = "error: standard output cannot be written to: No space left on device.\n"
needs_full = pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")


@pytest.fixture
def posenc(monkeypatch, capsys):
    """posenc("list", out=file) -> (exit code, text on stderr)."""

    def run(*words, out):
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", out)
            try:
                cli.main(words)
                code = 0
            except SystemExit as stop:
                code = stop.code or 0
            if out is None:
                sys.stdout.close()
        return code, capsys.readouterr().err

    return run


def encoded(posenc, encoding, *words):
    """Return the output of a command in an encoding, as bytes."""
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    assert posenc(*words, out=out) == (0, "")
    return out.buffer.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_what_an_encoding_lacks_is_spelled_in_ascii(posenc, encoding):
    said = encoded(posenc, encoding, "show", "rope").decode(encoding)
    assert "theta_j" in said
    assert "\\u" not in said
    assert "RoPE" in encoded(posenc, encoding, "list").decode(encoding)


def test_every_card_can_be_spelled_in_ascii():
    for card in CATALOG:
        said = output.spelled(" ".join((card.text, card.summary, card.formula, card.name)))
        assert said.isascii()
        assert "\\u" not in said


def test_json_loses_nothing_in_any_encoding(posenc):
    plain, full = (encoded(posenc, name, "list", "--json") for name in ("ascii", "utf-8"))
    assert not full.isascii()
    assert json.loads(plain) == json.loads(full)


def test_a_name_that_is_no_text_can_be_said(posenc):
    """A file's name in bytes that are not UTF-8 reaches Python as half of a surrogate pair."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    said = "error: no encoding is called '\\udcff'. `posenc list` shows all.\n"
    assert posenc("show", "\udcff", out=out) == (2, said)


@needs_full
@pytest.mark.parametrize("words", [["list"], ["cite", "rope"], ["--help"], ["compare", "--json"]])
def test_a_full_device_is_said_before_the_work(posenc, monkeypatch, words):
    def work(*_, **__):
        raise AssertionError("too late")

    monkeypatch.setattr(cli, "app", work)
    with FULL.open("w") as out:
        assert posenc(*words, out=out) == (1, no_room(words))


def no_room(words):
    said = {"error": NO_ROOM.removeprefix("error: ").rstrip(), "code": 1}
    return json.dumps(said) + "\n" if "--json" in words else NO_ROOM


@needs_full
def test_a_device_that_is_full_only_later_is_one_line_too(posenc, monkeypatch):
    monkeypatch.setattr(output, "_check_writable", lambda out: None)
    for words in (["list"], ["list", "--json"], ["--help"]):
        with FULL.open("w") as out:  # closing it writes the rest
            assert posenc(*words, out=out) == (1, no_room(words))


def test_a_pipe_that_nobody_reads_on_is_left_quietly(posenc):
    for words in (["list"], ["list", "--json"], ["cite", "rope"], ["--help"]):
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "w") as out:
            assert posenc(*words, out=out) == (1, "")


def test_a_closed_output_is_none_to_complain_of(posenc, monkeypatch):
    assert posenc("list", out=None) == (0, "")
    monkeypatch.setattr(sys, "stderr", None)
    assert posenc("show", "roep", out=None) == (2, "")
    sys.stderr.close()


def test_a_process_ends_as_quietly_as_the_command():
    """Python writes what is left as it ends, and complains on its own where that fails."""
    command = f"{sys.executable} -P -m posenc --help"
    done = subprocess.run(f"{command} | true", shell=True, capture_output=True, timeout=600)
    assert (done.stdout, done.stderr) == (b"", b"")


def test_a_disk_without_room_is_said_before_the_work(tmp_path, monkeypatch):
    class Disk:
        f_blocks, f_bfree = 1000, 0

    monkeypatch.setattr(os, "fstatvfs", lambda number: Disk)
    with (tmp_path / "out").open("w") as out, pytest.raises(OSError, match="No space left"):
        output._check_writable(out)


def test_signs_keep_their_width_in_tables():
    for sign in "✓✗·–—−█▓░":
        assert len(output.spelled(sign)) == 1


def test_powers_and_indices_stay_apart_from_what_they_stand_at():
    assert output.spelled("10⁻⁶ xⱼ² Wᵀ") == "10^-6 x_j^2 W^T"
