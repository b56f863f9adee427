"""Describe the rule by which a model numbers the tokens of images, video and audio."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from posenc.positions.multimodal import multimodal
from posenc.positions.rules import RULES, MultimodalRule, rule_of

LARGE = 28  # rows and columns of tokens of an image of 784 × 784 pixels in Qwen2-VL


def numbering(values: Mapping[str, Any]) -> list[str]:
    """Return sentences about the position ids of a config's model; [] if no rule is known."""
    if str(values.get("model_type")).removesuffix("_thinker") not in RULES:
        return []
    try:
        rule = rule_of(values)
    except (TypeError, ValueError) as error:
        return [f"its settings for images cannot be read: {error}".removesuffix(".")]
    sentences = [
        f"text, images and video are numbered on the axes ({', '.join(rule.axes)}) by the rule"
        f" {rule.name!r} of `posenc.positions.multimodal`"
    ]
    sentences += [rule.note.removesuffix(".")] if rule.note else []
    if rule.canvas:
        return sentences
    ids, delta = _pictured(rule, words=2, side=2)
    points = " ".join(f"({', '.join(f'{n:g}' for n in point)})" for point in ids[0].tolist())
    sentences.append(
        f"example: 2 tokens of text, an image of 2 × 2 tokens, 1 token of text: {points}; delta"
        f" {delta.item():g}"
    )
    far = abs(_pictured(rule, words=1, side=LARGE)[1].item())
    if far:
        sentences.append(
            "decoding adds delta to the number of tokens: without it, tokens generated after an"
            f" image of {LARGE} × {LARGE} tokens are {far:,.0f} positions too far from those"
            " before, and each further image adds to that"
        )
    return sentences


def _pictured(rule: MultimodalRule, words: int, side: int) -> tuple[Tensor, Tensor]:
    """Return the result of `multimodal`, (ids, delta), for a text with a square image."""
    kinds = torch.tensor([[0] * words + [1] * side * (side + rule.newline) + [0]])
    return multimodal(kinds, rule, images=[(1, side * rule.merge, side * rule.merge)])
