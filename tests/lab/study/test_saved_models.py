"""Models that a study kept, against the models that were trained."""

import json

import pytest
import torch
from refusals import refused
from safetensors import safe_open
from safetensors.torch import save_file

import posenc
from posenc.lab.study import saved_models, tasks, train
from posenc.lab.study.build import build
from posenc.lab.study.cell import Cell, Profile

PROFILE = Profile(width=16, heads=2, layers=1, steps=3, batch=4, warmup=1, prompts=3)


def trained(tmp_path, task="copy", encoding="kerple"):
    cell = Cell(task, encoding, 2, label="mine", profile=PROFILE, tested=(4,))
    train.run(cell, tasks.find(task), models=tmp_path / "models")
    return cell, tmp_path / "models" / f"{cell.digest}.safetensors"


def test_a_kept_model_is_the_trained_one(tmp_path):
    cell, path = trained(tmp_path)
    again, task = posenc.lab.study.load(path), tasks.find("copy")
    assert again.cell == cell
    assert again.vocabulary == task.vocabulary
    model = build(cell, len(task.vocabulary))
    train.fit(model, cell, task.at(None, (4,)))
    weights = zip(again.model.parameters(), model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in weights)
    assert not again.model.training


def test_a_kept_model_goes_on_with_a_text(tmp_path):
    """Against the likeliest symbols of the whole text, read anew each time."""
    _, path = trained(tmp_path)
    model, prompt = posenc.lab.study.load(path), ["w3", "w5", "<sep>"]
    said, tokens = [], [1, *(model.vocabulary.index(symbol) for symbol in prompt)]
    while len(said) < 6:
        tokens.append(model.model(torch.tensor([tokens]))[0, -1].argmax().item())
        if model.vocabulary[tokens[-1]] == "<eos>":
            break
        said.append(model.vocabulary[tokens[-1]])
    assert model.generate(prompt, 6) == said
    with refused(ValueError, "'w100'"):
        model.generate(["w100"])


def test_what_no_study_wrote_is_refused(tmp_path):
    with refused(ValueError, tmp_path / "none.safetensors"):
        saved_models.load(tmp_path / "none.safetensors")
    save_file({"x": torch.ones(1)}, tmp_path / "other.safetensors")
    (tmp_path / "text.safetensors").write_text("a text")
    for name in ("other", "text"):
        with refused(ValueError, "`posenc study --keep`"):
            saved_models.load(tmp_path / f"{name}.safetensors")


def with_metadata(path, change):
    """Replace the metadata of a file by the result of `change`."""
    with safe_open(path, "pt") as file:
        about = json.loads(file.metadata()[saved_models.KEY])
        weights = {name: file.get_tensor(name) for name in file.keys()}
    save_file(weights, path, {saved_models.KEY: json.dumps(change(about))})


def profile(**sizes):
    def change(about):
        about["cell"]["profile"] |= sizes
        return about

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda about: [1],
        lambda about: about | {"cell": 3},
        lambda about: about | {"vocabulary": 3},
        lambda about: about | {"vocabulary": ["a", "b"]},
        lambda about: about | {"vocabulary": [[]] * 104},
        lambda about: about | {"sources": 3},
        lambda about: about | {"label": 3},
        lambda about: about | {"both_ways": "yes"},
        lambda about: about | {"cell": about["cell"] | {"options": [[]]}},
        profile(layers=2),
        profile(width=2**15),
        profile(heads=0),
        profile(heads="2"),
        profile(rate=None),
    ],
)
def test_metadata_that_no_study_wrote_are_refused(tmp_path, change):
    _, path = trained(tmp_path)
    with_metadata(path, change)
    with refused(ValueError, "`posenc study --keep`"):
        saved_models.load(path)


@pytest.mark.parametrize("encoding", ["rope", "learned", "nothing", "axial-rope"])
def test_weights_of_another_encoding_are_refused(tmp_path, encoding):
    _, path = trained(tmp_path)
    with_metadata(path, lambda about: about | {"cell": about["cell"] | {"encoding": encoding}})
    with refused(ValueError, path, "weights") as raised:
        saved_models.load(path)
    assert "\n" not in str(raised.value)
