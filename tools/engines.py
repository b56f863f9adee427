"""Check RoPE in other libraries on published configs, and write vectors/engines.md.

    pip install --no-deps rotary-embedding-torch x-transformers torchtune torchao mlx mlx-cpu \
        mlx-lm einops einx loguru && python tools/engines.py

Each program computes the rotation of every published model that it offers to compute. A program
that reorders the channels of the weights when it loads them is held against its own order.
"""

import importlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from posenc.core.frequencies import Layout
from posenc.lab.vectors.against import against
from posenc.models import published
from posenc.models.config import specify
from posenc.models.config.spec import Rotary

PAGE = Path(__file__).parent.parent / "examples/vectors/engines.md"
HEAD = """# Programs held against published models

Written by `python tools/engines.py`. Each program's own rotation was tested by
`posenc vectors --against` on the config of each published model that the program can build, at
positions up to twice the context, or within the context where θ depends on the length. ✓ means
no fault, with the largest error of a pair of length 1: it is that of angles in float32, and grows
with the context. Not run: fla and vLLM, which
need a GPU, and llama.cpp, whose package has to be compiled.
"""
Apply = Callable[..., Any]
Built = tuple[Apply, Layout | None]
# The cause of a finding, by program and model, in the versions of the table
WHY: Mapping[tuple[str, str], str] = {
    ("mlx-lm", "gpt-oss-20b/120b"): "`truncate` is not read: `models/rope_utils.py`, lines 150-153",
    ("mlx-lm", "Phi-3.5-mini-instruct"): "the key must be in `rope_scaling`, where this config"
    " has it outside: `models/rope_utils.py`",
    ("mlx-lm", "Phi-3-vision-128k-instruct"): 'the old name "su": `models/rope_utils.py`',
    ("transformers", "Phi-3-vision-128k-instruct"): "the config states no length of training",
}


def of_transformers(name: str, config: dict[str, Any], rotary: Rotary) -> Built:
    """Return the rotation that transformers applies in the model's own code."""
    kind = config["model_type"]
    values = transformers.AutoConfig.for_model(**config)  # type: ignore
    folder = type(values).__module__.rpartition(".")[0]
    file = importlib.import_module(f"{folder}.modeling_{folder.rpartition('.')[2]}")
    classes = (
        cls
        for name, cls in vars(file).items()
        if name.endswith("RotaryEmbedding") and "Vision" not in name
    )
    if (cls := next(classes, None)) is None:
        raise NotImplementedError
    table = cls(values)
    layered = "layer_type" in inspect.signature(cls.forward).parameters
    named = {"layer_type": "full_attention"} if layered else {}
    turn = getattr(file, "apply_rotary_pos_emb", None)
    if kind.startswith("deepseek_v3"):
        turn = file.apply_rotary_pos_emb_interleave
    start = (rotary.dim - rotary.turned) * rotary.trailing
    stop = start + rotary.turned

    def apply(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        made = table(q, positions.movedim(-1, 0) if positions.ndim == 3 else positions, **named)
        a, b = (x[..., start:stop] for x in (q, k))
        if isinstance(made, Tensor):
            if kind == "deepseek_v2":
                a, b = file.apply_rotary_emb(a, b, made)
            else:
                a, b = file.apply_rotary_emb(a.transpose(1, 2), b.transpose(1, 2), made)
                a, b = a.transpose(1, 2), b.transpose(1, 2)
        elif hasattr(file, "apply_multimodal_rotary_pos_emb"):
            sections = values.rope_parameters["mrope_section"]
            return file.apply_multimodal_rotary_pos_emb(q, k, *made, sections)
        else:
            assert turn is not None
            a, b = turn(a, b, *made)
        return [
            torch.cat([x[..., :start], part, x[..., stop:]], -1) for x, part in ((q, a), (k, b))
        ]

    return apply, None


def of_torchtune(name: str, config: dict[str, Any], rotary: Rotary) -> Built:
    """Return torchtune's rotation, whose pairs are adjacent channels."""
    if rotary.turned < rotary.dim or rotary.method not in ("default", "llama3") or rotary.sections:
        raise NotImplementedError
    from torchtune.models.llama3_1 import Llama3ScaledRoPE  # type: ignore
    from torchtune.modules import RotaryPositionalEmbeddings  # type: ignore

    longest = 2 * config.get("max_position_embeddings", 4096) + 8
    if longest > 2**20:  # its table of all positions would not fit into memory
        raise NotImplementedError
    if rotary.method == "llama3":
        settings = config.get("rope_scaling") or config["rope_parameters"]
        module = Llama3ScaledRoPE(
            rotary.dim, longest, int(rotary.base), settings["factor"], settings["low_freq_factor"],
            settings["high_freq_factor"], settings["original_max_position_embeddings"],
        )  # fmt: skip
    else:
        module = RotaryPositionalEmbeddings(rotary.dim, longest, int(rotary.base))

    def apply(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        return [module(x.transpose(1, 2), input_pos=positions).transpose(1, 2) for x in (q, k)]

    return apply, "interleaved"


def of_x_transformers(name: str, config: dict[str, Any], rotary: Rotary) -> Built:
    """Return the rotation of x-transformers, whose pairs are adjacent channels."""
    if rotary.method not in ("default", "linear") or rotary.sections or rotary.trailing:
        raise NotImplementedError
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb  # type: ignore

    module = RotaryEmbedding(
        rotary.turned, interpolation_factor=rotary.factor, base=int(rotary.base)
    )

    def apply(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        freqs, scale = module(positions)
        return [apply_rotary_pos_emb(x, freqs, scale) for x in (q, k)]

    return apply, "interleaved"


def of_rotary_embedding_torch(name: str, config: dict[str, Any], rotary: Rotary) -> Built:
    """Return the rotation of rotary-embedding-torch, whose pairs are adjacent channels."""
    if rotary.method not in ("default", "linear") or rotary.sections or rotary.trailing:
        raise NotImplementedError
    from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb  # type: ignore

    module = RotaryEmbedding(
        rotary.turned, theta=rotary.base, interpolate_factor=rotary.factor, cache_if_possible=False
    )

    def apply(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        freqs = module(positions.float() / rotary.factor)[:, None]
        return [apply_rotary_emb(freqs, x) for x in (q, k)]

    return apply, "interleaved"


def of_mlx_lm(name: str, config: dict[str, Any], rotary: Rotary) -> Built:
    """Return the rotation that mlx-lm builds for the config, one token at a time."""
    if rotary.sections or rotary.trailing:
        raise NotImplementedError
    import mlx.core as mx  # type: ignore
    from mlx_lm.models.rope_utils import initialize_rope  # type: ignore

    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if isinstance(scaling, dict) and "full_attention" in scaling:
        scaling = scaling["full_attention"]
    module = initialize_rope(
        rotary.turned,
        rotary.base,
        rotary.layout == "interleaved",
        scaling,
        config.get("max_position_embeddings"),
    )

    def apply(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        return [turned(x, positions) for x in (q, k)]

    def turned(x: Tensor, positions: Tensor) -> Tensor:
        out = torch.empty_like(x)
        for b, row in enumerate(positions.tolist()):
            for t, position in enumerate(row):
                part = mx.array(x[b : b + 1, :, t : t + 1].numpy())
                out[b, :, t] = torch.tensor(np.array(module(part, offset=position)))[0, :, 0]
        return out

    return apply, None


PROGRAMS: Mapping[str, Callable[..., Built]] = {
    "transformers": of_transformers,
    "torchtune": of_torchtune,
    "x-transformers": of_x_transformers,
    "rotary-embedding-torch": of_rotary_embedding_torch,
    "mlx-lm": of_mlx_lm,
}


def cells(program: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each published model, and the test result of one library."""
    for name, config in published.configs().items():
        spec = specify(config, name).text_stack
        layers = [*(layer for layer in spec.layers if layer.window is None), *spec.layers]
        rotary = next(one.encoding for one in layers if isinstance(one.encoding, Rotary))
        why = WHY.get((program, name), "")
        yield name, f"{_cell(program, name, config, rotary)}{f' ({why})' if why else ''}"


def _cell(program: str, name: str, config: Mapping[str, Any], rotary: Rotary) -> str:
    """Return the test result of one library's rotation on one model's config."""
    try:
        apply, layout = PROGRAMS[program](name, json.loads(json.dumps(config)), rotary)
        verdict = against(apply, config, layout=layout)
    except NotImplementedError:
        return ""
    except Exception as error:
        return f"not run: {type(error).__name__}: {' '.join(str(error).split()):.120}"
    found = "; ".join(f"✗ {finding.name}" for finding in verdict.findings)
    return found or f"✓ {verdict.error:.1g}{', reordered' if verdict.notes else ''}"


def main() -> None:
    torch.set_grad_enabled(False)
    found = {program: dict(cells(program)) for program in PROGRAMS}
    heads = [f"{program} {version(program)}" for program in PROGRAMS]
    rows = [["model", *heads], ["---"] * (1 + len(heads))]
    rows += [
        [name, *(found[program][name] for program in PROGRAMS)] for name in published.configs()
    ]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    PAGE.write_text(f"{HEAD}\n{table}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
