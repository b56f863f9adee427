"""The commands of docs/faq.md, on small models made here, and the numbers of its Python."""

import re
from pathlib import Path

import pytest
import torch
import transformers
from transformers.models.whisper.modeling_whisper import sinusoids

FAQ = Path(__file__).parents[2] / "docs/faq.md"
TEXT = FAQ.read_text("utf-8") if FAQ.exists() else ""
COMMANDS = re.findall(r"```sh\n(posenc .*)\n```", TEXT)
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
MODELS = {
    "model": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=64, max_position_embeddings=8192, **SMALL)
    ),
    "vit": lambda: transformers.ViTModel(
        transformers.ViTConfig(image_size=64, patch_size=16, **SMALL)
    ),
    "bert": lambda: transformers.BertModel(transformers.BertConfig(vocab_size=64, **SMALL)),
}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda line: " ".join(line.split()[1:3]))
def test_a_command_writes_its_folder(posenc, command):
    """transformers loads what was written: a model of the new length, or the same model."""
    words = command.split()[1:]
    name, out = words[1].rstrip("/"), words[words.index("--out") + 1]
    MODELS[name]().save_pretrained(name)
    assert posenc(*words)[0] == 0
    config = transformers.AutoConfig.from_pretrained(out)
    expected = {
        "longer/": ("max_position_embeddings", 131_072),
        "other/": ("max_position_embeddings", 8_192),
        "vit-384/": ("image_size", 384),
        "bert-1024/": ("max_position_embeddings", 1_024),
    }
    key, value = expected[out]
    assert getattr(config, key) == value


def test_there_are_ten_questions_each_with_code():
    questions = re.split(r"^## \d+\. ", TEXT, flags=re.MULTILINE)[1:]
    assert len(questions) == 10
    assert all(re.search(r"```(sh|python)\n", one) for one in questions)


@pytest.fixture(scope="module")
def names():
    """The names that the Python of the page leaves, run from top to bottom."""
    found = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(block, found)
    return found


def test_the_rows_of_whisper_are_those_of_transformers(names):
    """Theirs are computed in float32, so that position 249 is off by up to 1.6e-5."""
    torch.testing.assert_close(names["added"][0], sinusoids(250, 384), rtol=0, atol=1.6e-5)


def test_the_positions_of_an_image_are_those_of_qwen2_vl(names):
    """Against `get_rope_index` of transformers: text, an image of 8 × 12 merged patches, text."""
    config = transformers.Qwen2VLConfig(
        text_config={"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
                     "num_key_value_heads": 2, "intermediate_size": 32, "vocab_size": 64},
        vision_config={"depth": 1, "embed_dim": 32, "num_heads": 2, "hidden_size": 32},
        image_token_id=60, video_token_id=61, vision_start_token_id=62, vision_end_token_id=63,
    )  # fmt: skip
    model = transformers.Qwen2VLModel(config)
    ids = torch.tensor([[1, 2, 3, 62] + [60] * 96 + [63] + [1] * 95])
    kinds = (ids == 60).int()
    expected, delta = model.get_rope_index(
        ids, mm_token_type_ids=kinds, image_grid_thw=torch.tensor([[1, 16, 24]])
    )
    assert names["pos"].T.equal(expected[:, 0])
    assert int(delta) == int(names["pos"].max()) + 1 - 196
