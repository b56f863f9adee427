"""Test the search for a model's files on folders as hubs and people make them."""

from pathlib import Path

import pytest
from refusals import refused

from posenc.models.files.errors import ModelError
from posenc.models.files.folder import find_files, inside, read_json


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


def fill(folder, *names, **texts):
    for name in names:
        (folder / name).write_text("{}")
    for name, text in texts.items():
        (folder / f"{name}.json").write_text(text)


def names(files):
    return [path.name for path in files.weights]


def test_a_config_alone_is_a_model(folder):
    fill(folder, "config.json")
    for path in (folder, folder / "config.json"):
        files = find_files(path)
        assert (files.root, files.config) == (folder, folder / "config.json")
        assert (files.weights, files.format, files.notes) == ((), None, ())


def test_a_config_may_have_any_name(folder):
    fill(folder, "llama.json", "config.json", "model.safetensors")
    assert find_files(folder / "llama.json").config == folder / "llama.json"
    assert find_files(folder / "llama.json").weights == ()


def test_weights_bring_the_config_beside_them(folder):
    fill(folder, "one.safetensors")
    assert find_files(folder / "one.safetensors").config is None
    fill(folder, "config.json")
    files = find_files(folder / "one.safetensors")
    assert (files.config, files.format) == (folder / "config.json", "safetensors")


@pytest.mark.parametrize(
    ("given", "kind", "taken"),
    [
        (["model.safetensors", "adapter.safetensors"], "safetensors", ["model.safetensors"]),
        (["b.safetensors", "a.safetensors"], "safetensors", ["a.safetensors", "b.safetensors"]),
        (
            ["model-00001-of-00001.safetensors", "model.safetensors.index.json", "all.safetensors"],
            "safetensors",
            ["model.safetensors.index.json"],
        ),
        (
            ["x.safetensors.index.json", "x.safetensors"],
            "safetensors",
            ["x.safetensors.index.json"],
        ),
        (["b.gguf", "a.gguf"], "gguf", ["a.gguf", "b.gguf"]),
        (["model.gguf", "q4.gguf"], "gguf", ["model.gguf"]),
        (["q4.gguf", "model.safetensors"], "safetensors", ["model.safetensors"]),
        (["pytorch_model.bin", "model.safetensors"], "safetensors", ["model.safetensors"]),
        (["b.pth", "a.ckpt", "config.json"], None, ["a.ckpt", "b.pth"]),
    ],
)
def test_the_weights_of_a_folder(folder, given, kind, taken):
    fill(folder, *given)
    assert find_files(folder).format == kind
    assert names(find_files(folder)) == taken


def test_gguf_is_known_by_its_first_bytes_too(folder):
    (folder / "gemma.part00").write_bytes(b"GGUF and so on")
    assert find_files(folder / "gemma.part00").format == "gguf"


def test_beside_pickles_the_config_still_counts(folder):
    fill(folder, "config.json", "pytorch_model.bin")
    files = find_files(folder)
    assert files.config == folder / "config.json"
    assert files.format is None
    assert files.notes == (
        "pytorch_model.bin is in the folder; pickle is never loaded, as it can run code;"
        " convert it to safetensors",
    )


def test_code_of_a_model_is_passed_over_with_a_note(folder):
    fill(
        folder, "modeling_x.py", "\x1b[31m.py", config='{"auto_map": {"AutoModel": "modeling_x.X"}}'
    )
    assert find_files(folder).notes == (
        r"\x1b[31m.py is in the folder; code from a model folder is never run",
        "modeling_x.py is in the folder; code from a model folder is never run",
        "config.json:auto_map names code in the folder, which posenc never runs",
    )
    assert len(find_files(folder / "config.json").notes) == 1


def test_a_folder_of_very_many_files_is_no_model(folder, monkeypatch):
    monkeypatch.setattr("posenc.models.files.folder.MOST_ENTRIES", 3)
    fill(folder, "config.json", "a", "b")
    find_files(folder)
    fill(folder, "c")
    with refused(ModelError, "model", 3):
        find_files(folder)


@pytest.mark.parametrize("name", ["not there", "null\0byte", "a" * 5000])
def test_what_is_not_there_is_said_to_be_missing(folder, name):
    with pytest.raises(ModelError, match=r"cannot be read|does not exist"):
        find_files(folder / name)


def hub(tmp_path, kind="models"):
    """Write a cache of huggingface_hub, with blobs and snapshots that link to them."""
    repo = tmp_path / f"{kind}--someone--something"
    snapshot = repo / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    (repo / "blobs" / "abcd").write_text('{"model_type": "llama"}')
    (snapshot / "config.json").symlink_to("../../blobs/abcd")
    return repo, snapshot


def test_the_links_of_the_hub_cache_are_followed(tmp_path):
    _, snapshot = hub(tmp_path)
    files = find_files(snapshot)
    assert files.config == snapshot / "config.json"  # under the name that people know
    assert read_json(files.config) == {"model_type": "llama"}
    (tmp_path / "elsewhere").symlink_to(snapshot)
    assert find_files(tmp_path / "elsewhere").config is not None
    (snapshot / "unet").mkdir()
    (snapshot / "unet" / "config.json").symlink_to("../../../blobs/abcd")
    assert find_files(snapshot / "unet").config is not None


def test_other_links_out_of_a_snapshot_are_not(tmp_path):
    repo, snapshot = hub(tmp_path)
    for number, to in enumerate(
        ["../../refs", "../../../secret", "/etc/hostname", "../../blobs2/x"]
    ):
        (snapshot / f"{number}.json").symlink_to(to)
        with pytest.raises(ModelError, match="links to a file outside the folder"):
            inside(snapshot, f"{number}.json")
    (repo / "blobs" / "out").symlink_to("/etc/hostname")
    (snapshot / "out.json").symlink_to("../../blobs/out")
    with pytest.raises(ModelError, match="links to a file outside the folder"):
        inside(snapshot, "out.json")


def test_only_a_snapshot_of_a_model_may_link_to_blobs(tmp_path):
    _, snapshot = hub(tmp_path, kind="backups")
    with refused(ModelError, "0123"):
        find_files(snapshot)


def test_a_link_within_the_folder_is_followed(folder):
    fill(folder, "a.json")
    (folder / "config.json").symlink_to("a.json")
    assert find_files(folder).config == folder / "config.json"


def test_a_file_in_a_folder_below_is_inside(folder):
    (folder / "sub").mkdir()
    fill(folder / "sub", "a.safetensors")
    assert inside(folder, "sub/a.safetensors") == folder / "sub/a.safetensors"
    assert inside(folder, "./sub/a.safetensors").exists()


def test_only_a_file_is_inside(folder):
    (folder / "sub").mkdir()
    for name, message in [
        ("sub", "must be a regular file"),
        ("no", "cannot be read: No such file"),
    ]:
        with refused(ModelError, name, message):
            inside(folder, name)


def test_the_current_folder_has_a_name_in_messages(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with refused(ModelError, "model", "'../x'"):
        inside(Path("."), "../x")
