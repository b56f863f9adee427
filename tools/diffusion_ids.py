"""Record the position ids of diffusion models from diffusers for tests/positions/test_diffusion.py.

    pip install --no-deps diffusers && python tools/diffusion_ids.py

diffusers is 60 MB and no peer of any other test, so its ids are recorded. Where a model keeps
angles in the place of ids, the ids are those of the slowest pair of each axis, divided by its θ.
"""

import json
import random
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import diffusers  # type: ignore
import torch
from torch import Tensor

DATA = Path(__file__).parent.parent / "tests/data/diffusion_positions.json"
CASES = 50


def main() -> None:
    torch.set_grad_enabled(False)
    found = {name: [record(name, seed) for seed in range(CASES)] for name in MODELS}
    source = f"huggingface/diffusers, tag v{diffusers.__version__}"
    rows = ",\n".join(
        f" {json.dumps(name)}: [\n  " + ",\n  ".join(map(compact, cases)) + "]"
        for name, cases in found.items()
    )
    DATA.write_text(f'{{"source": {json.dumps(source)}, "cases": {{\n{rows}}}}}\n', "utf-8")


def compact(case: dict[str, Any]) -> str:
    return json.dumps(case, separators=(",", ":"))


def record(name: str, seed: int) -> dict[str, Any]:
    draw = random.Random(f"{name} {seed}")
    video = name in ("Wan", "HunyuanVideo", "CogVideoX", "CogVideoX 1.5", "LTX", "Qwen-Image")
    grid = [draw.randint(1, 3) if video else 1, draw.randint(1, 5), draw.randint(1, 5)]
    text = 0 if name in ("Wan", "LTX") else draw.randint(0 if name != "Z-Image" else 1, 5)
    several = {"FLUX.1": 1, "FLUX.2": 2, "Qwen-Image": 2}.get(name, 0)
    references = [
        [1, draw.randint(1, 4), draw.randint(1, 4)] for _ in range(draw.randint(0, several))
    ]
    rate = draw.choice([24, 25, 30]) if name == "LTX" else None
    ids = MODELS[name](text, grid, references, rate)
    whole = ids.double().round(decimals=6)
    numbers = whole.long() if whole.equal(whole.round()) else whole
    case = {"text": text, "grid": grid, "references": references, "rate": rate}
    return {key: value for key, value in case.items() if value} | {"ids": numbers.tolist()}


def flux(text: int, grid: list[int], references: list[list[int]], rate: Any) -> Tensor:
    pipeline = diffusers.FluxKontextPipeline

    def ids(h: int, w: int) -> Tensor:
        return pipeline._prepare_latent_image_ids(1, h, w, "cpu", torch.float32)

    pictures = [ids(*grid[1:])]
    for _, h, w in references:
        pictures.append(ids(h, w))
        pictures[-1][..., 0] = 1
    return torch.cat([torch.zeros(text, 3), *pictures])


def flux2(text: int, grid: list[int], references: list[list[int]], rate: Any) -> Tensor:
    pipeline = diffusers.Flux2Pipeline
    parts = [pipeline._prepare_text_ids(torch.zeros(1, text, 1))[0]]
    parts += [pipeline._prepare_latent_ids(torch.zeros(1, 1, *grid[1:]))[0]]
    latents = [torch.zeros(1, 1, h, w) for _, h, w in references]
    parts += [pipeline._prepare_image_ids(latents)[0]] if latents else []
    return torch.cat(parts)


def qwen_image(text: int, grid: list[int], references: list[list[int]], rate: Any) -> Tensor:
    module = import_module("diffusers.models.transformers.transformer_qwenimage")
    axes = [16, 56, 56]
    rope = module.QwenEmbedRope(10000, axes, scale_rope=True)
    picture, words = rope([[tuple(one) for one in [grid, *references]]], "cpu", text)
    angles = torch.cat([words, picture]).angle()
    return by_slowest(angles, axes, 10_000)


def z_image(text: int, grid: list[int], references: list[list[int]], rate: Any) -> Tensor:
    cls = import_module(
        "diffusers.models.transformers.transformer_z_image"
    ).ZImageTransformer2DModel
    names = ("create_coordinate_grid", "_patchify_image", "_pad_with_ids")
    model = SimpleNamespace()
    for name in names:
        setattr(model, name, vars(cls)[name].__get__(model))
    picture, caption = torch.zeros(1, *grid), torch.zeros(text, 1)
    _, _, _, cells, words, _, _ = cls.patchify_and_embed(model, [picture], [caption], 1, 1)
    # The ids of a caption count its filling, and then have those of the filling once more
    return torch.cat([cells[0], words[0][: len(words[0]) - -text % 32]])


def wan(text: int, grid: list[int], references: list[list[int]], rate: Any) -> Tensor:
    module = import_module("diffusers.models.transformers.transformer_wan")
    rope = module.WanRotaryPosEmbed(128, (1, 1, 1), 64)
    cos, sin = (table.reshape(-1, 128)[:, ::2] for table in rope(torch.zeros(1, 1, *grid)))
    return by_slowest(torch.atan2(sin, cos), [44, 42, 42], 10_000)


def hunyuan_video(text: int, grid: list[int], references: list[list[int]], rate: Any) -> Tensor:
    module = import_module("diffusers.models.transformers.transformer_hunyuan_video")
    axes = [16, 56, 56]
    rope = module.HunyuanVideoRotaryPosEmbed(1, 1, axes)
    cos, sin = (table[:, ::2] for table in rope(torch.zeros(1, 1, *grid)))
    ids = by_slowest(torch.atan2(sin, cos), axes, 256)
    return torch.cat([ids, torch.zeros(text, 3)])  # the text is not rotated


def cogvideox(text: int, grid: list[int], references: list[list[int]], rate: Any) -> Tensor:
    return cogvideo(text, grid, (60, 90), None)


def cogvideox_1_5(text: int, grid: list[int], references: list[list[int]], rate: Any) -> Tensor:
    return cogvideo(text, grid, (300, 300), 2)


def cogvideo(text: int, grid: list[int], sizes: tuple[int, int], frames: int | None) -> Tensor:
    config = SimpleNamespace(patch_size=2, patch_size_t=frames, attention_head_dim=64)
    config.sample_height, config.sample_width = sizes
    pipeline = SimpleNamespace(vae_scale_factor_spatial=8)
    pipeline.transformer = SimpleNamespace(config=config)
    t, h, w = grid
    cos, sin = diffusers.CogVideoXPipeline._prepare_rotary_positional_embeddings(
        pipeline, h * 16, w * 16, t * (frames or 1), "cpu"
    )
    ids = by_slowest(torch.atan2(sin[:, ::2], cos[:, ::2]), [16, 24, 24], 10_000)
    return torch.cat([torch.zeros(text, 3), ids])  # the text is not rotated


def ltx(text: int, grid: list[int], references: list[list[int]], rate: Any) -> Tensor:
    module = import_module("diffusers.models.transformers.transformer_ltx")
    rope = module.LTXVideoRotaryPosEmbed(12)
    cos, sin = (table[0, :, ::2] for table in rope(torch.zeros(1, 1), *grid, (8 / rate, 32, 32)))
    return torch.atan2(sin, cos)[:, :3] / (torch.pi / 2)


def by_slowest(angles: Tensor, channels: list[int], base: int) -> Tensor:
    """Recover each axis's positions from the angles of its slowest rotary pair, divided by θ."""
    parts = angles.double().split([size // 2 for size in channels], -1)
    last = [part[:, -1] / base ** (2 / n - 1) for part, n in zip(parts, channels, strict=True)]
    ids = torch.stack(last, -1)
    # The table is kept in float32
    near = (ids - ids.round()).abs() < 1e-3
    return torch.where(near, ids.round(), ids)


MODELS = {
    "FLUX.1": flux,
    "FLUX.2": flux2,
    "Qwen-Image": qwen_image,
    "Z-Image": z_image,
    "Wan": wan,
    "HunyuanVideo": hunyuan_video,
    "CogVideoX": cogvideox,
    "CogVideoX 1.5": cogvideox_1_5,
    "LTX": ltx,
}

if __name__ == "__main__":
    main()
