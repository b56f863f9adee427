"""Apply the options that `extend` prints to config objects of transformers, as servers apply them.

    python tests/helpers/server_words.py   write server_words.md for the transformers installed here

The rules were read in SGLang 0.5.23 (2026-10-30: srt/utils/hf_transformers/config.py, get_config),
in vLLM 0.33.0 (2026-11-02: config/model.py, ModelConfig; transformers_utils/config.py, get_config
and patch_rope_parameters), and in SGLang of 2025, which calls `config.update`. They are restated
here. The θ and gain of a config object come from transformers' rotary module, not from posenc.
"""

import importlib.util
import json
import shlex
import warnings
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig
from transformers import PretrainedConfig as Config

from posenc.models.config import specify
from posenc.models.extend import BASE, METHODS, extended
from posenc.models.serving import serving

METHODS = (*METHODS, BASE)
FLAGS = {"vLLM": "--hf-overrides", "SGLang": "--json-model-override-args"}
ROTARY = {  # model_type -> folder, prefix of its rotary module
    "llama": ("llama", "Llama"),
    "qwen3": ("qwen3", "Qwen3"),
    "qwen3_5_text": ("qwen3_5", "Qwen3_5Text"),
    "qwen3_vl_text": ("qwen3_vl", "Qwen3VLText"),
    "gemma3_text": ("gemma3", "Gemma3"),
    "phi": ("phi", "Phi"),
    "olmo3": ("olmo3", "Olmo3"),
    "gpt_neox": ("gpt_neox", "GPTNeoX"),
    "deepseek_v3": ("deepseek_v3", "DeepseekV3"),
    "cohere_compass_text": ("cohere_compass", "CohereCompass"),
}
SMALL = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64}
SMALL |= {"num_hidden_layers": 6}
TEXTS = {
    "llama": {"max_position_embeddings": 8192, "rope_theta": 500000.0},
    "qwen3": {"max_position_embeddings": 40960, "rope_theta": 1000000.0},
    "phi": {"max_position_embeddings": 2048, "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    "gpt_neox": {"max_position_embeddings": 2048, "rotary_emb_base": 20000, "rotary_pct": 0.25},
    "gemma3_text": {
        "max_position_embeddings": 32768,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
    },
    "olmo3": {"max_position_embeddings": 8192, "rope_theta": 500000.0},
    "qwen3_5_text": {
        "max_position_embeddings": 262144,
        "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25,
        "rope_scaling": {"rope_type": "default", "mrope_section": [3, 3, 2]}
        | {"mrope_interleaved": True},
    },
    "qwen3_vl_text": {
        "max_position_embeddings": 262144,
        "rope_theta": 5000000.0,
        "rope_scaling": {"rope_type": "default", "mrope_section": [12, 10, 10]}
        | {"mrope_interleaved": True},
    },
    "deepseek_v3": {
        "max_position_embeddings": 4096,
        "rope_theta": 50000.0,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "head_dim": 64,
    },
}
NESTED = {"qwen3_5_text": "qwen3_5", "qwen3_vl_text": "qwen3_vl", "gemma3_text": "gemma3"}
NESTED |= {"llama": "llava"}


def shapes(new: bool) -> dict[str, dict]:
    """Return configs by name, spelled as in transformers 4 or 5, flat and nested in another."""
    flat = {name: SMALL | {"model_type": name} | text for name, text in TEXTS.items()}
    flat["llama, yarn already"] = flat["llama"] | {
        "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1.5}
        | {"original_max_position_embeddings": 4096}
    }
    if new:
        flat = {name: respelled(config) for name, config in flat.items()}
    inside = {
        f"{outer}({name})": {"model_type": outer, "text_config": flat[name]}
        for name, outer in NESTED.items()
    }
    return flat | inside


def respelled(config: dict) -> dict:
    """Return the config with the keys with which transformers 5 saves it."""
    old = ("rope_theta", "rope_scaling", "rope_local_base_freq", "partial_rotary_factor")
    old += ("rotary_emb_base", "rotary_pct", "sliding_window_pattern")
    loaded = AutoConfig.for_model(**deepcopy(config)).to_dict()
    types = {"layer_types": loaded["layer_types"]} if loaded.get("layer_types") else {}
    kept = {key: value for key, value in config.items() if key not in old}
    return kept | types | {"rope_parameters": loaded["rope_parameters"]}


def loaded(config: dict) -> Config:
    return AutoConfig.for_model(**deepcopy(config))


def by_update(config: Config, words: dict) -> None:
    """Set each option as an attribute of the config, as SGLang did in 2025."""
    config.update(words)


def by_sglang(config: Config, words: dict) -> None:
    """Apply options as SGLang does: update nested configs, merge rope settings, set the rest."""
    for key, value in words.items():
        now = getattr(config, key, None)
        if isinstance(now, Config) and isinstance(value, dict):
            now.update(value)
        elif key in ("rope_scaling", "rope_parameters") and isinstance(now, dict):
            setattr(config, key, {**now, **value})
        else:
            setattr(config, key, value)


def by_vllm(config: Config, words: dict) -> None:
    """Apply options as vLLM does: set plain values, complete rope settings, merge objects."""
    config.update({key: value for key, value in words.items() if not isinstance(value, dict)})
    if hasattr(config, "standardize_rope_params"):
        for part in {id(x): x for x in (config, config.get_text_config())}.values():
            if getattr(part, "rope_parameters", None):
                part.standardize_rope_params()
                part.validate_rope()
    for key, value in words.items():
        if isinstance(value, dict):
            now = getattr(config, key, None)
            merge(now, value) if isinstance(now, Config) else setattr(config, key, value)


def merge(target: Config | dict, words: dict) -> None:
    for key, value in words.items():
        now = target.get(key) if isinstance(target, dict) else getattr(target, key, None)
        if isinstance(value, dict) and (isinstance(now, dict) or hasattr(now, "__dict__")):
            merge(now, value)
        elif isinstance(target, dict):
            target[key] = value
        else:
            setattr(target, key, value)


def meaning(config: Config, to: int) -> dict[str, torch.Tensor]:
    """Return θ and gain of each rotation at `to` tokens in transformers, and the length."""
    text = config.get_text_config()
    folder, prefix = ROTARY[text.model_type]
    modeling = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    module = getattr(modeling, f"{prefix}RotaryEmbedding")(text)
    end = torch.tensor([[to - 1]])
    for label in getattr(module, "layer_types", None) or [None]:
        module(torch.zeros(1, 1, 1), end, *([label] if label else []))
    # Settings of types of layers that the model does not have are of no account
    found = {k: v.double() for k, v in module.named_buffers() if "original" not in k}
    gains = {k: v for k, v in vars(module).items() if k.endswith("attention_scaling")}
    found |= {k: torch.tensor(float(v)).double() for k, v in gains.items()}
    return found | {"length": torch.tensor(float(text.max_position_embeddings))}


def stretched(before: dict, method: str) -> tuple[dict, int]:
    text = before.get("text_config", before)
    to = 4 * text["max_position_embeddings"]
    more = {"base": 5e7} if method == BASE else {}
    return extended(deepcopy(before), to, method, **more)[0], to


def words_of(line: str) -> dict | None:
    """Return the JSON of the option in a printed command line; None if the line is a sentence."""
    words = shlex.split(line, comments=True)
    flag = next((flag for flag in FLAGS.values() if flag in words), None)
    return json.loads(words[words.index(flag) + 1]) if flag else None


def differences(before: dict, method: str, server: str, applied) -> str | None:
    """Return how printed options differ from the written config; "" if equal, None if missing."""
    after, to = stretched(before, method)
    words = words_of(serving("m", before, after, specify(after), to)[server])
    if words is None:
        return None
    config, wanted = loaded(before), meaning(loaded(after), to)
    try:
        apply(applied, config, words)
        got = meaning(config, to)
    except Exception as error:
        return type(error).__name__
    if {k: v.shape for k, v in got.items()} != {k: v.shape for k, v in wanted.items()}:
        return "other pairs"
    wrong = [k for k in wanted if not torch.allclose(got[k], wanted[k], rtol=1e-6, atol=0)]
    return "" if not wrong else "length" if wrong == ["length"] else "θ or gain"


def apply(applied, config: Config, words: dict) -> None:
    """Apply printed options to a config, without transformers 5's warning about older spelling."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`rope_scaling` is deprecated", FutureWarning)
        applied(config, words)


WAYS = {
    "vLLM 0.33": ("vLLM", by_vllm),
    "SGLang 0.5.23": ("SGLang", by_sglang),
    "config.update": ("SGLang", by_update),
}


PAGE = """# Options of servers on config objects of transformers {version}

Generated by `make servers` on {day}. A cell counts the printed options, one a method, that give
the θ, gain and length of the file that `extend` writes, of those that are printed; {wrong} do
not, with what is wrong, or raised, in parentheses. The columns are ways to apply them: as vLLM
0.33 and SGLang 0.5.23 do by their source, and by `config.update`, as SGLang did in 2025. Both
servers now need transformers 5, which `tests/models/test_serving.py` covers in the same way.
The lines that fail here are marked: those of models that turn by type of layer (Gemma 3, Olmo 3)
end in "needs transformers 5", those of nested configs for SGLang in "SGLang 0.5.23 or later".
This page is about older installations.

"""


def main() -> None:
    version, rows, wrong = transformers.__version__, [], 0
    for name, before in shapes(new=False).items():
        text = before.get("text_config", before)
        folder = ROTARY[text["model_type"]][0]
        if importlib.util.find_spec(f"transformers.models.{folder}") is None:
            rows.append(f"| {name} | {' | '.join(['not in this version'] * len(WAYS))} |")
            continue
        cells = []
        for server, applied in WAYS.values():
            said = {m: differences(before, m, server, applied) for m in tried(before)}
            bad = {m: why for m, why in said.items() if why}
            wrong += len(bad)
            lines = sum(why is not None for why in said.values())
            faults = f" ({', '.join(sorted({*bad.values()}))})" if bad else ""
            cells.append(f"{lines - len(bad)} of {lines}{faults}")
        rows.append(f"| {name} | {' | '.join(cells)} |")
    head = ("config, spelled as in transformers 4", *WAYS)
    table = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *rows]
    page = PAGE.format(version=version, wrong=wrong, day=datetime.now(UTC).date())
    page += "\n".join(table) + "\n"
    Path(__file__).parents[1].joinpath("server_words.md").write_text(page, "utf-8")


def tried(before: dict) -> tuple[str, ...]:
    """Return the extension methods that apply to a config: its own one, or all if it has none."""
    text = before.get("text_config", before)
    scaled = (text.get("rope_scaling") or text.get("rope_parameters") or {}).get("rope_type")
    return METHODS if scaled in (None, "default") else (scaled,)


if __name__ == "__main__":
    main()
