"""Run an untrusted tokenizer in a subprocess with limits on memory and time.

A tokenizer.json is a program: its normalizers may multiply a text, and its regular expressions may
backtrack forever. Without memory the tokenizers library aborts its process, which no exception
handler can catch.
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
# Program that reads a tokenizer and a request from stdin, and writes the answer to stdout
CHILD = """
import json, sys
try:
    import resource
    most, hard = int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_AS)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
except ImportError:  # not on Windows
    pass
sys.path.append(sys.argv[1])
from tokenizers import Tokenizer
request = json.load(sys.stdin)
try:
    tokenizer = Tokenizer.from_str(request["tokenizer"])
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if "ids" in request:
        answer = {"tokens": [tokenizer.id_to_token(one) for one in request["ids"]]}
    else:
        made = tokenizer.encode(request["text"], add_special_tokens=request["special"])
        count = len(request["text"])
        if len(made.ids) > request["most"]:
            raise ValueError(f"it makes {len(made.ids):,} tokens from {count:,} characters")
        answer = {"ids": made.ids, "special": made.special_tokens_mask}
except BaseException as error:
    answer = {"error": f"{type(error).__name__}: {error}"}
json.dump(answer, sys.stdout)
"""


@dataclass(frozen=True)
class Tokens:
    """Tokenizer that runs in a subprocess; `definition` is the text of its tokenizer.json."""

    file: str
    definition: str

    def __call__(self, text: str, add_special_tokens: bool = True, **options: Any) -> Any:
        """Return the token ids and a mask of added special tokens, as tensors (1, token).

        Other options of transformers' tokenizers are accepted and ignored. Raises ModelError if the
        tokenizer fails, returns too many tokens, or runs too long.
        """
        import torch

        most = MOST_GROWTH * len(text.encode()) + 64
        answer = self._run(text=text, special=add_special_tokens, most=most)
        ids, special = (torch.tensor([answer[key]]).long() for key in ("ids", "special"))
        return {"input_ids": ids, "special_tokens_mask": special}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [token or "" for token in self._run(ids=ids)["tokens"]]

    @cached_property
    def _library(self) -> str:
        """Folder from which the tokenizers library is imported."""
        found = find_spec("tokenizers")
        if found is None or found.origin is None:
            raise ImportError("No module named 'tokenizers'", name="tokenizers")
        return str(Path(found.origin).parent.parent)

    def _run(self, **request: Any) -> dict[str, Any]:
        """Run the tokenizer in a new process, and return its reply to `request` as a dict."""
        text = json.dumps({"tokenizer": self.definition, **request})
        command = [sys.executable, "-P", "-c", CHILD, self._library, str(MOST_MEMORY)]
        one_thread = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        try:
            done = subprocess.run(
                command,
                input=text.encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **one_thread},
                timeout=MOST_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise self._fails(f"needs more than {MOST_SECONDS} seconds") from None
        if done.returncode or not done.stdout:
            raise self._fails(f"needs more than {MOST_MEMORY // 2**30} GiB, or crashes")
        answer = json.loads(done.stdout)
        if "error" in answer:
            raise self._fails(" ".join(answer["error"].split())[:300])
        return answer

    def _fails(self, why: str) -> ModelError:
        return ModelError(self.file, "", f"cannot be used as a tokenizer: {printable(why, 300)}")
