"""Checkpoints against a disk that fills up, files that are cut or changed, and other settings."""

import errno
import os
import random
import re
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from refusals import refused, stating

from posenc.lab.study import checkpoints
from posenc.lab.study.cell import Cell

CELL = Cell("copy", "rope", 1)


def tensors(step):
    return {"w": torch.full((3, 4), float(step)), "rng": torch.arange(9, dtype=torch.uint8)}


def write(folder, *steps, cell=CELL):
    state = {"losses": [0.1], "cell": cell.settings}
    return [checkpoints.save(folder, step, tensors(step), state) for step in steps]


def test_what_was_saved_comes_back_to_the_bit(tmp_path):
    odd = {"bf16": torch.randn(5).bfloat16(), "view": torch.randn(4, 3).t(), "none": torch.zeros(0)}
    tied = torch.randn(2)
    state = {"losses": [1 / 3, 5e-324], "random": [3, [1, 2], None]}
    checkpoints.save(tmp_path / "new", 7, odd | {"a": tied, "b": tied}, state)
    back = checkpoints.latest(tmp_path / "new")
    assert (back.step, back.state) == (7, state)
    for name, tensor in (odd | {"a": tied, "b": tied}).items():
        assert torch.equal(back.tensors[name], tensor)
        assert back.tensors[name].dtype == tensor.dtype


def test_a_folder_without_checkpoints_has_none(tmp_path):
    assert checkpoints.latest(tmp_path) is None
    assert checkpoints.latest(tmp_path / "never") is None


def test_the_newest_two_are_kept(tmp_path):
    *_, before, newest = write(tmp_path, 1, 2, 30, 100_000_000)
    assert {*tmp_path.iterdir()} == {before, newest}
    assert checkpoints.latest(tmp_path).step == 100_000_000


def test_the_same_run_writes_the_same_bytes(tmp_path):
    (one,), (other,) = write(tmp_path / "a", 5), write(tmp_path / "b", 5)
    assert (one.name, one.read_bytes()) == (other.name, other.read_bytes())


@pytest.mark.parametrize("length", [0, 1, "half", -1])
def test_a_cut_checkpoint_is_named_and_the_one_before_it_used(tmp_path, length):
    _, newest = write(tmp_path, 1, 2)
    data = newest.read_bytes()
    newest.write_bytes(data[: len(data) // 2 if length == "half" else length])
    with pytest.warns(RuntimeWarning, match=stating(newest.name)):
        assert checkpoints.latest(tmp_path, CELL.settings).step == 1


def test_any_bit_that_changed_is_seen(tmp_path):
    _, newest = write(tmp_path, 1, 2)
    whole, draw = newest.read_bytes(), random.Random(0)
    for _ in range(50):
        data, bit = bytearray(whole), draw.randrange(8 * len(whole))
        data[bit // 8] ^= 1 << bit % 8
        newest.write_bytes(data)
        with pytest.warns(RuntimeWarning, match=newest.name):
            assert checkpoints.latest(tmp_path).step == 1


def test_a_run_without_a_whole_checkpoint_is_refused_and_nothing_is_written(tmp_path):
    for path in write(tmp_path, 1, 2):
        path.write_bytes(path.read_bytes()[:-1])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(checkpoints.Damaged, match=r"all .* damaged \(step-00000002.*, step-0+1-"):
        checkpoints.latest(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (replace(CELL, seed=2), ["`seed`", 1, 2]),
        (
            replace(CELL, profile=replace(CELL.profile, rate=0.5)),
            ["`profile.rate`", 0.001, 0.5],
        ),
    ],
)
def test_the_checkpoint_of_another_cell_is_refused_with_the_difference(tmp_path, other, said):
    write(tmp_path, 1)
    with refused(ValueError, *said):
        checkpoints.latest(tmp_path, other.settings)
    assert checkpoints.latest(tmp_path, replace(CELL, label="another").settings).step == 1


def test_the_checkpoint_of_other_versions_is_refused_with_the_difference(tmp_path, monkeypatch):
    write(tmp_path, 1)
    monkeypatch.setattr(torch, "__version__", "9.0")
    with refused(ValueError, "`torch`", "'9.0'"):
        checkpoints.latest(tmp_path, CELL.settings)


CALLS = ("open", "write", "fsync", "replace")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_whatever_call_fails_the_earlier_checkpoint_stays(tmp_path, monkeypatch, call, number):
    write(tmp_path, 1, 2)

    def fails(*_, **__):
        raise OSError(number, os.strerror(number))

    class Full:
        def __init__(self, file):
            self.file, self.write = file, fails

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

    opened = Path.open
    with monkeypatch.context() as patch:
        if call in ("open", "write"):
            made = fails if call == "open" else lambda *words: Full(opened(*words))
            patch.setattr(Path, "open", made)
        else:
            patch.setattr(os, call, fails)
        with refused(OSError, os.strerror(number)) as raised:
            write(tmp_path, 3)
    numbers = re.findall(r"[\d,]+ (?:bytes|free)", str(raised.value))
    assert len(numbers) == (2 if number == errno.ENOSPC else 0)
    assert raised.value.filename.endswith(".safetensors")
    assert checkpoints.latest(tmp_path, CELL.settings).step == 2
    assert not [*tmp_path.glob(".*.part")]
    write(tmp_path, 3)
    assert checkpoints.latest(tmp_path, CELL.settings).step == 3


LIMITED = """
import resource, signal, sys
from pathlib import Path
import torch
from posenc.lab.study import checkpoints
folder = Path(sys.argv[1])
checkpoints.save(folder, 1, {"w": torch.ones(10)}, {})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    checkpoints.save(folder, 2, {"w": torch.ones(10_000)}, {})
except OSError as error:
    print(error)
print(checkpoints.latest(folder).step, len([*folder.iterdir()]))
"""


@pytest.mark.slow
def test_a_real_limit_of_file_sizes_leaves_the_earlier_checkpoint(tmp_path):
    assert resource.RLIMIT_FSIZE
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True
    )
    assert done.stderr == ""
    said, left = done.stdout.splitlines()
    assert "40," in said
    assert "bytes are needed and" in said
    assert left == "1 1"


def test_what_a_killed_process_left_is_cleared_away(tmp_path):
    write(tmp_path, 1)
    (tmp_path / ".step-00000002-0123456789abcdef.safetensors.77.part").write_bytes(b"half")
    assert checkpoints.latest(tmp_path).step == 1
    write(tmp_path, 2)
    assert not [*tmp_path.glob(".*.part")]
