"""Where a file of the repository is on the site. Places are paths from the root, with slashes."""

import posixpath
import re
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parents[2]
TEXTS = {  # pages that a text of the repository becomes
    "README.md": "start.html",
    "CONTRIBUTING.md": "contributing.html",
    "CHANGELOG.md": "changelog.html",
    "SECURITY.md": "security.html",
    "docs/census.md": "models/census.html",
    "docs/check.md": "models/check.html",
    "docs/commands.md": "commands.html",
    "docs/extend_cases.md": "models/extend_cases.html",
    "docs/families.md": "models/families.html",
    "docs/faq.md": "faq.html",
    "docs/faults.md": "faults.html",
    "docs/glossary.md": "glossary.html",
    "docs/guide.md": "guide.html",
    "docs/internals.md": "internals.html",
    "docs/llama.md": "llama.html",
    "docs/models.md": "models/extend.html",
    "docs/names.md": "names.html",
    "docs/paper/paper.md": "studies/paper.html",
    "docs/properties.md": "encodings/properties.html",
    "docs/real_weights.md": "models/real_weights.html",
    "docs/results.md": "results.html",
    "docs/sources.md": "sources.html",
    "docs/speed.md": "benchmarks/speed.html",
    "docs/studies.md": "studies/how.html",
    "docs/tests.md": "tests.html",
    "docs/using.md": "using.html",
    "examples/README.md": "gallery/index.html",
    "studies/README.md": "studies/index.html",
    "benchmarks/README.md": "benchmarks/index.html",
    "benchmarks/results/README.md": "benchmarks/results.html",
}
FOLDERS = {  # of which one page speaks
    ".": "start.html",
    "docs": "start.html",
    "examples": "gallery/index.html",
    "studies": "studies/index.html",
    "benchmarks": "benchmarks/index.html",
    "benchmarks/results": "benchmarks/results.html",
}
SHOWN = (".py", ".toml", ".js", ".css", ".md", ".html", ".cff", "Makefile", "LICENSE")
SOURCE = "src/posenc/"
FINDING = re.compile(r"studies/[\w-]+/README\.md")


def encoding(slug: str) -> str:
    return f"encodings/{slug}.html"


def finding(study: str) -> str:
    return f"studies/{study}/finding.html"


def module(name: str) -> str:
    """The place of a module in the reference: "attention.attend" is a part of its room's page."""
    room, _, inner = name.partition(".")
    return f"api/{room}.html" + (f"#{name}" if inner else "")


def of(path: str) -> str | None:
    """The place of a file or folder of the repository; None where there is no such file."""
    if path in TEXTS:
        return TEXTS[path]
    if path in FOLDERS:
        return FOLDERS[path]
    if FINDING.fullmatch(path):
        return finding(path.split("/")[1])
    there = ROOT / path
    if there.is_dir():
        if path.startswith(SOURCE):
            inner = path.removeprefix(SOURCE).strip("/")
            is_package = (there / "__init__.py").exists()
            return module(inner.replace("/", ".")) if is_package else None
        if (there / "results.db").exists() and there.parent.name == "studies":
            return f"{path}/index.html"
        return f"files/{path}/index.html"
    if not there.is_file():
        return None
    if path.startswith("examples/") and path.endswith((".py", ".ipynb")):
        return f"gallery/{there.stem}.html"
    return f"source/{path}.html" if path.endswith(SHOWN) else f"files/{path}"


def linked(target: str, source: str) -> str | None:
    """The place that a link of a text leads to; None where it leads out, or nowhere.

    >>> linked("../studies/README.md#shape-copy", "docs/sources.md")
    'studies/index.html#shape-copy'
    """
    if "://" in target or target.startswith(("#", "mailto:")):
        return None
    path, _, anchor = unquote(target).partition("#")
    place = of(posixpath.normpath(posixpath.join(posixpath.dirname(source), path)))
    return f"{place}#{anchor}" if place and anchor else place


def relative(place: str, page: str) -> str:
    """A place as a page at another place links to it."""
    path, hash_, anchor = place.partition("#")
    return posixpath.relpath(path, posixpath.dirname(page) or ".") + hash_ + anchor
