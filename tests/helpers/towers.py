"""Tiny vision towers of transformers, with the functions that rotate and attend recorded."""

import inspect
import re
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import CONFIG_MAPPING

from tools import watched

PATCH = 4  # pixels of a side
SIZES = {
    **dict.fromkeys(("hidden_size", "embed_dim"), 32),
    **dict.fromkeys(("num_attention_heads", "num_heads"), 2),
    **dict.fromkeys(("num_hidden_layers", "depth"), 4),
    **dict.fromkeys(("intermediate_size", "moe_intermediate_size"), 40),
    **dict(patch_size=PATCH, num_channels=3, in_channels=3, head_dim=16, out_hidden_size=32),
    **dict(num_key_value_heads=2, num_local_experts=2, num_experts_per_tok=1),
}
OWN: dict[str, dict[str, Any]] = {  # other sizes, or sizes that follow from these
    "qwen2_5_vl_vision": dict(window_size=16, fullatt_block_indexes=[1, 3]),
    "qwen2_5_omni_vision_encoder": dict(window_size=16, fullatt_block_indexes=[1, 3]),
    "exaone4_5_vision": dict(window_size=16, fullatt_block_indexes=[1, 3], num_key_value_heads=1),
    "cohere_compass_vision": dict(deepstack_visual_indexes=[]),
    "dots3_note_vision_encoder": dict(
        adapter_in_dim=32, adapter_out_dim=32, mlp_layer_types=["dense"] * 4, per_layer_config={}
    ),
    "qwen3_vl_vision": dict(deepstack_visual_indexes=[]),
    "qwen3_vl_moe_vision": dict(deepstack_visual_indexes=[]),
    "qwen3_omni_moe_vision_encoder": dict(deepstack_visual_indexes=[]),
    "lfm3_vl_vision": dict(layer_types=["conv", "full_attention"] * 2),
    "llama4_vision_model": dict(
        image_size=24,
        intermediate_size=128,
        vision_output_dim=32,
        projector_input_dim=32,
        projector_output_dim=32,
    ),
    "step3p5_vision": dict(image_size=20, max_position_embeddings=25),
    "paddleocr_vl_vision": dict(image_size=20),
    "glm4v_vision": dict(image_size=20),
    "glm4v_moe_vision": dict(image_size=20),
    "muse_glimmer_vision": dict(pos_emb_height=4, pos_emb_width=4),
    "muse_spark_vision": dict(pos_emb_height=4, pos_emb_width=4),
    "kimi_k25_vision": dict(pos_emb_height=4, pos_emb_width=4),
    "cosmos3_edge_vision": dict(num_patches=16),
    "siglip2_vision_model": dict(num_patches=16),
    "audio-spectrogram-transformer": dict(
        num_mel_bins=12, max_length=20, frequency_stride=2, time_stride=4
    ),
    "rf_detr_dinov2": dict(num_windows=1),
    "radio": dict(max_img_size=16, patch_dim=48),
    "mlcd": dict(num_key_value_groups=1),
    "mlcd_vision_model": dict(num_key_value_groups=1),
    "molmo2_vision": dict(image_size=[16, 16], num_position_embeddings=16),
    "lw_detr_vit": dict(num_windows=1),
}


@dataclass
class Calls:
    """Records of a run: queries before and after each rotation, and the calls of attention."""

    turned: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    attended: list[tuple[int, int, float]] = field(default_factory=list)  # queries, keys, scale


def tower(model_type: str, **more: Any) -> Any:
    """Return a tiny random vision tower, with a table of 16 to 25 rows if it has one."""
    kind: Any = CONFIG_MAPPING[model_type]
    usual = kind().to_dict()
    sizes = {k: v for k, v in SIZES.items() if k in usual and usual[k] is not None}
    sizes |= {k: 16 for k in ("num_position_embeddings",) if k in usual}
    sizes |= {k: 4 for k in ("posemb_grid_size",) if k in usual}
    sizes |= {k: 16 for k in ("image_size", "pretrain_image_size", "max_image_size") if k in usual}
    config = kind(**{**sizes, **OWN.get(model_type, {}), **more})
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = _class(model_type, kind)(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    return model


class _Loss:
    def __new__(cls, **_: Any) -> Any:
        return torch.nn.Identity()


def _class(model_type: str, kind: Any) -> Any:
    if model_type == "idefics_vision":
        from transformers.models.idefics.vision import IdeficsVisionTransformer

        return IdeficsVisionTransformer
    found: Any = watched.model_class(kind)
    if model_type in ("lw_detr_vit", "rf_detr_dinov2"):
        return getattr(sys.modules[found.__module__], found.__name__.replace("Encoder", "Backbone"))
    if model_type == "eomt":
        # The loss needs another package, and is not used here
        sys.modules[found.__module__].EomtLoss = _Loss  # type: ignore[attr-defined]
    return found


def given(model: Any, rows: int, columns: int) -> dict[str, Any]:
    """Return the arguments for one random image of `rows` × `columns` patches."""
    config, frames = model.config, 1
    names = inspect.signature(model.forward).parameters
    channels = getattr(config, "num_channels", None) or getattr(config, "in_channels", 3)
    depth = getattr(config, "temporal_patch_size", 1)
    grid = torch.tensor([[frames, rows, columns]])
    match config.model_type:
        case "inkling2_vision":
            merge = config.spatial_merge_size
            side, grid = PATCH * merge, grid // torch.tensor([1, merge, merge])
            return {
                "pixel_values": torch.randn(int(grid.prod()), side, side, channels),
                "image_grid_thw": grid,
            }
        case "paddleocr_vl_vision":
            pixels = torch.randn(1, rows * columns, channels, PATCH, PATCH)
            return {"pixel_values": pixels, "grid_thw": grid}
        case "kimi_k25_vision":
            pixels = torch.randn(rows * columns, channels, PATCH, PATCH)
            return {"pixel_values": pixels, "grid_thw": grid}
        case "hunyuan_vl_vision":
            pixels = torch.randn(rows * columns, channels * PATCH**2)
            return {"pixel_values": pixels, "grid_thw": grid}
        case "siglip2_vision_model":
            pixels = torch.randn(1, rows * columns, channels * PATCH**2)
            seen = torch.ones(1, rows * columns, dtype=torch.long)
            return {
                "pixel_values": pixels,
                "pixel_attention_mask": seen,
                "spatial_shapes": grid[:, 1:],
            }
        case "audio-spectrogram-transformer":
            return {"input_values": torch.randn(1, config.max_length, config.num_mel_bins)}
        case "muse_glimmer_vision" | "muse_spark_vision":
            depth = config.patch_temporal
    if "grid_thw" not in names and config.model_type != "molmo2_vision":
        found = {"pixel_values": torch.randn(1, channels, rows * PATCH, columns * PATCH)}
        if "target_sizes" in names:
            cut = found["pixel_values"].unfold(3, PATCH, PATCH).unfold(2, PATCH, PATCH)
            pixels = cut.permute(0, 1, 5, 2, 3, 4).reshape(1, channels, PATCH, -1)
            return {"pixel_values": pixels, "target_sizes": grid[:, 1:]}
        if "patch_attention_mask" in names:
            found["patch_attention_mask"] = torch.ones(1, rows, columns, dtype=torch.bool)
        if "interpolate_pos_encoding" in names:
            found["interpolate_pos_encoding"] = True
        return found
    flat = torch.randn(rows * columns, channels * depth * PATCH**2)
    pixels = "hidden_states" if "hidden_states" in names else "pixel_values"
    found = {pixels: flat, "grid_thw": grid}
    if config.model_type == "molmo2_vision":
        return {"pixel_values": flat[None]}
    if "merge_sizes" in names:
        found["merge_sizes"] = torch.ones(1, dtype=torch.long)
    return found


def recorded(model: Any, rows: int, columns: int, monkeypatch: Any) -> Calls:
    """Run a vision tower on an image; return its recorded rotations and attention calls."""
    calls, module = Calls(), sys.modules[type(model).__module__]
    for name, function in list(vars(module).items()):
        if name.endswith("eager_attention_forward"):
            monkeypatch.setattr(module, name, _attention(calls, function))
        elif inspect.isfunction(function) and watched.TURNS.search(name):
            monkeypatch.setattr(module, name, _turning(calls, function))
    with torch.no_grad():
        model(**given(model, rows, columns))
    return calls


def _turning(calls: Calls, function: Any) -> Any:
    def turning(*arguments: Any, **named: Any) -> Any:
        count = len(calls.turned)
        out = function(*arguments, **named)
        # Rotations within this function are part of this one
        del calls.turned[count:]
        first = out[0] if isinstance(out, tuple) else out
        calls.turned.append((arguments[0].squeeze(0), first.squeeze(0)))
        return out

    return turning


def _attention(calls: Calls, function: Any) -> Any:
    def attend(module: Any, q: Any, k: Any, v: Any, *rest: Any, **named: Any) -> Any:
        scale = named.get("scaling", rest[1] if len(rest) > 1 else None)
        # Llama 4 passes None, and its function divides by √d
        calls.attended.append((q.shape[2], k.shape[2], scale or q.shape[-1] ** -0.5))
        return function(module, q, k, v, *rest, **named)

    return attend


NAMED = re.compile(r"pos", re.IGNORECASE)
BLOCK = re.compile(r"(layers|layer|blocks|block|resblocks)\.\d+(\.|$)")


class _Seen(Exception):
    """Raised at a model's first layer to end the run, because only the layer's input is needed."""


def added(model: Any, elements: int, *sizes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the stored table of positions, and its effect on the input of the first layer.

    Norms before the first layer are switched off, so that the effect is a sum.
    """
    named = [
        weight
        for name, weight in model.named_parameters()
        if NAMED.search(name) and weight.numel() == elements
    ]
    (table,) = named
    first = next(m for n, m in model.named_modules() if re.search(r"(layers?|blocks?)\.0$", n))
    for name, module in model.named_modules():
        if "Norm" in type(module).__name__ and not BLOCK.search(name):
            module.forward = lambda x, *_, **__: x
    seen: list[torch.Tensor] = []

    def see(module: Any, given: Any, named: Any) -> None:
        seen.append((*given, *named.values())[0].detach().clone())
        raise _Seen

    first.register_forward_pre_hook(see, with_kwargs=True)
    arguments, stored = given(model, *sizes), table.detach().clone()
    with torch.no_grad():
        for values in (stored, torch.zeros_like(stored)):
            table.copy_(values)
            with suppress(_Seen):
                model(**arguments)
    effect = seen[0] - seen[1]
    if effect.ndim == 4 and model.config.model_type == "vitdet":
        # Layers of ViTDet have channels first
        effect = effect.movedim(1, -1)
    return stored.reshape(-1, stored.shape[-1]), effect.flatten(0, -2)
