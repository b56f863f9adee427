"""Words of the five texts against the catalogue and the glossary, and its places against files."""

from collections import Counter
from pathlib import Path

import pytest

from posenc.support import glossary, names

ROOT = Path(__file__).parents[2]
SLUGS = {names.normalise(slug) for slug in names.cards()}
PHRASES = """
permutation invariant, shuffle test, heat map, integer, binary, sine, linear frequencies,
wavelength, relative, rotary, rotation matrix,
maximum sequence length, generalize, bounded, uniqueness, symmetry, smoothness, clocks, group,
content-content, four terms, fixed frequency, random ids, T5, DeBERTa, ALiBi, wavelet,
low precision, n-dimensional, images, brain scans, decode, embedding, loss, RoFormer, GPT-2,
Mistral, DeepSeek, explorer, demo, efficient, Euler, multiplicative, signal-to-noise, unit circle,
verb, the pig, NoPE, rotary positional encoding, relative position, absolute,
sinusoidal positional encoding, fourier, learned, transformer-xl, shaw, t5 bias,
attention with linear biases, ntk, position interpolation, longrope, cope, no positional encoding,
normalised, random, p-rope, 2d, axial, temperature, vaswani, fire, fox, dual chunk, pope,
self-extend, sandwich, interpolate, torus, GLUE, translation invariance, monotone, learnable,
rotary position embedding, relative positional encoding, T5 relative bias, yarn, NoPE layers,
long-term decay, three apart, key cache, context length, sampling,
bag of words, self-attention, attention heads, integer position encoding, binary position encoding,
sinusoidal encoding, learned embeddings, learned position embeddings, fourier solution, phase shift,
unique fingerprint, linear transformability, linear transformation, angle addition, linear relation,
base wavelength, max_seq_len, lookup table, pairwise relationships, multi-scale, angular frequency,
geometric progression, dot product, similarity, deterministic, extensible to multiple dimensions,
n dimensions, brain scan, complex number, bit flipping, time signal, concatenate, concatenation,
dropout, softmax, attention weights, query, key, value, norm, relative distance, Llama 3.2,
periodic, RNN, proximity, hierarchical, block diagonal, orthogonal, element-wise, dog bites man,
the sun rises in the east, random embeddings, multimodal, polluting, extrapolate, sparse matrix,
trigonometric, collision, ambiguity, weight matrix, second hand, hour hand, convergence, memorize,
position embeddings, positional embeddings, tokenizer, language model, bert, gemma, kazemnejad,
Su et al., press, raffel, content-position, position-position, position-content, dimensions,
interference, disentangled, quantized, get_encoding, why 10000, a man threw, big dog, offset,
absolute + relative, structural attention patterns, verb-object pairs, syntax,
sentence boundaries, semantic information, embeddings, rotation, angle, magnitude,
signatures, vectorized, GPT-3, position similarity, encoding pattern, locality bias,
multi-resolution, torus manifold, incommensurate frequencies, orthogonality, group structure,
norm distribution, semantic similarity, local bias, entanglement, length extrapolation,
information interference, fixed frequency spectrum, flexibility, seq2seq, order matters, clip,
content-based key vectors, pure rotations, efficient realization, MRPC, set operation,
least significant bit, most significant bit, jumpy, discrete, 2D pairs, coordinate,
signal processing, low-precision arithmetic, vanishing gradients, quantisation, unique encoding,
deterministic process, multiple dimensions, sine and cosine, why sine and cosine, why not V,
useless beyond a distance, compensate, linear scale, redundant dimensions, learned frequencies
"""
PUBLISHED = """
mrope_section, mrope_interleaved, position ids, get_rope_index, rope_deltas, axes_dims_rope,
rope_theta, scale_rope, DETR, ReRoPE, Self-Extend, grp-attn-n, dual chunk,
dual_chunk_attention_config, PoPE, RIFLEx, riflex_freq_index, Conformer, Swin, log-CPB, MViTv2,
FoPE, fope_init_factor, fope_sep_head, num_inv_freq, GRAPE, GRAPE-A, GRAPE-M, VideoRoPE, HoPE,
MHRoPE, CircleRoPE, V2PE, wav2vec 2, PEG, Inkling, d_rel, rel_extent, log_scaling_alpha, SSMax,
beam, Spiral RoPE, golden gate, PoSE, random positions, SHAPE, Abacus, RePo, DyPE, Enformer,
Borzoi, TAPA, CARoPE, SeqPE, TUPE, tAPE, LapPE, RWPE, GTA, ViT-5, spherical RoPE, LongRoPE2,
DroPE, SWAN, rope_parameters, rope_scaling, inv_freq, attention sink, sandwich, low-rank bias,
p-RoPE, M-RoPE, Selective RoPE, PaTH, LieRE, STRING, FoX, YaRN, DINOv3, Qwen2-VL, FLUX.1, FLUX.2,
Qwen-Image, Z-Image, Wan, GRAPE-AP, M-RoPE-Interleave, ERNIE-VL, XDRoPE, chunk_size, local_size,
identify_k, FlashBias, PVT v2, Gemma 4, Llama 4, delta, attention_factor, beta_fast, mscale,
truncate, low_freq_factor, short_factor, alpha, DynamicNTK-alpha, spatial_first, Multimodal-RoPEs,
MAE, SAM 2, PP-DocLayout, DiT, Remapped, Qwen2.5-1M, Qwen3-2507, VideoX-Fun,
ComfyUI-WanVideoWrapper, Parakeet, Seamless, Nemotron ASR, Gemma 3n, CPB, MViT, ViTDet, SAM,
GOT-OCR, m_nonctx, ERNIE, Circle, IL, Omni, half-lives, PyG, DGL, EasyDeL, factor, gemma4_text,
partial rotary, no_rope_layer_interval, attn_factor, LongRoPE switch, PoPE-pytorch,
lucidrains/PoPE-pytorch, x-transformers, SakanaAI/repo, OLMo-2 1B, get_rope, NTK by parts, by_parts,
sliding_window, layer_types, head_dim, qk_rope_head_dim, global_rope_theta, local_rope_theta,
position_embedding_type, relative_key, relative_attention_num_buckets, alibi_bias_max,
Qwen3-VL, mm_token_type_ids, image_grid_thw, spatial_merge_size, tokens_per_second, sections,
remapped distances, scalable softmax, max_position_embeddings, num_conv_pos_embeddings
"""
QUESTIONS = """
half or interleaved, convert weights, packed position ids, cu_seqlens, left padding, resample, ViT,
DINO, BERT, RoBERTa, Whisper, flash attention, SDPA, flex attention, learned biases, gradient,
dynamic NTK with cached keys, cached keys, rope_deltas, interleaved M-RoPE, 2-D RoPE, 3-D RoPE,
video, NoPE layers, GGUF permutation, bf16 phase, meta, to_empty, mscale, cross-attention, Swin,
CoPE, recompiles, export, torch.compile, eviction, re-rotate, attention maps, dropout, softcap,
sinks, Gemma 4
"""
NAMES = [" ".join(name.split()) for name in f"{PUBLISHED},{QUESTIONS}".split(",")]
WORDS = ["10,000", *(" ".join(word.split()) for word in PHRASES.split(","))]


@pytest.mark.parametrize("word", WORDS)
def test_each_word_of_the_five_texts_leads_somewhere(word):
    """The word leads to an encoding, or to a term that names its place."""
    assert names.normalise(names.resolve_synonym(word)) in SLUGS or glossary.find(word)


@pytest.mark.parametrize("name", NAMES)
def test_each_published_name_is_answered(name):
    """The name leads to an encoding, or to a term that explains it and names the nearest one."""
    if names.normalise(names.resolve_synonym(name)) not in SLUGS:
        term = glossary.find(name)
        assert term
        assert term.where


@pytest.mark.parametrize("term", glossary.PUBLISHED, ids=lambda term: term.word)
def test_a_published_name_says_whether_posenc_has_it(term):
    """The first word of `here` is yes, no, or in part."""
    assert term.here.startswith(("Yes", "No", "In part"))


def test_a_word_leads_to_one_place():
    said = [word for term in glossary.TERMS for word in (term.word, *term.also)]
    assert [word for word, n in Counter(map(names.normalise, said)).items() if n > 1] == []
    assert [word for word in said if names.normalise(names.resolve_synonym(word)) in SLUGS] == []


COMMANDS = {"show", "list", "explore", "extend", "inspect"}  # `tests/commands` tries each


@pytest.mark.repository
@pytest.mark.parametrize("term", glossary.TERMS, ids=lambda term: term.word)
def test_each_place_is_there(term):
    """A file of the repository, or a command that has a help."""
    if not term.where.startswith("posenc "):
        assert (ROOT / term.where).is_file()
        return
    command, *rest = term.where.split()[1:]
    assert command in COMMANDS
    assert command != "show" or names.normalise(rest[0]) in SLUGS


@pytest.mark.repository
def test_the_pages_are_the_glossary():
    assert (ROOT / "docs/glossary.md").read_text("utf-8") == glossary.page()
    assert (ROOT / "docs/names.md").read_text("utf-8") == glossary.names_page()
