"""Test resized tables against transformers' own interpolation, and against NumPy by channel."""

import json

import numpy as np
import pytest
import torch
import transformers as T
from refusals import refused
from safetensors.torch import load_file

from posenc.models.files.errors import ModelError
from posenc.models.resize import resize

SIZE = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
PICTURE = SIZE | dict(image_size=12, patch_size=4, num_channels=1)
TEXT = SIZE | dict(vocab_size=20, max_position_embeddings=10, pad_token_id=1, bos_token_id=0)
TEXT |= dict(eos_token_id=2)
BOTH = dict(text_config=TEXT, vision_config=PICTURE)
WHISPER = dict(
    **dict(vocab_size=20, d_model=16, encoder_layers=1, decoder_layers=1, num_mel_bins=8),
    **dict(encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16),
    **dict(decoder_ffn_dim=16, max_source_positions=12, max_target_positions=10),
    **dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=0),
)
GPT2 = dict(n_embd=16, n_layer=1, n_head=2, n_positions=10, vocab_size=20)


def saved(name, folder, **sizes):
    torch.manual_seed(0)
    model = getattr(T, f"{name}Model")(getattr(T, f"{name}Config")(**sizes)).eval()
    for path, weight in model.named_parameters():
        if "position" in path:
            torch.nn.init.normal_(weight)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", ["ViT", "DeiT", "CLIPVision", "SiglipVision"])
def test_a_larger_picture_is_seen_as_transformers_sees_it(tmp_path, name):
    model = saved(name, tmp_path / "a", **PICTURE)
    done = resize(tmp_path / "a", 20, tmp_path / "b")
    assert (done.key, done.value) == ("image_size", 20)
    kept = done.before - 9  # of classes and registers
    assert (done.after, kept) == (25 + kept, {"ViT": 1, "DeiT": 2, "CLIPVision": 1}.get(name, 0))
    picture = torch.randn(1, 1, 20, 20)
    larger = type(model).from_pretrained(tmp_path / "b").eval()
    with torch.no_grad():
        wanted = model(picture, interpolate_pos_encoding=True).last_hidden_state
        torch.testing.assert_close(larger(picture).last_hidden_state, wanted)
        moved = model(picture.flip(-1), interpolate_pos_encoding=True).last_hidden_state
    assert (moved - wanted).abs().max() > 0.01


def stretched(rows, to):
    """Interpolate linearly between the centres of rows, one channel at a time."""
    at = (np.arange(to) + 0.5) * len(rows) / to - 0.5
    columns = [np.interp(at, np.arange(len(rows)), column) for column in rows.T]
    return np.stack(columns, -1).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "sizes", "key", "first", "config"),
    [
        ("Bert", TEXT, "embeddings.position_embeddings.weight", 0, "max_position_embeddings"),
        ("Roberta", TEXT, "embeddings.position_embeddings.weight", 2, "max_position_embeddings"),
        ("GPT2", GPT2, "wpe.weight", 0, "n_positions"),
    ],
)
def test_a_longer_text_has_rows_between_those_that_were(tmp_path, name, sizes, key, first, config):
    model = saved(name, tmp_path / "a", **sizes)
    done = resize(tmp_path / "a", 30, tmp_path / "b")
    assert (done.tensor, done.before, done.after) == (key, 10, 30 + first)
    longer = type(model).from_pretrained(tmp_path / "b").eval()
    old, new = (dict(one.named_parameters())[key].detach().numpy() for one in (model, longer))
    np.testing.assert_array_equal(new[:first], old[:first])
    np.testing.assert_allclose(new[first:], stretched(old[first:], 30), atol=1e-5)
    assert json.loads((tmp_path / "b/config.json").read_text())[config] == 30 + first
    with torch.no_grad():
        out = longer(torch.full((1, 30), 5)).last_hidden_state
    assert out.isfinite().all()
    before, after = (load_file(tmp_path / one / "model.safetensors") for one in "ab")
    assert all(torch.equal(before[other], after[other]) for other in before.keys() - {key})


def test_a_part_of_a_whole_is_resized_and_the_other_stays(tmp_path):
    model = saved("CLIP", tmp_path / "a", **BOTH, projection_dim=8)
    resize(tmp_path / "a", 20, tmp_path / "b", "vision_config")
    done = resize(tmp_path / "b", 14, tmp_path / "c", "text_config")
    assert done.key == "text_config.max_position_embeddings"
    larger = T.CLIPModel.from_pretrained(tmp_path / "c").eval()
    picture = torch.randn(1, 1, 20, 20)
    with torch.no_grad():
        wanted = model.vision_model(picture, interpolate_pos_encoding=True).pooler_output
        torch.testing.assert_close(larger.vision_model(picture).pooler_output, wanted)
        assert larger.text_model(torch.full((1, 14), 2)).last_hidden_state.isfinite().all()
    with refused(ModelError, "`part`", "text_config", "vision_config"):
        resize(tmp_path / "a", 20, tmp_path / "d")


def test_the_decoder_of_whisper_is_resized(tmp_path):
    model = saved("Whisper", tmp_path / "a", **WHISPER)
    done = resize(tmp_path / "a", 25, tmp_path / "b", "decoder")
    assert (done.key, done.value) == ("max_target_positions", 25)
    new = load_file(tmp_path / "b/model.safetensors")[done.tensor].numpy()
    old = model.decoder.embed_positions.weight.detach().numpy()
    np.testing.assert_allclose(new, stretched(old, 25), atol=1e-5)
    with refused(ModelError, "'encoder'", "`part`"):
        resize(tmp_path / "a", 25, tmp_path / "c", "encoder")


def test_what_cannot_be_resized_is_refused_and_nothing_is_written(tmp_path):
    saved("Bert", tmp_path / "a", **TEXT)
    with refused(ModelError, 10, "`to`"):
        resize(tmp_path / "a", 10, tmp_path / "b")
    with refused(ValueError, "`to`"):
        resize(tmp_path / "a", 0, tmp_path / "b")
    with pytest.raises(FileExistsError, match="must not exist"):
        resize(tmp_path / "a", 20, tmp_path / "a")
    config = json.loads((tmp_path / "a/config.json").read_text())
    (tmp_path / "a/config.json").write_text(json.dumps(config | {"max_position_embeddings": 12}))
    with refused(ModelError, 12, 16, 0):
        resize(tmp_path / "a", 20, tmp_path / "b")
    assert not (tmp_path / "b").exists()
