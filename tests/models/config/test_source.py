"""Specifying a model from a file or a folder, against its config as it was written."""

import json

from published import published

from posenc.models.config import read, specify


def test_a_file_or_a_folder_is_read(tmp_path):
    config = published("Llama-3.1-8B-Instruct")
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read(tmp_path) == read(tmp_path / "config.json") == specify(config)
