"""Make tokens by a stranger's tokenizer in a process of its own, bounded in memory and time.

A tokenizer.json is a program: its normalizers may multiply a text, and its patterns may backtrack
without end. Where memory ends, the library aborts its process; no exception can be caught.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from posenc.models.files.errors import ModelError
from posenc.support.text import printable

MOST_MEMORY = 2**32  # bytes of address space
MOST_SECONDS = 120
MOST_GROWTH = 8  # tokens for each byte of a text
# Reads a tokenizer and a request from its input, and writes the answer to its output
CHILD = """
import json, sys
try:
    import resource
    most, hard = int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_AS)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
except ImportError:  # Windows has no such limit
    pass
sys.path.append(sys.argv[1])
from tokenizers import Tokenizer
asked = json.load(sys.stdin)
try:
    tokenizer = Tokenizer.from_str(asked["tokenizer"])
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if "ids" in asked:
        answer = {"tokens": [tokenizer.id_to_token(one) for one in asked["ids"]]}
    else:
        made = tokenizer.encode(asked["text"], add_special_tokens=asked["special"])
        if len(made.ids) > asked["most"]:
            raise ValueError(f"it makes {len(made.ids):,} tokens of {len(asked['text']):,} letters")
        answer = {"ids": made.ids, "special": made.special_tokens_mask}
except BaseException as error:
    answer = {"error": f"{type(error).__name__}: {error}"}
json.dump(answer, sys.stdout)
"""


@dataclass(frozen=True)
class Tokens:
    """A tokenizer that runs in another process. `definition` is the text of its tokenizer.json."""

    file: str
    definition: str

    def __call__(self, text: str, add_special_tokens: bool = True, **options: Any) -> Any:
        """Return token numbers and which of them the tokenizer adds: tensors (1, token).

        `options` are those that transformers' tokenizers take besides; tensors are always returned.
        Raises ModelError for a tokenizer that fails, grows the text, or takes too long.
        """
        import torch

        most = MOST_GROWTH * len(text.encode()) + 64
        answer = self._ask(text=text, special=add_special_tokens, most=most)
        ids, special = (torch.tensor([answer[key]]).long() for key in ("ids", "special"))
        return {"input_ids": ids, "special_tokens_mask": special}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [token or "" for token in self._ask(ids=ids)["tokens"]]

    @cached_property
    def _place(self) -> str:
        """The folder that the library is imported from."""
        found = find_spec("tokenizers")
        if found is None or found.origin is None:
            raise ImportError("No module named 'tokenizers'", name="tokenizers")
        return str(Path(found.origin).parent.parent)

    def _ask(self, **asked: Any) -> dict[str, Any]:
        """Return the answer of a new process."""
        request = json.dumps({"tokenizer": self.definition, **asked})
        command = [sys.executable, "-P", "-c", CHILD, self._place, str(MOST_MEMORY)]
        one_thread = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        try:
            done = subprocess.run(
                command,
                input=request.encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **one_thread},
                timeout=MOST_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise self._fails(f"took more than {MOST_SECONDS} seconds") from None
        if done.returncode or not done.stdout:
            raise self._fails(f"needs more than {MOST_MEMORY // 2**30} GiB, or crashes")
        answer = json.loads(done.stdout)
        if "error" in answer:
            raise self._fails(" ".join(answer["error"].split())[:300])
        return answer

    def _fails(self, why: str) -> ModelError:
        return ModelError(self.file, "", f"is no tokenizer that can be used: {printable(why, 300)}")
