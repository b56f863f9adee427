"""Qwen-VL and GLM-V: M-RoPE over time, height and width; the axes are in blocks or interleaved."""

from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.rope_settings import rotations

SECTIONS = {  # pairs of each axis, and whether the axes are interleaved
    ((16, 24, 24), False): "qwen2_vl_text qwen2_5_vl_text qwen2_5_omni_text qwen2_5_omni_talker"
    " paddleocr_vl_text",
    ((8, 12, 12), False): "glm4v_text glm4v_moe_text glm_image_text glm_ocr_text",
    ((24, 20, 20), True): "qwen3_vl_text qwen3_vl_moe_text qwen3_omni_moe_text cosmos3_edge_text"
    " qwen3_omni_moe_talker_text",
}
MODELS = " ".join(SECTIONS.values())


def layers(config: Config) -> list[Layer]:
    """Return layers with the config's `mrope_section` or, if missing, the class's default."""
    name = config.family.name
    axes = next(axes for axes, names in SECTIONS.items() if name in names.split())
    return stack(config, encode=rotations(config, *axes))
