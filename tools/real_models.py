"""Write src/posenc/models/published.json: configs of published models with RoPE; --check.

The configs come from tests/data/rope_configs.json, which names the repository of each.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent.parent
FILE = HERE / "src/posenc/models/published.json"
sys.path.insert(0, str(HERE / "tests/helpers"))

from published import KINDS, published  # noqa: E402  # pyright: ignore


def text() -> str:
    """Return configs as JSON text with one line for each model."""
    lines = [f"{json.dumps(name)}: {json.dumps(published(name))}" for name in KINDS]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        if FILE.read_text("utf-8") != text():
            sys.exit(f"{FILE.name} differs from tests/data. Run `python tools/real_models.py`.")
    else:
        FILE.write_text(text(), "utf-8")
