"""`posenc doctor`, compared with torch, pip and `explain` in this installation."""

import builtins
import json
import re
import subprocess
import sys
import warnings
from importlib import metadata

import pytest
import torch

from posenc.commands import doctor
from posenc.compat import kernels
from posenc.support import extras

OTHERS = "matplotlib", "jinja2", "safetensors", "transformers", "PIL", "gguf"  # of other extras
BROKEN = {"": [], "cli": ["rich>=13"], "fast": ["rich>=99", "no-such-package"]}


def test_it_says_what_is_installed(posenc):
    code, out, err = posenc("doctor", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["python"]["program"] == sys.executable
    assert found["torch"]["version"] == metadata.version("torch")
    assert found["torch"]["threads"] == torch.get_num_threads()
    assert len(found["gpus"]) == torch.cuda.device_count()
    assert found["extras"].keys() == extras.requirements().keys()
    assert found["extras"]["cli"]["installed"]["rich"] == metadata.version("rich")


def test_the_terminal_has_a_line_for_each_extra(posenc, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    _, out, _ = posenc("doctor")
    assert all(f"[{extra}]" in out for extra in extras.requirements() if extra)
    assert all(f"{name}: " in out for name in doctor.SHOWN)


def test_what_is_missing_or_too_old_is_said_with_the_command_for_it(posenc, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr(extras, "requirements", lambda: BROKEN)
    _, out, _ = posenc("doctor")
    assert f"[cli]      ✓ rich {metadata.version('rich')}" in out
    wanted = f"[fast]     ✗ without rich>=99, no-such-package: {extras.how_to_install('fast')}"
    assert wanted in out
    extra = json.loads(posenc("doctor", "--json")[1])["extras"]["fast"]
    assert extra["missing"] == BROKEN["fast"]
    assert extra["install"] == extras.how_to_install("fast")


def test_numba_that_is_missing_or_fails_is_said(posenc, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")

    failures = iter(["posenc does not use Numba, because it fails: no threads."])

    def fails(kernels):
        for said in failures:
            warnings.warn(said, stacklevel=2)

    monkeypatch.setattr(kernels, "load", fails)
    monkeypatch.setattr(extras, "version", lambda package: "1.0")
    assert (
        "Numba      ✗ posenc does not use Numba, because it fails: no threads."
        in posenc("doctor")[1]
    )
    monkeypatch.setattr(extras, "version", lambda package: None)
    said = posenc("doctor")[1]
    assert (
        f"Numba      not installed, some paths are slower: {extras.how_to_install('fast')}" in said
    )


def test_torch_that_cannot_be_imported_is_said(posenc, monkeypatch):
    """A missing library of torch raises an OSError or an ImportError."""
    usual = builtins.__import__

    def broken(name, *rest):
        if name == "torch":
            raise OSError("libcudart.so.13: cannot open shared object file")
        return usual(name, *rest)

    monkeypatch.setattr(builtins, "__import__", broken)
    found = doctor._torch()
    monkeypatch.undo()
    assert found["torch"] == {"error": "OSError: libcudart.so.13: cannot open shared object file"}
    found |= {name: one for name, one in doctor.installation().items() if name not in found}
    said = dict(doctor.lines(found))
    assert said["torch"].startswith("✗ cannot be imported: OSError: libcudart")
    assert "GPU" not in said


def test_a_device_that_cannot_compute_is_said(posenc, monkeypatch):
    def fails(device):
        raise RuntimeError("CUDA error: no kernel image is available\nCompile with …")

    monkeypatch.setattr(doctor, "_attention", fails)
    code, out, _ = posenc("doctor")
    assert code == 0
    assert "attention  error: CUDA error: no kernel image is available\n" in re.sub(
        " +\n", "\n", out
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_paths_are_those_of_the_gpu():
    assert doctor.installation()["attention"]["alibi"] == "flex"


def test_paths_are_those_that_calls_take():
    found = doctor.installation()
    assert found["attention"]["rope"] == "sdpa"
    assert found["rotation"]["interleaved"] in ("complex", "triton")


@pytest.mark.slow
def test_it_needs_the_extra_cli_alone():
    code = (
        "import sys\nclass Missing:\n    def find_spec(self, name, *rest):\n"
        f"        if name.split('.')[0] in {OTHERS}: raise ImportError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from posenc.commands import cli\ncli.main(['doctor'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "attention" in done.stdout
