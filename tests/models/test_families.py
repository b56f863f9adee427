"""Test encodings applied to many families against their eager attention and fresh passes."""

import sys
from datetime import date
from pathlib import Path

import pytest
import torch
import transformers as T
from refusals import refused

from posenc import ALiBi, Learned, NoPE, RoPE, Sinusoidal, Sum, T5Bias
from posenc.analysis.capture import capture
from posenc.models.adapter import applied, apply, load, remove
from posenc.models.config.parse import specify

SIZE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=40)
REST = dict(intermediate_size=48, max_position_embeddings=64, initializer_range=0.3, pad_token_id=0)
GROUPED = SIZE | REST | dict(num_key_value_heads=2, eos_token_id=1)
NEAR_AND_FAR = ["sliding_attention", "full_attention"]
GPT2 = dict(n_embd=32, n_layer=2, n_head=4, vocab_size=40, n_positions=64, initializer_range=0.3)
MAKE = {
    "gpt2": lambda: T.GPT2LMHeadModel(T.GPT2Config(**GPT2, bos_token_id=1, eos_token_id=1)),
    "opt": lambda: T.OPTForCausalLM(
        T.OPTConfig(**SIZE, ffn_dim=48, word_embed_proj_dim=32, init_std=0.3, dropout=0.0)
    ),
    "qwen3": lambda: T.Qwen3ForCausalLM(T.Qwen3Config(**GROUPED, head_dim=8)),
    "mistral": lambda: T.MistralForCausalLM(T.MistralConfig(**GROUPED, sliding_window=5)),
    "gemma2": lambda: T.Gemma2ForCausalLM(
        T.Gemma2Config(**GROUPED, head_dim=8, sliding_window=5, query_pre_attn_scalar=13)
    ),
    "gpt_oss": lambda: T.GptOssForCausalLM(
        T.GptOssConfig(
            **GROUPED,
            head_dim=8,
            num_local_experts=4,
            sliding_window=5,
            layer_types=NEAR_AND_FAR,
        )
    ),
    "bert": lambda: T.BertForMaskedLM(T.BertConfig(**SIZE | REST)),
    "modernbert": lambda: T.ModernBertForMaskedLM(
        T.ModernBertConfig(**SIZE | REST, local_attention=6, bos_token_id=1, eos_token_id=1)
    ),
}
TABLES = ("gpt2", "bert", "opt")
EVERY = pytest.mark.parametrize("name", MAKE)
DECODERS = pytest.mark.parametrize("name", [n for n in MAKE if "bert" not in n])
TEXT = torch.randint(2, 40, (2, 12), generator=torch.Generator().manual_seed(1))


def build(name):
    torch.manual_seed(0)
    return MAKE[name]().eval()


@torch.no_grad()
def logits(model, ids=TEXT, **given):
    return model(ids, **given).logits


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=5e-5, rtol=1e-4)


@EVERY
def test_its_own_encoding_from_its_config_gives_it_its_own_logits(name):
    """A learned table is read from the weights, after the rows stored before position 0."""
    model = build(name)
    own, spec = logits(model), specify(model.config.to_dict())
    encodings = spec.encodings()
    if name in TABLES:
        stored = next(w for n, w in model.named_parameters() if "wpe" in n or "position" in n)
        table = Learned(spec.embedding.rows, spec.embedding.width)
        table.table.data = stored.detach()[spec.embedding.offset :]
        encodings = [Sum(table, encodings[0]), *encodings[1:]]
    with applied(model, encodings):
        close(logits(model), own)
    with applied(model, NoPE()):
        assert (logits(model) - own).abs().max() > 1e-2


def test_layers_that_are_not_scaled_turn_as_before():
    """Molmo 2 lists the scaled layers; the sweep of configs tests only the first rotary table."""
    rope = dict(rope_type="yarn", factor=4.0, rope_theta=1e4, original_max_position_embeddings=4)
    config = T.Molmo2TextConfig(
        **GROUPED, head_dim=8, rope_scaling_layers=[1], rope_parameters=rope
    )
    torch.manual_seed(0)
    model = T.AutoModel.from_config(config).eval()
    with torch.no_grad():
        own = model(TEXT).last_hidden_state
        with applied(model, specify(config.to_dict()).encodings()):
            close(model(TEXT).last_hidden_state, own)
        every = specify(config.to_dict() | {"rope_scaling_layers": [0, 1]})
        with applied(model, every.encodings()):
            assert (model(TEXT).last_hidden_state - own).abs().max() > 1e-2


@DECODERS
@pytest.mark.parametrize("room", ["growing", "static"])
def test_decoding_with_a_cache_equals_a_full_pass(name, room):
    """Cases include a sliding window shorter than the text, sinks and softcaps."""
    model = build(name)
    for encoding in (ALiBi(4), Sum(RoPE(8, layout="half"), T5Bias(4, bidirectional=False))):
        with applied(model, encoding), torch.no_grad():
            full, cache = logits(model, use_cache=False), None
            if room == "static":
                cache = T.StaticCache(model.config, max_cache_len=16)
            parts = []
            for part in TEXT.split((6, 1, 1, 4), 1):
                out = model(part, past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                parts.append(out.logits)
        close(torch.cat(parts, 1), full)


@EVERY
def test_filling_on_the_left_changes_nothing(name):
    model = build(name)
    filled = torch.cat((torch.full((2, 3), 39), TEXT), 1)
    mask = (torch.arange(15) >= 3).long().expand(2, -1)
    with applied(model, ALiBi(4)):
        close(logits(model, filled, attention_mask=mask)[:, 3:], logits(model))


@DECODERS
def test_beams_keep_the_best_texts(name):
    """Compare with beams that compute every step without a cache."""
    model = build(name)
    given = dict(num_beams=3, max_new_tokens=4, do_sample=False, pad_token_id=0, eos_token_id=None)
    with applied(model, ALiBi(4)):
        made = model.generate(TEXT, **given)
        assert torch.equal(made, model.generate(TEXT, use_cache=False, **given))


@DECODERS
def test_texts_in_one_row_are_as_if_alone(name):
    if name in ("opt", "gpt_oss"):
        pytest.skip("transformers does not separate texts in one row for this model")
    model, pos = build(name), torch.tensor([[*range(7), *range(5)]])
    with applied(model, ALiBi(4)):
        whole = logits(model, TEXT[:1], position_ids=pos, use_cache=False)
        close(whole[:, :7], logits(model, TEXT[:1, :7], use_cache=False))
        close(whole[:, 7:], logits(model, TEXT[:1, 7:], use_cache=False))


@EVERY
def test_what_is_learned_gets_the_same_gradient_when_layers_are_computed_twice(name):
    model, encoding = build(name), T5Bias(4)
    gradients = []
    with applied(model, encoding):
        for again in (False, True):
            if again:
                model.activation_checkpointing_enable()
                model.train()
            for part in model.modules():
                part.p = 0.0 if isinstance(part, torch.nn.Dropout) else getattr(part, "p", 0.0)
            options = {"use_cache": False} if "bert" not in name else {}
            loss = model(TEXT, labels=TEXT, **options).loss
            gradients += torch.autograd.grad(loss, encoding.weight)
    assert gradients[0].abs().max() > 0
    close(*gradients)


@EVERY
def test_a_saved_model_is_loaded_with_its_encoding(name, tmp_path):
    model = build(name)
    own = logits(model)
    apply(model, Sum(T5Bias(4), Sinusoidal(32)))
    both = logits(model)
    model.save_pretrained(tmp_path)
    again = load(tmp_path)
    assert torch.equal(logits(again), both)
    remove(again)
    assert torch.equal(logits(again), own)


@pytest.mark.parametrize("name", TABLES)
def test_a_text_may_be_longer_than_a_table_that_is_off(name):
    model = build(name)
    long = TEXT[:1].repeat(1, 8)
    assert long.shape[1] > 64
    kinds = {"token_type_ids": torch.zeros_like(long)} if name == "bert" else {}
    with applied(model, RoPE(8)):
        assert logits(model, long, **kinds).isfinite().all()


def test_sinks_are_captured_as_the_model_weighs_them():
    model = build("gpt_oss")
    attended = capture(model, {"input_ids": TEXT})
    assert all(one.sinks is not None for one in attended)
    assert len(attended) == 2


# the census --------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/census.md"


def test_the_census_counts_a_hundred_families_and_none_that_is_wrong():
    page = PAGE.read_text("utf-8")
    counts = dict(line[2:].split(": ") for line in page.splitlines() if line.startswith("- "))
    assert int(counts["right"]) >= 100
    assert counts["wrong"] == "0"
    assert date.fromisoformat(page.split("wrote this page on ")[1].split()[0])
    right = page.split("## Right")[1].split("##")[0].split("`")[1::2]
    assert len(right) == int(counts["right"])


@pytest.mark.parametrize("name", ["llama", "gpt2", "bart"])
def test_the_census_says_of_a_family_what_its_page_says(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import census

    outcome, why = census.verdict(name)
    page = PAGE.read_text("utf-8").split(f"## {outcome.capitalize()}")[1].split("\n## ")[0]
    assert f"`{name}`" in page
    assert why in page
    sys.modules.pop("census")


@pytest.mark.parametrize("name", TABLES)
def test_encodings_of_the_layers_alone_do_not_switch_a_table_off(name):
    """A table that was switched off silently changed the logits by 2 to 4."""
    model = build(name)
    own, spec = logits(model), specify(model.config.to_dict())
    with refused(ValueError, "`encoding`", "NoPE"):
        apply(model, spec.encodings())
    close(logits(model), own)
    assert spec.encodings().embedding == spec.embedding
