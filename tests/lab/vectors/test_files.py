"""Folders of test vectors: exact numbers, digests, a schema, and checkers in four languages."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import fastjsonschema
import pytest
import torch
from refusals import refused

from posenc.lab.vectors import files
from posenc.lab.vectors.cases import cases

EXAMPLES = Path(__file__).parents[3] / "examples/vectors"


CORE = [case for case in cases() if case.core]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of the core set alone."""
    out = tmp_path_factory.mktemp("made") / "vectors"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "cases", lambda: iter(CORE))
        files.write(out)
    return out


@pytest.fixture(autouse=True)
def few(request, monkeypatch):
    if "whole" not in request.fixturenames:
        monkeypatch.setattr(files, "cases", lambda: iter(CORE))


@pytest.fixture
def whole():
    """Marks a test of all cases."""


@pytest.mark.slow
def test_all_cases_are_written_and_equal(whole, tmp_path):
    count = files.write(tmp_path / "vectors")
    assert count >= 2000
    assert files.check_folder(tmp_path / "vectors") == files.Checked(count, ())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_number_is_read_as_it_was_written(dtype):
    x = torch.tensor([[1.5, -0.1, 0.0], [1e-30, 3e4, 2**-24]]).to(dtype)
    data = json.loads(json.dumps(files.encoded(x)))
    assert files.decoded(data).equal(x)
    assert data["data"][0] == "0x1.8p+0"


def test_every_file_is_valid_by_the_schema(folder):
    valid = fastjsonschema.compile(json.loads((folder / "schema.json").read_text()))
    index = json.loads((folder / "index.json").read_text())
    checked = [name for name in index["files"] if name not in ("schema.json", "core.txt")]
    for name in checked:
        valid(json.loads((folder / name).read_text()))
    assert {"angles.json", "rotation.json", "encoding.json", "ids.json", "mask.json"} <= {*checked}
    broken = json.loads((folder / "mask.json").read_text())
    broken["cases"][0]["outputs"]["seen"]["data"][0] = 0.5
    with refused(fastjsonschema.JsonSchemaException):
        valid(broken)


def test_the_core_set_is_small(folder):
    assert sum((folder / name).stat().st_size for name in ("core.json", "core.txt")) < 2e6
    kinds = {case["kind"] for case in json.loads((folder / "core.json").read_text())["cases"]}
    assert kinds == {"angles", "rotation", "encoding", "ids", "mask"}


def test_a_folder_is_checked(folder, tmp_path):
    checked = files.check_folder(folder)
    assert (checked.wrong, checked.equal) == (
        (),
        json.loads((folder / "index.json").read_text())["cases"],
    )
    other = shutil.copytree(folder, tmp_path / "vectors")
    text = (other / "mask.json").read_text()
    (other / "mask.json").write_text(text.replace('"data":[1', '"data":[0', 1))
    (other / "ids.json").unlink()
    wrong = " ".join(files.check_folder(other).wrong)
    assert "mask.json" in wrong
    assert "ids.json is missing" in wrong


def test_a_changed_number_is_found_whatever_its_digest(folder, tmp_path):
    other = shutil.copytree(folder, tmp_path / "vectors")
    text = (other / "mask.json").read_text().replace('"data":[1', '"data":[0', 1)
    (other / "mask.json").write_text(text)
    index = json.loads((other / "index.json").read_text())
    index["files"]["mask.json"] = files._digest(text)
    (other / "index.json").write_text(json.dumps(index))
    (line,) = files.check_folder(other).wrong
    assert "seen differs" in line


def test_nothing_is_overwritten(folder, tmp_path):
    before = (folder / "index.json").read_bytes()
    with refused(FileExistsError, str(folder), "new folder"):
        files.write(folder)
    assert (folder / "index.json").read_bytes() == before
    with refused(ValueError, "index.json", files.FORMAT):
        files.check_folder(tmp_path)


def built(language, tmp_path):
    """Return the command of a checker, compiled if need be; skip without its compiler."""
    source, out = EXAMPLES / f"check.{language}", tmp_path / "check"
    if language == "py":
        return [sys.executable, source]
    tool = {"mjs": "node", "cpp": "g++", "rs": "rustc"}[language]
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    if language == "mjs":
        return [tool, source]
    build = [tool, "-O2", "-std=c++17", source, "-o", out]
    subprocess.run(build if language == "cpp" else [tool, "-O", source, "-o", out], check=True)
    return [out]


@pytest.mark.slow
@pytest.mark.parametrize("language", ["py", "mjs", "cpp", "rs"])
def test_a_checker_passes_right_numbers_and_finds_a_wrong_one(language, folder, tmp_path):
    command = built(language, tmp_path)
    text = (folder / "core.txt").read_text()
    count = text.count("case ")
    ran = subprocess.run([*command, folder / "core.txt"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout.strip()) == (0, f"{count} of {count} cases pass")
    changed = tmp_path / "core.txt"
    changed.write_text(text.replace("layout half", "layout interleaved", 1))
    ran = subprocess.run([*command, changed], capture_output=True, text=True)
    assert ran.returncode == 1
    assert f"{count - 1} of {count} cases pass" in ran.stdout
