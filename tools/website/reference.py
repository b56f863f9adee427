"""The reference: public modules, classes and functions with their docstrings, read by griffe.

Nothing is imported. A room of the house has a page, a module a section of it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import griffe
from markupsafe import Markup, escape

from posenc.show.report import mathml
from website import code, places

CODE = re.compile(
    r"[─│▶┌└#]|\w_\w\w|^\s*(posenc|def|for|if|from|import|\$|\{)\b", re.M
)  # no formula
SECTIONS = ("Parameters", "Returns", "Raises")


@dataclass(frozen=True)
class Entry:
    """A class, a method or a function."""

    name: str
    path: str  # "attention.attend.attend", its anchor too
    signature: Markup
    text: Markup
    inner: "list[Entry]" = field(default_factory=list)


@dataclass(frozen=True)
class ModuleEntry:
    name: str
    path: str
    summary: str
    text: Markup
    entries: list[Entry]


@dataclass(frozen=True)
class Room:
    name: str
    summary: str
    modules: list[ModuleEntry]


def load() -> griffe.Module:
    """The package as its source says."""
    loaded = griffe.load("posenc", search_paths=[places.ROOT / "src"], allow_inspection=False)
    assert isinstance(loaded, griffe.Module)
    return loaded


def rooms(package: griffe.Module) -> list[Room]:
    """The rooms in the order of their names; `posenc.catalog` and `.testing` are one file each."""
    members = [m for m in package.members.values() if isinstance(m, griffe.Module)]
    return [
        Room(room.name, _summary(room), [_module(m) for m in _modules(room)])
        for room in sorted(members, key=lambda m: m.name)
        if not room.name.startswith("_")
    ]


def doors(package: griffe.Module) -> dict[str, str]:
    """The public names of `import posenc` and where each is defined: "attention.attend.attend"."""
    assignment = package["_HOME"].value
    assert assignment is not None
    pairs = re.findall(r"'(\w+)': '([\w.]+)'", str(assignment))
    return {name: f"{home}.{name}" for name, home in pairs if name != "CATALOG"}


def _modules(room: griffe.Module) -> Iterator[griffe.Module]:
    yield room
    for member in sorted(room.members.values(), key=lambda m: m.name):
        if isinstance(member, griffe.Module) and not member.name.startswith("_"):
            yield from _modules(member)


def _module(module: griffe.Module) -> ModuleEntry:
    path = module.path.removeprefix("posenc.")
    return ModuleEntry(
        module.name, path, _summary(module), prose(_docstring(module)), [*_entries(module, path)]
    )


def _entries(holder: griffe.Module | griffe.Class, path: str) -> Iterator[Entry]:
    for name, member in holder.members.items():
        public = not name.startswith("_") or name in ("__init__", "__call__")
        if not public or member.is_alias:
            continue
        if isinstance(member, griffe.Class):
            inner = [*_entries(member, f"{path}.{name}")]
            yield Entry(name, f"{path}.{name}", _class(member), prose(_docstring(member)), inner)
        elif isinstance(member, griffe.Function) and _docstring(member):
            text = prose(_docstring(member))
            yield Entry(name, f"{path}.{name}", _signature(member), text)


def _docstring(item: griffe.Object | griffe.Alias) -> str:
    return item.docstring.value if item.docstring else ""


def _summary(item: griffe.Module) -> str:
    return " ".join(_docstring(item).split("\n\n")[0].split())


def _class(item: griffe.Class) -> Markup:
    init = item.members.get("__init__")
    fields = [n for n, m in item.members.items() if m.is_attribute and "instance" not in m.labels]
    if isinstance(init, griffe.Function):
        written = _signature(init, item.name)
    elif "dataclass" in item.labels:
        written = code.coloured(f"{item.name}({', '.join(fields)})", "python")
    else:
        written = code.coloured(item.name, "python")
    return Markup('<span class="k">class</span> ') + written


def _signature(item: griffe.Function, name: str = "") -> Markup:
    parts: list[str] = []
    kinds = griffe.ParameterKind
    star = False
    for parameter in item.parameters:
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is kinds.keyword_only and not star:
            parts.append("*")
            star = True
        marks = {kinds.var_positional: "*", kinds.var_keyword: "**"}
        star = star or parameter.kind is kinds.var_positional
        text = marks.get(parameter.kind, "") if parameter.kind else ""
        text += parameter.name
        if parameter.annotation is not None:
            text += f": {parameter.annotation}"
        if parameter.default is not None and parameter.kind not in marks:
            text += f" = {parameter.default}" if parameter.annotation else f"={parameter.default}"
        parts.append(text)
    returns = f" -> {item.returns}" if item.returns is not None and not name else ""
    line = f"{name or item.name}({', '.join(parts)}){returns}"
    if len(line) > 90:
        line = f"{name or item.name}(\n" + "".join(f"    {p},\n" for p in parts) + f"){returns}"
    return code.coloured(line, "python").strip()


def prose(text: str) -> Markup:
    """A docstring: paragraphs, indented formulas and drawings, examples, parts under a rule."""
    out: list[Markup] = []
    for block in filter(None, re.split(r"\n\s*\n", text.strip("\n"))):
        if block.lstrip().startswith(">>>"):
            out.append(Markup("<pre>{}</pre>").format(code.coloured(_dedented(block), "pycon")))
        elif block.startswith("    "):
            out.append(_indented(_dedented(block)))
        elif (lines := block.splitlines())[0] in SECTIONS and set(lines[1].strip()) == {"-"}:
            out.append(_listed(lines[0], lines[2:]))
        else:
            before, arrow, example = block.partition("\n>>>")
            out.append(Markup("<p>{}</p>").format(inline(before)))
            if arrow:
                shown = code.coloured(f">>>{example}", "pycon")
                out.append(Markup("<pre>{}</pre>").format(shown))
    return Markup("\n").join(out)


def inline(text: str) -> Markup:
    """A line of prose; what stands in back-quotes is code."""
    parts = " ".join(text.split()).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if n % 2 else escape(part)
        for n, part in enumerate(parts)
    )


def _indented(block: str) -> Markup:
    """A formula, where it reads as one, else as it stands."""
    if CODE.search(block) or "=" not in block:
        return Markup("<pre>{}</pre>").format(block)
    rows = [" ".join(line) for line in mathml.lines(block)]
    inner = "".join(f"<div>{row}</div>" for row in rows)
    return Markup(
        f'<div class="formula" role="group" aria-label="formula" tabindex="0">{inner}</div>'
    )


def _listed(name: str, lines: list[str]) -> Markup:
    terms: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith(" ") and terms:
            terms[-1][1].append(line)
        elif line.strip():
            terms.append((line.strip(), []))
    rows = [
        Markup("<dt><code>{}</code></dt><dd>{}</dd>").format(term, inline(" ".join(said)))
        for term, said in terms
    ]
    return Markup("<p>{}</p><dl>{}</dl>").format(name, Markup("").join(rows))


def _dedented(block: str) -> str:
    lines = block.splitlines()
    least = min((len(li) - len(li.lstrip()) for li in lines if li.strip()), default=0)
    return "\n".join(line[least:] for line in lines)


def summaries(package: griffe.Module, names: dict[str, str]) -> dict[str, Markup]:
    """The first sentence of each public name."""
    found = {}
    for name, path in names.items():
        module, _, _ = path.rpartition(".")
        text = _docstring(package[path]) or _docstring(package[module])
        found[name] = inline(text.split("\n\n")[0])
    return found
