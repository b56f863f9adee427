"""Grids that contradict the kinds of tokens, their own rule, or the seconds of a video."""

from typing import Any

import pytest
import torch

from posenc.positions import multimodal

GROUP = [0, 0, 1, 1, 1, 1, 1, 1, 0]  # two tokens of text, a picture of 2 × 3 tokens, one of text
VIDEO = [2] * 4
WRONG: dict[str, tuple[list[int], dict[str, Any], tuple[str, ...]]] = {
    "too few pictures": (GROUP, {}, ("`images`", "0 sizes", "next 6 tokens")),
    "too many pictures": (
        GROUP,
        {"images": [(1, 4, 6)] * 3},
        ("`images`", "3 sizes", "tokens for 1"),
    ),
    "a larger picture": (GROUP, {"images": [(1, 4, 8)]}, ("`images`", "8 tokens", "6 tokens")),
    "a smaller picture": (GROUP, {"images": [(1, 4, 4)]}, ("`images`", "1 sizes", "next 2")),
    "merged twice": (GROUP, {"images": [(1, 2, 3)]}, ("`images`", "columns", "of 2", "3")),
    "a video as picture": (GROUP, {"images": [(2, 2, 6)]}, ("`images`", "(2, 2, 6)", "`videos`")),
    "two numbers": (GROUP, {"images": [(4, 6)]}, ("`images`", "3 numbers", "got 2")),
    "no rows": (GROUP, {"images": [(1, 0, 6)]}, ("`images`", "at least 1", "0")),
    "another kind": ([0, 3], {}, ("`kinds`", "0, 1, 2", "got 3")),
    "a short mask": ([0, 0], {"mask": torch.ones(1, 3)}, ("`mask`", "(1, 2)", "(1, 3)")),
    "seconds without need": ([0], {"seconds": [0.5]}, ("`seconds`", "None", "1 numbers")),
    "another rule": ([0], {"rule": "qwen2_vll"}, ("`rule`", "'qwen2_vll'", "'qwen2_vl'")),
    "no seconds": (
        VIDEO,
        {"rule": "qwen2_5_vl", "videos": [(1, 4, 4)]},
        ("`seconds`", "0", "1 videos"),
    ),
    "seconds of one video": (
        [*VIDEO, 0, *VIDEO],
        {"rule": "qwen2_5_vl", "videos": [(1, 4, 4)] * 2, "seconds": [1.0]},
        ("`seconds`", "1", "2 videos"),
    ),
    "video and sound": (
        [2, 3, 2],
        {"rule": "qwen2_5_omni", "videos": [(3, 2, 2)], "seconds": [1.0]},
        ("`videos`", "3 tokens", "2 tokens"),
    ),
    "a short video with sound": (
        [2, 3, 2],
        {"rule": "qwen2_5_omni", "videos": [(1, 2, 2)], "seconds": [1.0]},
        ("`videos`", "1 tokens", "2 tokens"),
    ),
    "an odd video": (
        VIDEO,
        {"rule": "ernie4_5_vl_moe", "videos": [(3, 4, 4)]},
        ("`videos`", "frames", "of 2", "3"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_contradictions_are_refused_with_both_numbers(name: str):
    kinds, arguments, words = WRONG[name]
    rule = arguments.get("rule", "qwen2_vl")
    rest = {key: value for key, value in arguments.items() if key != "rule"}
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the words are compared below
        multimodal(torch.tensor([kinds]), rule, **rest)
    for word in words:
        assert word in str(caught.value)
