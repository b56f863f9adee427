"""Test specifications of a file or a folder against the config that was written."""

import json

import numpy as np
from published import published
from weight_files import save_gguf

from posenc.models.config import read, specify
from posenc.models.config.source import Source


def test_a_file_or_a_folder_is_read(tmp_path):
    config = published("Llama-3.1-8B-Instruct")
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read(tmp_path) == read(tmp_path / "config.json") == specify(config)


def test_a_gguf_file_is_read_itself_whatever_config_lies_beside_it(tmp_path):
    config = published("Llama-3.1-8B-Instruct")
    (tmp_path / "config.json").write_text(json.dumps(config))
    sizes = {
        "context_length": 64,
        "embedding_length": 64,
        "block_count": 3,
        "attention.head_count": 4,
    }
    keys = {f"llama.{key}": ("uint32", n) for key, n in sizes.items()}
    save_gguf(tmp_path / "a.gguf", {"token_embd.weight": np.zeros((2, 4), np.float32)}, **keys)
    assert read(tmp_path / "a.gguf") == specify(config)
    assert len(Source(tmp_path / "a.gguf").own_spec.layers) == 3
    assert Source(tmp_path).own_spec == specify(config)
