"""List words that this project's style excludes, in docstrings, comments, messages and pages.

    python tools/words.py [PATH...]     list the hits in these files or folders, or in all; 1 if any

Texts are docstrings, comments, messages, other strings, Markdown and pages; `words.toml` has the
patterns.
"""

import ast
import io
import re
import sys
import tokenize
import tomllib
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

from pygments import lexers
from pygments.token import Comment, String

ROOT = Path(__file__).parent.parent
PLACES = ["src", "docs", "tests", "tools", "studies", "benchmarks", "examples", "*.md"]
KINDS = {"summary", "docstring", "comment", "message", "text", "page"}
# Names of servers and fixtures that others wrote, and the examples of what is excluded
LEFT_OUT = {"tests/test_words.py", "tools/words.toml", "tools/words.py"}
PRAGMA = re.compile(r"#\s*(noqa|type:|pyright:|fmt:|pragma|!|ruff:)")


@dataclass(frozen=True)
class Rule:
    name: str
    pattern: re.Pattern[str]
    suggest: str
    kinds: frozenset[str]


@dataclass(frozen=True)
class Hit:
    path: str
    line: int
    words: str
    rule: Rule

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.words!r} ({self.rule.name}: {self.rule.suggest})"


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of one kind of text, with single spaces, and the source line of each part."""

    kind: str
    text: str
    starts: tuple[int, ...]
    lines: tuple[int, ...]

    def line(self, at: int) -> int:
        return self.lines[bisect(self.starts, at) - 1]


@cache
def rules() -> list[Rule]:
    """Return the rules of words.toml."""
    return [
        Rule(
            found["name"],
            re.compile(found["pattern"]),
            found["suggest"],
            frozenset(found.get("in", KINDS)),
        )
        for found in settings()["rule"]
    ]


@cache
def allowed() -> re.Pattern[str]:
    """Return the pattern of allowed phrases, in which no rule can find a hit."""
    return re.compile("|".join(f"(?:{phrase})" for phrase in settings()["allow"]))


@cache
def settings() -> dict:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def hits(text: str, kind: str) -> list[tuple[int, str, Rule]]:
    """Return (index, words, rule) for each hit in a paragraph, by the rules for its kind."""
    found = [
        (match, rule)
        for rule in rules()
        if kind in rule.kinds
        for match in rule.pattern.finditer(text)
    ]
    spans = [match.span() for match in allowed().finditer(text)] if found else []
    return [
        (match.start(), match.group().strip(), rule)
        for match, rule in found
        if not any(low < match.end() and match.start() < high for low, high in spans)
    ]


def paragraphs(lines: list[tuple[int, str]], kind: str, first: str = "") -> Iterator[Paragraph]:
    """Join numbered lines to paragraphs, which end at blank lines and before new list items.

    - `first`: the kind of the first paragraph, if it is another
    """
    group: list[tuple[int, str]] = []
    for number, line in [*lines, (0, "")]:
        ends = not line.strip() or re.match(r"\s*([-*•] |\d+\. |\|)", line)
        if ends and group:
            yield joined(group, first or kind)
            group, first = [], ""
        if line.strip():
            group.append((number, line))


def joined(group: list[tuple[int, str]], kind: str) -> Paragraph:
    text, starts = "", []
    for _, line in group:
        starts.append(len(text))
        text += " ".join(line.split()) + " "
    return Paragraph(kind, text.rstrip(), tuple(starts), tuple(number for number, _ in group))


def without_code(text: str) -> str:
    """Replace each piece of code in back-quotes by `x`, and keep the lines."""
    return re.sub(r"`[^`\n]*(\n[^`\n]*)?`", lambda match: "`x`" + "\n" * match[0].count("\n"), text)


def of_docstring(text: str, line: int) -> Iterator[Paragraph]:
    """Yield paragraphs of a docstring without its examples."""
    lines = [(line + n, part) for n, part in enumerate(without_code(text).split("\n"))]
    kept, example = [], False
    for number, part in lines:
        example = bool(part.strip()) and (example or part.lstrip().startswith(">>>"))
        kept.append((number, "" if example else part))
    yield from paragraphs(kept, "docstring", "summary")


def literal(node: ast.AST) -> str | None:
    """Return the text of a string or f-string, or of a sum of these."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(literal(value) or "…" for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = [literal(left), literal(right)]
            return None if parts == [None, None] else "".join(part or "…" for part in parts)
        case _:
            return None


def of_python(source: str) -> Iterator[Paragraph]:
    """Yield docstrings, messages, other strings of four words or more, and comments."""
    nodes = list(ast.walk(ast.parse(source)))
    documented: set[int] = set()
    inner: set[int] = set()
    messages: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str(text)) as first), *_]:
                    documented.add(id(first))
                    yield from of_docstring(text, first.lineno)
        elif isinstance(node, ast.Raise) or is_warning(node):
            messages |= {id(inside) for inside in ast.walk(node)}
        elif isinstance(node, ast.JoinedStr | ast.BinOp) and literal(node) is not None:
            inner |= {id(part) for part in ast.walk(node) if part is not node}
    for node in nodes:
        text = None if id(node) in documented | inner else literal(node)
        if not text or not isinstance(node, ast.expr):
            continue
        kind = "message" if id(node) in messages else "text"
        if kind == "message" or is_prose(text):
            lines = without_code(text).split("\n")
            yield from paragraphs([(node.lineno, part) for part in lines], kind)
    yield from of_comments(source)


def is_warning(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "warn"


def is_prose(text: str) -> bool:
    """Test whether a text contains four words in a row in lower case."""
    return re.search(r"(\b[A-Za-z]?[a-z']+,? ){3}[a-z]", text) is not None and "://" not in text[:9]


def of_comments(source: str) -> Iterator[Paragraph]:
    """Yield comments; consecutive comment lines are joined."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not PRAGMA.match(token.string):
            alone = token.line.lstrip().startswith("#")
            found.append((token.start[0], alone, token.string.lstrip("#")))
    key = (n - place if alone else ("alone", n) for place, (n, alone, _) in enumerate(found))
    for _, pairs in groupby(zip(key, found, strict=True), lambda pair: pair[0]):
        group = [comment for _, comment in pairs]
        lines = without_code("\n".join(line for *_, line in group)).split("\n")
        yield from paragraphs([(group[0][0] + n, part) for n, part in enumerate(lines)], "comment")


def of_markdown(text: str, kind: str = "page") -> Iterator[Paragraph]:
    """Yield paragraphs, items and rows of tables, without code, comments and targets of links."""
    for pattern in (r"(?ms)^ *```.*?^ *```", r"(?s)<!--.*?-->"):
        text = re.sub(pattern, lambda match: "\n" * match[0].count("\n"), text)
    text = re.sub(r"\]\([^)\s]*\)", "]", without_code(text)).replace("**", "")
    # Registered texts of plans cannot be changed
    text = re.sub(r"(as registered[^:\n]*:).*", r"\1", text)
    lines = [(n, re.sub(r"^#+ .*", "", line)) for n, line in enumerate(text.split("\n"), start=1)]
    for number, line in lines:
        if line.lstrip().startswith("|"):
            for cell in line.split("|"):
                yield from paragraphs([(number, cell)], kind)
    yield from paragraphs(
        [(n, "" if part.lstrip().startswith("|") else part) for n, part in lines], kind
    )


def of_html(text: str) -> Iterator[Paragraph]:
    """Yield the text between the tags of a page or a template."""
    patterns = (
        r"(?s)<!--.*?-->|\{#.*?#\}|<style.*?</style>|<script.*?</script>|\{%.*?%\}",
        r"(?s)</?(p|li|td|th|h\d|div|figcaption|summary|dt|dd|label|button|section|tr)\b[^>]*>",
    )
    text = re.sub(patterns[0], lambda match: "\n" * match[0].count("\n"), text)
    text = re.sub(r"(?s)\{\{.*?\}\}", "…", text)
    text = re.sub(patterns[1], lambda match: "\f" + "\n" * match[0].count("\n"), text)
    text = re.sub(r"(?s)<(code|kbd)[^>]*>.*?</\1>", "`x`", text)
    text = re.sub(r"(?s)<[^>]*>", lambda match: "\n" * match[0].count("\n"), text)
    lines = []
    for number, line in enumerate(text.split("\n"), start=1):
        first, *others = line.split("\f")
        lines.append((number, first))
        for part in others:
            lines += [(number, ""), (number, part)]
    yield from paragraphs(lines, "page")


def of_javascript(text: str) -> Iterator[Paragraph]:
    """Yield comments, and strings of four words or more, of a JavaScript file."""
    line = 1
    for token, value in lexers.get_lexer_by_name("javascript").get_tokens(text):
        kind = "comment" if token in Comment else "text" if token in String else ""
        if kind and (kind == "comment" or is_prose(value)):
            plain = re.sub(r"\$\{[^}]*\}", "…", value.strip("/*\"'"))
            parts = [part.lstrip(" */") for part in without_code(plain).split("\n")]
            yield from paragraphs([(line + n, part) for n, part in enumerate(parts)], kind)
        line += value.count("\n")


READERS = {".py": of_python, ".md": of_markdown, ".html": of_html, ".js": of_javascript}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def of_file(path: Path) -> list[Hit]:
    """Return the hits in a file."""
    source = path.read_text(encoding="utf-8")
    if path.name == "CHANGELOG.md":
        source = re.split(r"(?m)^## (?!Unreleased)", source)[0]
    return [
        Hit(relative(path), paragraph.line(at), words, rule)
        for paragraph in READERS[path.suffix](source)
        for at, words, rule in hits(paragraph.text, paragraph.kind)
    ]


def files(places: list[Path]) -> Iterator[Path]:
    """Yield the files that contain text, among these files and in these folders."""
    for place in places:
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            inside = relative(path)
            hidden = re.search(r"(^|/)(\.|_site|node_modules)", inside)
            if path.suffix in READERS and not hidden and inside not in LEFT_OUT:
                yield path


def main(words: list[str]) -> int:
    """Print the hits in the named files and folders, or in all; return 1 if there are any."""
    places = [Path(word).resolve() for word in words]
    places = places or [path for place in PLACES for path in ROOT.glob(place)]
    found = [hit for path in files(places) for hit in of_file(path)]
    for hit in found:
        print(hit)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
