"""Build the wheel and the source distribution, and test the wheel in empty environments.

python tools/release.py                    # in the Python that runs this
python tools/release.py 3.11 3.12 3.13     # in these, where uv finds or can fetch them

The core and each extra are installed alone, from the wheel, and a program that uses them is run.
The table of results is printed, and written to tests/installed.md.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

from posenc import __version__

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "tests/installed.md"
LAYERS = """
import torch, posenc
for card in posenc.CATALOG:
    layer = posenc.SelfAttention(64, heads=4, encoding=card.slug)
    x, pos = torch.randn(1, 9, 64), torch.arange(9)
    pos = pos if layer.encoding.axes == 1 else pos[:, None].expand(9, layer.encoding.axes)
    layer(x, pos, mask=posenc.masks.causal()).sum().backward()
"""
FIGURE = "import posenc; posenc.plot.rows('rope').save('rows.png')"
NUMBA = "from posenc.compat import kernels; assert kernels.load('posenc.rotation.numba_kernel')"
MODEL = """
import gguf, huggingface_hub, safetensors
from pathlib import Path
from posenc.models.inspection import inspect
Path("config.json").write_text('{"model_type": "llama"}')
inspect(Path("config.json"), 131072).spec.encodings()
"""
PLAN = """
tasks = ["TASK"]
encodings = ["nope", "sinusoidal"]
seeds = 1
trained = 8
tested = [8, 16]
profile = { width = 16, heads = 2, layers = 1, steps = 3, batch = 4, prompts = 4 }
"""
STUDY = ["posenc", "study", "copy.toml", "--out", "runs"]
CHECKS: dict[str, Sequence[Sequence[str]]] = {  # by extra; "" is posenc alone
    "": [["python", "-c", LAYERS]],
    "cli": [["posenc", "list"], ["posenc", "show", "rope", "--measure"], ["posenc", "doctor"]],
    "report": [["python", "-c", FIGURE]],
    "models": [["python", "-c", MODEL]],
    "fast": [["python", "-c", NUMBA]],
    "study": [STUDY, ["posenc", "results", "runs"]],
    "parquet": [STUDY, ["posenc", "results", "runs", "--parquet", "outcomes.parquet"]],
    "images": [["posenc", "study", "images.toml", "--out", "runs"]],
    "all": [
        ["python", "-c", MODEL],
        ["posenc", "inspect", "config.json", "--target", "131072", "--out", "page"],
        ["posenc", "explore", "rope", "--out", "explore.html", "--no-browser"],
    ],
}
TORCHES = {"torch 2.7": "torch==2.7.1", "newest torch": "torch"}  # beside that of constraints.txt


def environment() -> dict[str, str]:
    """Return the environment variables, with pip's index settings also under uv's names."""
    env = {name: x for name, x in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    for pip, uv in (("PIP_FIND_LINKS", "UV_FIND_LINKS"), ("PIP_INDEX_URL", "UV_DEFAULT_INDEX")):
        if pip in env:
            env.setdefault(uv, env[pip])
    return env


def run(words: Sequence[str], cwd: Path, env: dict[str, str], name: str = "") -> str:
    """Run a command and return its output. Raises RuntimeError with the last line of its error."""
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing said"]
        raise RuntimeError(f"{name or words[0]}: {said[-1].strip()}")
    return done.stdout


def built(folder: Path) -> list[Path]:
    """Build the source distribution, and from it the wheel, as for a release."""
    run([sys.executable, "-m", "uv", "build", "-q", "-o", str(folder)], ROOT, environment())
    return sorted(folder.glob("posenc-*.*"))


def tried(wheel: Path, python: str, extra: str, torch: str, folder: Path) -> str:
    """Install the wheel with an extra in an empty environment, and test what the extra adds."""
    venv, env, begun = folder / "venv", environment(), time.monotonic()
    uv = [sys.executable, "-m", "uv"]
    wanted = [f"{wheel}[{extra}]" if extra else str(wheel)]
    wanted += [torch] if torch else ["-c", str(ROOT / "constraints.txt")]
    try:
        run([*uv, "venv", "-q", "--python", python, str(venv)], folder, env, "venv")
        run([*uv, "pip", "install", "-q", "--python", str(venv), *wanted], folder, env, "install")
        env["PATH"] = f"{venv / 'bin'}{os.pathsep}{env['PATH']}"
        for task in ("copy", "images"):
            (folder / f"{task}.toml").write_text(PLAN.replace("TASK", task))
        for command in CHECKS[extra]:
            program = str(venv / "bin" / command[0])
            run([program, *command[1:]], folder, env, " ".join(command[:2]))
    except RuntimeError as error:
        return f"✗ {error}".replace("|", "\\|")
    return f"✓ {time.monotonic() - begun:.0f} s"


def main() -> None:
    pythons = sys.argv[1:] or [f"{sys.version_info.major}.{sys.version_info.minor}"]
    source, wheel = sorted(built(ROOT / "dist"), key=lambda file: file.suffix == ".whl")
    sizes = ", ".join(f"{file.name} {file.stat().st_size / 1e6:.2f} MB" for file in (source, wheel))
    rows = [(extra or "core", extra, "") for extra in CHECKS]
    rows += [(f"core, {name}", "", torch) for name, torch in TORCHES.items()]
    lines = [
        "# What was installed where\n",
        "Written by `make release`: it installs the wheel in an empty environment, alone and with"
        " each extra,\nand runs what the extra is for (`tools/release.py`). Versions are those of"
        " `constraints.txt`, but for the last rows.\n",
        f"posenc {__version__}, {date.today()}; {sizes}.\n",
        f"| installed | {' | '.join(f'Python {python}' for python in pythons)} |",
        f"| --- |{' --- |' * len(pythons)}",
    ]
    for name, extra, torch in rows:
        outcomes = []
        for python in pythons:
            with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                outcomes.append(tried(wheel, python, extra, torch, Path(folder)))
            print(f"{name}, Python {python}: {outcomes[-1]}", file=sys.stderr, flush=True)
        lines.append(f"| {name} | {' | '.join(outcomes)} |")
    TARGET.write_text("\n".join(lines) + "\n", "utf-8")
    print("\n".join(lines))
    if any("✗" in line for line in lines):
        sys.exit("error: not all of it can be installed and run; see the table.")


if __name__ == "__main__":
    main()
