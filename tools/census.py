"""Apply encodings to a tiny random model of every transformers architecture: `make census`.

Each is its class's own config with sizes cut small, weights drawn at random. A family is right
where `apply` takes it, which holds the model with its own encoding plugged in against itself, and

    NoPE, ALiBi   are its own eager attention with its rotation and its tables off, and a bias added
    decoding      with a cache is one fresh pass, greedily; with filling on the left too

The last check runs for types that decode. A type with another fault that `apply` refuses by name
counts as refused; a type that `apply` accepts and that fails a check counts as wrong. Writes
docs/census.md.
"""

import argparse
import contextlib
import datetime
import multiprocessing
import os
import re
import resource
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "critical")

from importlib.metadata import version

import torch
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from posenc import ALiBi, NoPE
from posenc.models.adapter import applied, apply, remove
from posenc.models.config.spec import TEXT
from posenc.models.hf import discovery

PAGE = Path(__file__).parent.parent / "docs/census.md"
MOST = 3_000_000  # weights of a model that is still tiny
SECONDS = 60
BYTES = 6 * 2**30
HEADS = 4
MOST_OFF = 1e-3  # of the largest number: HRM thinks in rounds, which multiply roundings
OUTCOMES = ("right", "wrong", "refused", "not built", "apart")
SIZES: dict[str, Any] = {
    **dict.fromkeys(
        "hidden_size d_model n_embd dim embedding_size word_embed_proj_dim emb_dim embed_dim"
        " hidden_size_per_layer_input model_dim lookup_table_dim embedding_dim".split(),
        32,
    ),
    **dict.fromkeys("num_hidden_layers n_layer num_layers n_layers encoder_layers".split(), 4),
    **dict.fromkeys("n_head n_heads num_heads num_attention_heads attention_heads".split(), HEADS),
    **dict.fromkeys("encoder_attention_heads decoder_attention_heads".split(), HEADS),
    **dict.fromkeys(
        "intermediate_size ffn_dim n_inner hidden_dim d_ff encoder_ffn_dim decoder_ffn_dim"
        " intermediate_size_mlp ffn_hidden_size block_ff_dim dense_intermediate_size".split(),
        48,
    ),
    **dict.fromkeys(
        "moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size"
        " shared_intermediate_size q_lora_rank kv_lora_rank index_head_dim o_lora_rank".split(),
        16,
    ),
    **dict.fromkeys("head_dim global_head_dim attention_head_dim kv_channels".split(), 8),
    **dict.fromkeys("vocab_size vocab_size_per_layer_input".split(), 99),
    **dict.fromkeys(
        "num_experts num_local_experts n_routed_experts moe_num_experts num_moe_experts".split(), 4
    ),
    **dict.fromkeys("num_experts_per_tok moe_topk moe_k num_experts_per_token top_k".split(), 2),
    **dict.fromkeys("n_shared_experts n_group topk_group first_k_dense_replace".split(), 1),
    **dict.fromkeys("max_position_embeddings n_positions n_ctx max_seq_len".split(), 64),
    **dict.fromkeys("sliding_window attention_chunk_size".split(), 5),
    **dict.fromkeys("num_key_value_heads num_kv_heads type_vocab_size n_groups".split(), 2),
    **dict.fromkeys("mamba_n_groups linear_num_key_heads".split(), 2),
    **dict.fromkeys("mamba_d_state ssm_state_size mamba_chunk_size chunk_size".split(), 8),
    **dict.fromkeys("linear_key_head_dim linear_value_head_dim".split(), 8),
    **dict.fromkeys("mamba_d_head mamba_head_dim".split(), 16),
    **dict.fromkeys("mamba_n_heads mamba_num_heads linear_num_value_heads".split(), 4),
    **dict.fromkeys("dropout layerdrop attention_dropout hidden_dropout".split(), 0.0),
    **dict(qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=6, qk_head_dim=10, rotary_dim=4),
    **dict(local_attention=6, initializer_range=0.3, query_pre_attn_scalar=13, mamba_d_ssm=64),
    **dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, index_n_heads=2, index_topk=64),
    **dict(sinks=2, local_window_size=5, hidden_size_per_layer_input=8, entity_vocab_size=20),
}
FOUR = ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]
# Sizes that follow from each other, and layers of hybrids of which some attend
MROPE = dict(rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[1, 1, 2]))
OTHERWISE: dict[str, dict[str, Any]] = {
    "qwen2_vl_text": MROPE,
    "qwen2_5_vl_text": MROPE,
    "cohere_compass_text": dict(layer_types=FOUR),
    "dots1": dict(layer_types=FOUR),
    "mistral4": dict(head_dim=10),
    "mamba2": dict(expand=2, num_heads=4, head_dim=16),
    "bamba": dict(attn_layer_indices=[1, 3], mamba_d_head=16),
    "bailing_hybrid": dict(layer_group_size=2),
    "esmc": dict(num_key_value_heads=None),
    "falcon": dict(head_dim=None),
    "gpt_neo": dict(attention_types=[[["global", "local"], 2]], window_size=5),
    "nemotron": dict(num_key_value_heads=4),
    "nemotron_h": dict(layers_block_type=["mamba", "attention", "mlp", "attention"]),
    "granitemoehybrid": dict(layer_types=["mamba", "attention", "mamba", "attention"]),
    "jamba": dict(attn_layer_period=2, attn_layer_offset=1, use_mamba_kernels=False),
    "zaya": dict(num_experts_per_tok=1),
    "gemma3n_text": dict(layer_types=FOUR, num_kv_shared_layers=0, intermediate_size=[48] * 4,
                         activation_sparsity_pattern=None, laurel_rank=8),
    "gemma4_text": dict(layer_types=FOUR, num_kv_shared_layers=0),
    "axk1": dict(num_key_value_heads=4),
    "lfm2": dict(layer_types=["conv", "full_attention"] * 2),
    "lfm2_moe": dict(layer_types=["conv", "full_attention"] * 2, num_dense_layers=1),
    "luke": dict(entity_emb_size=16),
    "funnel": dict(block_sizes=[1, 1]),
}  # fmt: skip


def model_types() -> list[str]:
    """Return all model types of transformers with a base model or a head for text."""
    names = (
        modeling_auto.MODEL_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )
    return sorted({kind for table in names for kind in table if kind in CONFIG_MAPPING})


def tiny_config(kind: str) -> Any:
    """Return a config of a model type with tiny sizes."""
    config_class = CONFIG_MAPPING[kind]
    written = config_class().to_dict()
    sizes: dict[str, Any] = {}
    for name, size in SIZES.items():
        own = config_class.attribute_map.get(name, name)
        chosen = written.get(own) is not None or (own == "head_dim" and own in written)
        if chosen and not isinstance(written[own], list | dict | bool):
            sizes[own] = size
    if written.get("kv_lora_rank") is not None:  # keys are made of latents, one for each head
        sizes["num_key_value_heads"] = HEADS
        if "head_dim" in sizes:
            sizes["head_dim"] = SIZES["qk_rope_head_dim"]
    if "num_experts_per_tok" in written:
        sizes.setdefault("num_experts_per_tok", 2)
    return config_class(**sizes | OTHERWISE.get(kind, {}))


def without_text(kind: str) -> str:
    """Return the reason why a model type is not a text model itself, or ""."""
    default = CONFIG_MAPPING[kind]()
    inner = [getattr(default, name, None) for name in (*TEXT, "text_encoder", "qformer_config")]
    for config in inner:
        if getattr(config, "model_type", kind) in CONFIG_MAPPING and config is not None:
            return f"the text model inside has a type of its own, `{config.model_type}`"
    return "" if "vocab_size" in default.to_dict() else "the model takes no token ids"


def tiny_model(kind: str) -> Any:
    """Build a tiny model with random weights. Raises ValueError if the model is still too large.

    Errors of the model's own constructor are raised unchanged.
    """
    config = tiny_config(kind)
    mappings = (modeling_auto.MODEL_MAPPING, modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING)
    found: Any = next(table[type(config)] for table in mappings if type(config) in table)
    model_class = found[0] if isinstance(found, tuple) else found
    with torch.device("meta"):
        size = sum(weight.numel() for weight in model_class(config).parameters())
    if size > MOST:
        raise ValueError(f"the model still has {size:,} weights with tiny sizes in its config")
    torch.manual_seed(0)
    return model_class(config).float().eval()


@contextlib.contextmanager
def own_eager(base: Any, plan: discovery.AdapterPlan, bias: Any):
    """Switch a model to its eager attention with this bias, and without its own encoding."""
    configs = [base.get_submodule(path).config for path in discovery.configs(base)]
    before = [(config, config._attn_implementation) for config in configs]
    homes = {sys.modules[type(base.get_submodule(site.path)).__module__] for site in plan.sites}
    owned = [(home, home.eager_attention_forward) for home in homes]

    # the factor that a YaRN of the model's own brings along goes with it
    scales = {base.get_submodule(site.path): site.plain_scale for site in plan.sites}

    def biased(eager: Any) -> Any:
        def attention(module: Any, q: Any, k: Any, v: Any, *args: Any, **more: Any) -> Any:
            mask, *rest = args or (more.pop("attention_mask"),)
            added = bias(q.shape[2], k.shape[2])
            mask = added if mask is None else mask.expand(-1, HEADS, -1, -1) + added
            if "scaling" in more:
                more["scaling"] = scales[module]
            return eager(module, q, k, v, mask, *rest, **more)

        return attention

    rotary, tables = (list(map(base.get_submodule, paths)) for paths in (plan.rotary, plan.tables))
    hooks = [m.register_forward_hook(discovery.identity_rotation, with_kwargs=True) for m in rotary]
    hooks += [m.register_forward_hook(discovery.zero_hook, with_kwargs=True) for m in tables]
    try:
        for config in configs:
            config._attn_implementation = "eager"
        for home, eager in owned:
            vars(home)["eager_attention_forward"] = biased(eager)
        hooks = [
            module.register_forward_hook(discovery.identity_rotation, with_kwargs=True)
            for module in rotary
        ]
        hooks += [m.register_forward_hook(discovery.zero_hook, with_kwargs=True) for m in tables]
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for config, implementation in before:
            config._attn_implementation = implementation
        for home, eager in owned:
            vars(home)["eager_attention_forward"] = eager


def off(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


@torch.no_grad()
def faults(model: Any) -> list[str]:
    """Apply encodings to a model, and return a sentence for each check that fails."""
    base = discovery.find_base(model)
    plan = discovery.discover(base)
    ids = torch.randint(3, 90, (2, 12), generator=torch.Generator().manual_seed(2))
    slopes = torch.tensor([2 ** (-8 * (h + 1) / HEADS) for h in range(HEADS)]).view(-1, 1, 1)

    def bias(queries: int, keys: int) -> torch.Tensor:
        return (
            -slopes
            * (torch.arange(queries).view(-1, 1) + keys - queries - torch.arange(keys)).abs()
        )

    wrong: list[str] = []
    homes = [sys.modules[type(base.get_submodule(site.path)).__module__] for site in plan.sites]
    eager = all(hasattr(home, "eager_attention_forward") for home in homes)
    for encoding, added in ((NoPE(), lambda n, m: torch.zeros(HEADS, n, m)), (ALiBi(HEADS), bias)):
        with applied(model, encoding):
            ours = base(ids, **options(base))[0]
        if eager:
            with own_eager(base, plan, added):
                theirs = base(ids, **options(base))[0]
            if not off(ours, theirs) < MOST_OFF:
                wrong.append(f"{type(encoding).__name__} is off by {off(ours, theirs):.1g}")
    if not decodes(base, ids, base(ids, **options(base))[0]):  # by itself: Moshi does not
        return wrong
    with applied(model, ALiBi(HEADS)):
        full = base(ids, **options(base))[0]
        if not decodes(base, ids, full):
            wrong.append("decoding is off")
        filled = torch.cat((torch.full((2, 3), 7), ids), 1)
        mask = (torch.arange(15) >= 3).long().expand(2, -1)
        padded = base(filled, attention_mask=mask)[0][:, 3:]
        if not off(padded, full) < MOST_OFF:
            wrong.append(f"filling changes {off(padded, full):.1g}")
    return wrong


def decodes(base: Any, ids: torch.Tensor, full: torch.Tensor) -> bool:
    """Test whether decoding token by token with a cache equals one pass over all tokens."""
    out = base(ids[:, :9])
    parts, cache = [out[0]], getattr(out, "past_key_values", None)
    if cache is None or isinstance(cache, tuple):
        return False
    for token in ids[:, 9:].split(1, 1):
        out = base(token, past_key_values=cache)
        cache = out.past_key_values
        parts.append(out[0])
    return off(torch.cat(parts, 1), full) < MOST_OFF


def options(base: Any) -> dict[str, Any]:
    return {"use_cache": False} if "use_cache" in discovery.names_of(base) else {}


def verdict(kind: str) -> tuple[str, str]:
    """Test a model type: return an outcome, such as "right" or "refused", and the reason."""
    warnings.filterwarnings("ignore")
    try:
        if reason := without_text(kind):
            return "apart", reason
        model = tiny_model(kind)
    except Exception as error:  # of whatever kind: transformers' own classes raise
        return "not built", sentence(error)
    try:
        apply(model, NoPE())
        remove(model)
    except TypeError as refused:
        return "refused", sentence(refused)
    except Exception as error:
        return "wrong", f"apply raises {sentence(error)}"
    try:
        wrong = faults(model)
    except Exception as error:
        return "wrong", f"raises {sentence(error)}"
    return ("wrong", "; ".join(wrong)) if wrong else ("right", "")


def sentence(error: Exception) -> str:
    words = str(error).split(", so its encoding cannot")[0]
    name = "" if isinstance(error, TypeError) else f"{type(error).__name__}: "
    words = re.sub(r"'/[^' ]*/site-packages/", "'", words)  # no path of this machine
    return " ".join(f"{name}{words}".split())[:160].replace("|", "/")


def isolated(kind: str) -> tuple[str, str]:
    """Test a model type in a separate process with limited time and memory; return the result."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(kind, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(SECONDS) else ("not built", f"takes over {SECONDS} s")
    except EOFError:
        return "not built", "its process ended"
    finally:
        process.kill()
        process.join()


def _child(kind: str, pipe: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    torch.set_num_threads(1)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        os.dup2(nowhere.fileno(), 2)
        pipe.send(verdict(kind))


def page(found: dict[str, tuple[str, str]], date: str) -> str:
    """Return the results of the census as a Markdown page of the documentation."""
    counted = Counter(outcome for outcome, _ in found.values())
    right = [kind for kind, (outcome, _) in found.items() if outcome == "right"]
    lines = [
        "# Model types of transformers whose encoding posenc can replace",
        "",
        f"`make census` wrote this page on {date} with transformers {version('transformers')}. For"
        " each model type, the script builds a tiny model with random weights, and replaces its"
        " positional encoding by `posenc.models.adapter`. A model type is *right* if all tests of"
        " the adapter passed, *refused* if the adapter rejects the model (the table has the"
        " reason), *wrong* if a test failed, *not built* if the script could not build a tiny"
        " model, and *apart* if the type is not a text model of its own.",
        "",
        *(
            f"- {name}: {counted[name]}"
            for name in ("right", "refused", "wrong", "not built", "apart")
        ),
        "",
        "## Right",
        "",
        ", ".join(f"`{kind}`" for kind in right),
    ]
    for name in ("wrong", "refused", "not built", "apart"):
        rows = [
            f"| `{kind}` | {why} |" for kind, (outcome, why) in found.items() if outcome == name
        ]
        lines += ["", f"## {name.capitalize()}", "", "| type | why |", "| --- | --- |", *rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", help="only these, and no page")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    kinds = given.types or model_types()
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(given.workers) as pool:
        found: dict[str, tuple[str, str]] = {}
        for kind, outcome in zip(kinds, pool.map(isolated, kinds), strict=True):
            found[kind] = outcome
            print(f"{outcome[0]:9} {kind}: {outcome[1]}", flush=True)
    print(dict(Counter(outcome for outcome, _ in found.values())))
    if not given.types:
        PAGE.write_text(page(found, datetime.date.today().isoformat()), "utf-8")
    if any(outcome == "wrong" for outcome, _ in found.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
