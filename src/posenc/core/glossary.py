"""Words of texts on positions, each in a sentence or two, and where it is here. Needs no torch.

`posenc show WORD` answers from it, `docs/glossary.md` is made of it, and a test follows each place.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from posenc.core import names


@dataclass(frozen=True)
class Term:
    """A word, what it means, and where to see it: a command, a file of the repository, a name."""

    word: str
    means: str
    where: str
    also: tuple[str, ...] = ()


TERMS = (
    Term(
        "permutation equivariant",
        "Shuffle the tokens, and the outputs of attention without positions and without a mask are"
        " shuffled alike; none of them changes. Texts often say permutation invariant, which would"
        " be one output for all orders: that holds of a sum over the tokens alone. Under a causal"
        " mask the outputs change.",
        "examples/shuffle_test.py",
        (
            "permutation invariant",
            "permutation invariance",
            "shuffle test",
            "set",
            "word order",
            "verb",
            "permutation equivariance",
            "bag of words",
            "dog bites man",
            "man bites dog",
            "the sun rises in the east",
            "pairwise relationships",
            "RNN",
            "subject and object",
        ),
    ),
    Term(
        "same word twice",
        "Two tokens of the same word have the same vector, so without positions and without a mask"
        " attention writes the same column for both: the two dogs of a sentence cannot be told"
        " apart.",
        "examples/same_word_twice.py",
        ("the same dog", "two dogs", "which dog", "the pig"),
    ),
    Term(
        "absolute position",
        "The place of a token in its text, 0 for the first. An absolute encoding gives each place a"
        " row that is added to the embedding: sinusoidal, learned.",
        "posenc show sinusoidal",
        (
            "absolute",
            "absolute positional encoding",
            "additive",
            "embedding",
            "positional encoding",
            "positional embeddings",
            "position embeddings",
            "time signal",
            "index",
        ),
    ),
    Term(
        "relative position",
        "The distance from query to key. A relative encoding acts on scores by it: Shaw,"
        " Transformer-XL, T5, DeBERTa, ALiBi; a rotation of queries and keys comes to the same.",
        "posenc show shaw",
        (
            "relative",
            "relative positional encoding",
            "relative position encoding",
            "relative distance",
            "proximity",
            "clipping",
        ),
    ),
    Term(
        "bias",
        "A number added to the score of a query and a key by their distance, before the softmax.",
        "posenc show alibi",
        ("additive bias", "position bias", "attention bias"),
    ),
    Term(
        "multiplicative",
        "A rotation multiplies queries and keys, where rows are added to embeddings: lengths stay,"
        " and no term of position alone is mixed into what words mean.",
        "posenc show rope",
        ("multiply instead of add", "polluting", "pollute"),
    ),
    Term(
        "wavelength",
        "The tokens in which a pair of channels turns once, λ = 2π/θ: 6.28 for the fastest pair,"
        " and for the slowest up to 2π times the base.",
        "examples/wavelengths.py",
        (
            "period",
            "frequency",
            "fixed frequency",
            "linear frequencies",
            "frequencies",
            "base wavelength",
            "angular frequency",
            "multi-scale",
            "geometric progression",
            "periodic",
        ),
    ),
    Term(
        "base",
        "The number of which powers are the frequencies, θⱼ = base^(−2j/d); 10,000 in most texts,"
        " 500,000 and more in models of long texts.",
        "posenc show rope",
        ("10,000", "theta", "rope theta"),
    ),
    Term(
        "clocks",
        "Each pair of channels is a hand that turns at its own speed; together they tell the time,"
        " as the hands of a clock do.",
        "posenc explore rope",
        (
            "clock",
            "hands of a clock",
            "unit circle",
            "binary clock",
            "second hand",
            "hour hand",
            "unique fingerprint",
            "signature",
        ),
    ),
    Term(
        "torus",
        "One circle for each pair: the row of a position is a point on a torus of d/2 circles. It"
        " comes back only where all turns are whole, which for these speeds is never.",
        "examples/no_position_repeats.py",
        (
            "a chance of repeating",
            "unique",
            "uniqueness",
            "unique positions",
            "collision",
            "ambiguity",
            "phase shift",
        ),
    ),
    Term(
        "group",
        "One matrix moves every row by k tokens, PE(p + k) = M(k) PE(p), and M(a) M(b) = M(a + b):"
        " the shifts are rotations, and form a group.",
        "examples/one_matrix_moves_all.py",
        (
            "linear shift",
            "shift matrix",
            "rotation matrix",
            "one matrix",
            "linear transformation",
            "linear transformability",
            "linear relation",
            "angle addition",
            "orthogonal",
            "block diagonal",
        ),
    ),
    Term(
        "three apart",
        "One matrix between rows of positions is largest where the key is three before the query,"
        " at every place: a head can look back by a fixed number of words.",
        "examples/three_apart.py",
    ),
    Term(
        "Euler's formula",
        "exp(iα) = cos α + i sin α: a pair of channels is a complex number, and turning it is one"
        " multiplication.",
        "src/posenc/rotation/torch_kernels.py",
        ("euler", "complex numbers", "complex number"),
    ),
    Term(
        "bounded",
        "No entry of a row far away is much larger than those near by. Integers are not bounded,"
        " and drown what words mean.",
        "examples/integers_drown_words.py",
        ("boundedness", "signal-to-noise", "drown", "position as an integer", "convergence"),
    ),
    Term(
        "symmetry",
        "A property: the score of two tokens of equal content does not change when they change"
        " places. It is measured, with a witness.",
        "posenc show sinusoidal",
        ("symmetric",),
    ),
    Term(
        "smoothness",
        "Rows of neighbouring positions differ little. Binary digits are not smooth: from 7 to 8"
        " all four change.",
        "examples/binary_jumps.py",
        (
            "smooth",
            "continuous",
            "binary jumps",
            "bit flipping",
            "bits",
            "stepped encoding",
            "binary position",
        ),
    ),
    Term(
        "translation invariance",
        "Scores do not change when the whole text is moved: only distances count.",
        "posenc show rope",
        ("shift invariant", "translation invariant"),
    ),
    Term(
        "decay",
        "Scores that fall with distance. ALiBi's do; of RoPE a bound falls, and levels off.",
        "examples/decay_is_a_bound.py",
        ("long-term decay", "similarity", "decaying", "monotone", "monotonicity"),
    ),
    Term(
        "heat map",
        "Numbers of a matrix as colours: rows of an encoding, or what it adds to each score.",
        "examples/fingerprints.py",
        ("fingerprint",),
    ),
    Term(
        "four terms",
        "With rows added to embeddings a score is content with content, content with position,"
        " position with content, and position with position.",
        "examples/four_terms.py",
        (
            "content-content",
            "content-position",
            "position-content",
            "position-position",
            "decomposition",
            "disentangled attention",
        ),
    ),
    Term(
        "generalise to longer texts",
        "To be right beyond the trained length. Which encodings are is measured by training, at"
        " the lengths and rates that stand with each result.",
        "studies/README.md",
        ("generalize", "extrapolate", "extrapolation", "length generalization"),
    ),
    Term(
        "maximum sequence length",
        "A table ends with its last row, and refuses the next position.",
        "examples/tables_end.py",
        ("maximum length", "context length", "context window", "longer context"),
    ),
    Term(
        "position interpolation",
        "Positions divided by a factor, so that a longer text stays within the angles of training;"
        " neighbours come nearer to each other for it (Chen et al. 2023).",
        "posenc extend",
        ("interpolate", "interpolation", "pi", "linear scaling"),
    ),
    Term(
        "NTK",
        "A larger base: slow pairs are stretched by the factor, the fastest stays (bloc97 2023).",
        "posenc extend",
        ("ntk-aware", "dynamic ntk"),
    ),
    Term(
        "YaRN",
        "Slow pairs are interpolated, fast ones stay, those between go from one to the other, and"
        " scores are scaled (Peng et al. 2023).",
        "posenc extend",
    ),
    Term(
        "LongRoPE",
        "A factor searched for each pair (Ding et al. 2024); Phi-3.5-mini is published with it.",
        "posenc inspect",
    ),
    Term(
        "NoPE layers",
        "Some layers of a model have no positions and see the whole text, the others turn and often"
        " see a window: Llama 4, SmolLM3, Command A.",
        "posenc list --by use",
        ("local and global layers",),
    ),
    Term(
        "learned table",
        "A row for each position, trained: GPT-2, BERT. MiniLM's rows are smooth, but no"
        " sinusoids.",
        "examples/learned_table.py",
        ("trainable", "gpt-2", "bert", "lookup table", "memorize", "max_seq_len", "gradient"),
    ),
    Term(
        "Llama",
        "It turns queries and keys by RoPE, as Mistral, Qwen and DeepSeek do (RoFormer, Su et al."
        " 2021).",
        "posenc show rope",
        (
            "mistral",
            "deepseek",
            "efficient",
            "efficient form",
            "Llama 3.2",
            "sparse matrix",
            "element-wise",
            "gemma",
        ),
    ),
    Term(
        "GLUE",
        "A set of tasks of understanding sentences, by which RoFormer and DeBERTa were measured;"
        " posenc does not train such models.",
        "docs/sources.md",
    ),
    Term(
        "n-dimensional",
        "Positions with several axes: an image has two, a video or a brain scan three. Each axis"
        " turns channels of its own, or directions are mixed.",
        "examples/image_grid.py",
        (
            "images",
            "3d",
            "brain scans",
            "grid",
            "patches",
            "brain scan",
            "n dimensions",
            "multimodal",
            "extensible to multiple dimensions",
            "hierarchical",
        ),
    ),
    Term(
        "low precision",
        "bfloat16 keeps eight bits: of the first 4,096 positions it tells 769 apart. Angles are"
        " formed in float64 here and rounded once.",
        "examples/few_bits.py",
        ("bfloat16", "float16", "rounding"),
    ),
    Term(
        "layout",
        "Which channels are a pair: neighbours (interleaved), or each with the one half a head away"
        " (half). Weights of one are wrong in the other until they are permuted.",
        "examples/two_layouts.py",
        ("interleaved", "half", "rotate half"),
    ),
    Term(
        "random IDs",
        "A fixed random row for each position: told apart, but no two distances alike.",
        "examples/random_table.py",
        ("random", "random id", "fixed random table", "random embeddings"),
    ),
    Term(
        "wavelet",
        "Waves that end, in place of sines; some lists of encodings name them. Likeness then goes"
        " by blocks, not by distance. Not in the catalogue: an example of some lines.",
        "examples/wavelets.py",
        ("wavelets",),
    ),
    Term(
        "Fourier features",
        "Sines and cosines of positions times frequencies, of which the sinusoidal encoding is one"
        " choice, with fixed frequencies.",
        "posenc show sinusoidal",
        ("fourier", "Fourier solution", "trigonometric"),
    ),
    Term(
        "temperature",
        "A factor of queries that grows with the position, so that attention stays sharp in long"
        " texts; Llama 4 has it. Of sampling it is another thing: what logits are divided by.",
        "src/posenc/encodings/temperature.py",
    ),
    Term(
        "sampling",
        "To draw the next word from softmax(logits / temperature), in place of the likeliest: a low"
        " temperature sharpens the choice, a high one flattens it.",
        "examples/tiny_transformer.py",
        ("softmax", "tokenizer", "vocabulary", "language model", "residual", "layer norm"),
    ),
    Term(
        "concatenation",
        "A word and its position side by side. A projection makes a sum of both, x W₁ + p W₂, as of"
        " added ones, but with weights of its own for positions.",
        "examples/concatenation.py",
        ("concatenate", "additional feature"),
    ),
    Term(
        "dropout",
        "In training some channels of the sum of words and positions are set to 0, as in the first"
        " transformer.",
        "examples/dropout_after_adding.py",
        ("dropout after adding",),
    ),
    Term(
        "channel curves",
        "A channel of sinusoids against the position is a wave, slower from pair to pair; the"
        " distance to position 0 grows fast and then goes up and down.",
        "examples/channel_curves.py",
        ("distance to position 0", "distance from position 0", "dimensions"),
    ),
    Term(
        "attention",
        "Each token's query is compared with the keys of all; softmax makes shares of the scores,"
        " by which values are summed.",
        "posenc explore",
        (
            "self-attention",
            "attention weights",
            "attention heads",
            "dot product",
            "query",
            "key",
            "value",
            "token",
            "weight matrix",
        ),
    ),
    Term(
        "norm",
        "The length of a row or a vector. Sinusoids are √(d/2) long everywhere, and a rotation"
        " leaves queries and keys as long as they were.",
        "posenc show rope",
        ("length of a vector", "unit norm"),
    ),
    Term(
        "deterministic",
        "Made by a formula, and so the same for every text and length, without training.",
        "posenc show sinusoidal",
        ("generated by a deterministic process", "formula"),
    ),
    Term(
        "decoding",
        "One token after the other: keys and values of those before are kept in a cache.",
        "examples/key_cache.py",
        ("decode", "key cache", "kv cache"),
    ),
    Term(
        "loss",
        "What training makes small: bits for the next letter, or the share of wrong answers."
        " `posenc study` trains small models that differ in their encoding alone.",
        "studies/README.md",
        ("training",),
    ),
    Term(
        "explorer",
        "A page in which the encodings themselves run: a story of seven scenes, claims that are"
        " often repeated as its footnotes, and an instrument.",
        "posenc explore",
        ("demo", "interactive explorer", "tour"),
    ),
    Term(
        "sandwich",
        "A bias made of the sinusoidal rows' products (Chi et al. 2023). Not here.",
        "posenc list",
    ),
    Term(
        "dual chunk attention",
        "Positions within a chunk and between chunks, so that none exceeds the trained ones (An et"
        " al. 2024). Not here.",
        "posenc list",
        ("dual chunk",),
    ),
    Term(
        "Self-Extend",
        "Positions far away are divided and rounded, near ones stay (Jin et al. 2024). Not here.",
        "posenc extend",
    ),
    Term(
        "PoPE",
        "The name of several encodings, of which posenc has none; the nearest are sinusoidal and"
        " RoPE.",
        "posenc list",
    ),
)


def find(word: str) -> Term | None:
    """The term that a word means, whatever its case, spaces and dashes; None: it is not there."""
    typed = names.plain(word)
    for term in TERMS:
        if typed in map(names.plain, (term.word, *term.also)):
            return term
    return None


def page(terms: Iterable[Term] = TERMS) -> str:
    """`docs/glossary.md`."""
    lines = [
        "# Glossary",
        "",
        "Made by `make table`. `posenc show WORD` says the same in a terminal.",
        "",
    ]
    for term in sorted(terms, key=lambda one: one.word.lower()):
        also = f" ({', '.join(term.also)})" if term.also else ""
        lines += [f"**{term.word}**{also}: {term.means}", f"→ {_linked(term.where)}", ""]
    return "\n".join(lines)


def _linked(where: str) -> str:
    return f"`{where}`" if where.startswith("posenc ") else f"[{where}](../{where})"
