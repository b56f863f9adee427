"""Position ids of pictures, video and sound against `get_rope_index` of every folder of
transformers that defines it, and against lists written by hand.
"""

import importlib
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from posenc.positions import MultimodalRule, multimodal
from posenc.positions.rules import rule_of

MODELS = Path(transformers.__file__).parent / "models"
FOLDERS = sorted(
    file.parent.name
    for file in MODELS.glob("*/modeling_*.py")
    if "def get_rope_index" in file.read_text("utf-8")
)
SPECIAL = {"image_token_id": 1, "video_token_id": 2, "audio_token_id": 3}
SPECIAL |= {"vision_start_token_id": 4, "audio_start_token_id": 5}
SPECIAL |= {"image_start_id": 21, "image_end_id": 22, "newline_id": 25}
SPECIAL |= {"slice_start_id": 23, "slice_end_id": 24}
SPECIAL |= {"image_start_token_id": 6, "image_end_token_id": 7}
WORD = 9
HELPERS = ("get_vision_position_ids", "get_llm_pos_ids_for_vision", "get_chunked_index")
HELPERS += ("_group_visual_frames", "_frame_end_idx")


@pytest.mark.parametrize("folder", FOLDERS)
def test_random_texts_are_numbered_as_by_the_model(folder: str):
    for seed in range(30):
        compare(folder, seed)


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_five_hundred_texts_are_numbered_as_by_the_model(folder: str):
    for seed in range(30, 530):
        compare(folder, seed)


GROUP = [0, 0, 1, 1, 1, 1, 1, 1, 0]  # two tokens of text, a picture of 2 × 3 tokens, one of text


def test_a_picture_of_a_text_is_numbered_as_on_paper():
    """Qwen2-VL, arXiv:2409.12191, figure 3, in a smaller picture, written out by hand."""
    ids, delta = multimodal(torch.tensor([GROUP]), "qwen2_vl", images=[(1, 4, 6)])
    expected = [[0] * 3, [1] * 3]
    expected += [[2, row, column] for row in (2, 3) for column in (2, 3, 4)]
    assert ids[0].tolist() == [*expected, [5] * 3]
    assert delta.tolist() == [5 + 1 - 9]


def test_decoding_goes_on_at_the_count_of_tokens_and_delta():
    """The ids of a text and of the same text with two more tokens."""
    ids, delta = multimodal(torch.tensor([GROUP]), "qwen2_vl", images=[(1, 4, 6)])
    longer, _ = multimodal(torch.tensor([[*GROUP, 0, 0]]), "qwen2_vl", images=[(1, 4, 6)])
    assert longer[:, : len(GROUP)].equal(ids)
    assert longer[0, len(GROUP) :, 0].tolist() == [len(GROUP) + int(delta[0]) + i for i in (0, 1)]


def test_padding_changes_no_id_of_the_text():
    mask = torch.tensor([[0] * 3 + [1] * len(GROUP)])
    padded = torch.tensor([[0] * 3 + GROUP])
    ids, delta = multimodal(padded, "qwen2_vl", images=[(1, 4, 6)], mask=mask)
    alone, expected = multimodal(torch.tensor([GROUP]), "qwen2_vl", images=[(1, 4, 6)])
    assert ids[:, 3:].equal(alone)
    assert delta.equal(expected)


def test_a_changed_rule_numbers_long_videos_as_transformers_4_does():
    """One after the largest id, 4 + 1, where the rule of transformers 5 goes on at 0 + 1."""
    kinds = torch.tensor([[2] * 5 + [0]])
    rule = replace(rule_of("qwen2_vl"), after="last")
    assert multimodal(kinds, rule, videos=[(5, 2, 2)])[0][0, -1].tolist() == [5] * 3
    assert multimodal(kinds, "qwen2_vl", videos=[(5, 2, 2)])[0][0, -1].tolist() == [1] * 3


def test_a_run_may_hold_several_pictures_as_those_that_glm_image_draws():
    """The ids by which GLM-Image decodes: a small picture, a large one, and the end."""
    config = config_of("glm_image")
    cls = importlib.import_module("transformers.models.glm_image.modeling_glm_image").GlmImageModel
    for name in ("image_start_token_id", "image_end_token_id"):
        setattr(config, name, SPECIAL[name])
    model = SimpleNamespace(config=config)
    model.get_vision_position_ids = cls.get_vision_position_ids.__get__(model)
    large, small = (1, 4, 3), (1, 2, 2)
    prompt = torch.tensor([[WORD, WORD, SPECIAL["image_start_token_id"]]])
    cls.get_rope_index(model, prompt, torch.tensor([large, small]), torch.tensor([2]))
    kinds = torch.tensor([[0, 0, 0, *[1] * (4 + 12), 0]])
    ids, _ = multimodal(kinds, "glm_image", images=[small, large])
    torch.testing.assert_close(ids[:, 3:].mT, model._cached_decode_position_ids)


def test_ids_stay_on_the_device_of_the_kinds_and_take_the_dtype_of_the_rule():
    kinds = torch.tensor([GROUP], dtype=torch.int32)
    assert multimodal(kinds, "qwen3_vl", images=[(1, 4, 6)])[0].dtype == torch.int64
    ids, delta = multimodal(kinds, "qwen3_omni_moe", images=[(1, 4, 6)])
    assert ids.dtype == delta.dtype == torch.float32


def test_a_text_of_padding_alone_has_the_ids_of_padding():
    ids, delta = multimodal(torch.zeros(1, 2, dtype=torch.long), "qwen2_vl", mask=torch.zeros(1, 2))
    assert ids.unique().tolist() == [0]
    assert delta.tolist() == [0]


@pytest.mark.parametrize("kinds", [[0, 1], torch.zeros(3), torch.zeros(3, dtype=torch.long)])
def test_kinds_are_whole_numbers_of_a_batch(kinds: Any):
    with pytest.raises(TypeError, match="`kinds`"):
        multimodal(kinds, "qwen2_vl")


def compare(folder: str, seed: int) -> None:
    """Hold ids and delta of one random batch against the model's own function."""
    draw = random.Random(seed)
    config = configured(folder, draw)
    batch = Batch(config, draw)
    expected, delta = asked(folder, config, batch)
    ids, ours = multimodal(
        batch.kinds,
        config,
        images=batch.images,
        videos=batch.videos,
        seconds=batch.seconds if rule_of(config).per_second else None,
        mask=batch.mask,
    )
    expected = expected.movedim(0, -1)
    if not batch.images and not batch.videos and batch.mask is not None:
        # Without pictures Qwen3-Omni pads with 1 in the place of 0
        ids, expected = ids[batch.mask.bool()], expected[batch.mask.bool()]
    torch.testing.assert_close(ids, expected, msg=lambda m: f"seed {seed}: {m}")
    torch.testing.assert_close(ours, delta.flatten(), msg=lambda m: f"seed {seed}: {m}")


@cache
def config_of(folder: str) -> Any:
    return transformers.AutoConfig.for_model(folder)


def configured(folder: str, draw: random.Random) -> Any:
    """A config of the model's class with other numbers than its own, all set anew."""
    config = config_of(folder)
    inner = getattr(config, "thinker_config", config)
    vision = inner.vision_config
    if hasattr(vision, "spatial_merge_size") and folder != "glm_image":
        vision.spatial_merge_size = draw.choice([1, 2])
    if hasattr(vision, "tokens_per_second"):
        vision.tokens_per_second = draw.choice([1, 2, 4, 25])
    if hasattr(inner, "position_id_per_seconds"):
        inner.position_id_per_seconds = draw.choice([13, 25])
    if folder == "minicpmv4_7":
        config.downsample_mode = draw.choice(["4x", "16x"])
    if folder == "hunyuan_vl":
        sections = draw.choice([[16, 24, 24], [16, 16, 16, 16], [8, 8, 16, 16, 16]])
        config.text_config.rope_parameters = {"rope_type": "default", "mrope_section": sections}
    return config


class Batch:
    """Random texts, the first of several lengths, with their kinds and ids of tokens."""

    def __init__(self, config: Any, draw: random.Random) -> None:
        self.rule, self.draw, self.config = rule_of(config), draw, config
        self.heard_in_video = draw.random() < 0.5
        self.images: list[tuple[int, int, int]] = []
        self.videos: list[tuple[int, int, int]] = []
        self.seconds: list[float] = []
        self.sounds: list[int] = []
        self.per_text: list[int] = []
        rows = [self.text() for _ in range(draw.randint(1, 3))]
        longest = max(map(len, rows)) + draw.choice([0, 0, 2])
        left = draw.random() < 0.5
        padded = [self.padding(row, longest, left) for row in rows]
        self.kinds, self.tokens, mask = torch.tensor(padded).unbind(-1)
        self.mask = None if bool(mask.all()) and self.may_lack_a_mask() else mask

    def may_lack_a_mask(self) -> bool:
        return not self.sounds and self.rule.name != "qwen3_omni_moe" and bool(self.images)

    def padding(self, row: list[tuple[int, int]], longest: int, left: bool) -> list[list[int]]:
        real = [[kind, token, 1] for kind, token in row]
        empty = [[0, 0, 0]] * (longest - len(row))
        return empty + real if left else real + empty

    def text(self) -> list[tuple[int, int]]:
        """Pairs of kind and token of one text."""
        before = len(self.images)
        # Without any picture Qwen-Omni counts padding, at 1, into the largest id
        parts = [self.words(self.draw.randint(2, 4))]
        for _ in range(self.draw.randint(0, 4)):
            kind = self.draw.choice([kind for kind in self.rule.kinds if 0 < kind < 4])
            parts += [{1: self.picture, 2: self.video, 3: self.sound}[kind]()]
            parts += [self.words(self.draw.randint(1, 4))]
        self.per_text.append(len(self.images) - before)
        return [pair for part in parts for pair in part]

    def words(self, tokens: int) -> list[tuple[int, int]]:
        return [(0, WORD)] * tokens

    def grid(self) -> tuple[int, int, int]:
        h, w = (self.draw.randint(1, 5) for _ in range(2))
        return 1, h * self.rule.merge, w * self.rule.merge

    def picture(self) -> list[tuple[int, int]]:
        if self.rule.canvas:
            return [pair for _ in range(self.draw.randint(1, 2)) for pair in self.frame(1)]
        self.images.append(self.grid())
        _, h, w = self.images[-1]
        columns = w // self.rule.merge + self.rule.newline
        tokens = h // self.rule.merge * columns
        tokens += 2 * (self.rule.newline and self.draw.random() < 0.5)
        start, end = (6, 7) if self.rule.name == "glm_image" else (4, WORD)
        return [(0, start), *[(1, 1)] * tokens, (0, end)]

    def video(self) -> list[tuple[int, int]]:
        if self.rule.canvas:
            return [pair for _ in range(self.draw.randint(1, 3)) for pair in self.frame(2)]
        frames = self.draw.randint(1, 6) * self.rule.merge_time
        _, h, w = self.grid()
        self.videos.append((frames, h, w))
        self.seconds.append(self.draw.choice(self.intervals()))
        tokens = h // self.rule.merge * (w // self.rule.merge)
        if self.rule.frames:
            each = [[(0, 4), *[(2, 2)] * tokens, (0, WORD)] for _ in range(frames)]
            return [pair for frame in each for pair in frame]
        tokens *= frames // self.rule.merge_time
        if 3 in self.rule.kinds and self.heard_in_video:
            sounds = self.draw.randint(1, 150)
            self.sounds.append(sounds)
            order = interleaved(self.rule, frames, tokens // frames, self.seconds[-1], sounds)
            return [(0, 4), (0, 5), *[(kind, kind) for kind in order], (0, WORD), (0, WORD)]
        return [(0, 4), *[(2, 2)] * tokens, (0, WORD)]

    def intervals(self) -> list[float]:
        """Seconds between frames, where Qwen3-Omni's order of ids is that of its processor."""
        exact = [0.5, 1.0, self.draw.random() * 2]
        return exact if self.rule.rounding == "none" else [*exact, 0.04, 0.2, 1 / 3]

    def crop(self, kind: int, grids: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
        grids.append(self.grid())
        return [(kind, kind)] * (grids[-1][1] * grids[-1][2] // self.rule.merge**2)

    def frame(self, kind: int) -> list[tuple[int, int]]:
        """A thumbnail of MiniCPM-V, at times with slices in rows."""
        grids = {1: self.images, 2: self.videos}[kind]
        pairs = [(4, 21), *self.crop(kind, grids), (4, 22)]
        rows, columns = self.draw.choice([(0, 0), (1, 1), (2, 3), (3, 1), (1, 4)])
        for row in range(rows):
            for _ in range(columns):
                pairs += [(5, 23), *self.crop(kind, grids), (4, 24)]
            pairs += [(4, 25)] * (row < rows - 1)
        return pairs + [(4, 25)] * self.draw.choice([0, 0, 1])

    def sound(self) -> list[tuple[int, int]]:
        self.sounds.append(self.draw.randint(1, 6))
        return [(0, 5), *[(3, 3)] * self.sounds[-1], (0, WORD)]


def interleaved(
    rule: MultimodalRule, frames: int, each: int, seconds: float, sounds: int
) -> list[int]:
    """The order in which the processor puts tokens of a video and of its sound."""
    rate = rule.per_second
    times = torch.arange(frames) * torch.tensor(seconds) * rate
    video = times.repeat_interleave(each)
    if rule.name == "qwen3_omni_moe":
        order, i, j = [], 0, 0
        while i < len(video) and j < sounds:
            first = bool(video[i] <= j)
            order.append(2 if first else 3)
            i, j = i + first, j + (not first)
        return order + [2] * (len(video) - i) + [3] * (sounds - j)
    module = importlib.import_module("transformers.models.qwen2_5_omni.modeling_qwen2_5_omni")
    cut = module.Qwen2_5OmniPreTrainedModelForConditionalGeneration.get_chunked_index
    chunks = [cut(None, ids, 2 * rate, 0) for ids in (video.long(), torch.arange(sounds))]
    order = []
    for number in range(max(map(len, chunks))):
        for kind, part in zip((2, 3), chunks, strict=True):
            if number < len(part):
                order += [kind] * (part[number][1] - part[number][0])
    return order


def asked(folder: str, config: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return what the folder's function returns, called on a stand-in for its model."""
    module = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    cls = next(
        cls
        for cls in vars(module).values()
        if isinstance(cls, type)
        and cls.__module__ == module.__name__
        and "get_rope_index" in vars(cls)
    )
    thinker = getattr(config, "thinker_config", config)
    for name, token in SPECIAL.items():
        setattr(thinker, name, token)
    model = SimpleNamespace(config=thinker)
    model.spatial_merge_size = getattr(thinker.vision_config, "spatial_merge_size", 0)
    for name in HELPERS:
        if name in vars(cls):
            setattr(model, name, vars(cls)[name].__get__(model))
    images = torch.tensor(batch.images) if batch.images else None
    videos = torch.tensor(batch.videos) if batch.videos else None
    mask = batch.mask
    call: Callable[..., Any] = partial(cls.get_rope_index, model, batch.tokens)
    if 3 in batch.rule.kinds:
        mask = torch.ones_like(batch.tokens) if mask is None else mask
        lengths = torch.tensor([length_of(folder, sounds, thinker) for sounds in batch.sounds])
        seconds = torch.tensor(batch.seconds)
        return call(images, videos, mask, batch.heard_in_video, lengths, seconds)
    if folder == "glm_image":
        counts = torch.tensor(batch.per_text)
        images = torch.empty(0, 3, dtype=torch.long) if images is None else images
        return call(image_grid_thw=images, images_per_sample=counts, attention_mask=mask)
    if batch.rule.canvas:
        sizes = [None if grids is None else grids[:, 1:] for grids in (images, videos)]
        return call(batch.kinds * (batch.kinds < 4), *sizes, attention_mask=mask)
    options: dict[str, Any] = {"image_grid_thw": images, "attention_mask": mask}
    if 2 in batch.rule.kinds:
        options["video_grid_thw"] = videos
    if batch.rule.per_second:
        options["second_per_grid_ts"] = torch.tensor(batch.seconds)
    return call(mm_token_type_ids=batch.kinds, **options)


def length_of(folder: str, sounds: int, config: Any) -> int:
    """Length of the features of a sound that make as many tokens."""
    if folder == "qwen2_5_omni":
        return 4 * sounds
    module = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    count, window = module._get_feat_extract_output_lengths, config.audio_config.n_window
    return next(n for n in range(1, 10**5) if int(count(torch.tensor(n), window)) == sounds)
