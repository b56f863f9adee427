"""Build the site, one folder of static files: python docs/site/build.py OUT.

Pages of the repository that the menu of zensical.toml names, and pages made from cards, examples
and studies, are staged as Markdown. Zensical makes the site from them.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import made
from check import faults

from posenc.support.version import __version__

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SETTINGS = (HERE / "zensical.toml").read_text("utf-8")
NAMED = re.findall(r'"([\w/]+\.md)"', SETTINGS)  # pages that the menu names, not by a pattern
LINK = re.compile(r"(!?)\[([^\[\]]*)\]\(([^)\s]+)\)")
STATE = re.compile("`(#v1/[^`]+)`")  # an address of the explorer
EMPTY = re.compile(r"<th[^>]*></th>")
SITEMAP = "sitemap.xml"  # by which an earlier site is recognised
# Addresses of the repository and of its site, "" where GitHub does not build it
NAME = os.environ.get("GITHUB_REPOSITORY", "")
REPOSITORY = f"{os.environ['GITHUB_SERVER_URL']}/{NAME}" if NAME else ""
SITE = "https://{}.github.io/{}/".format(*NAME.split("/")) if NAME else ""


def build(out: Path) -> list[str]:
    """Write the site in place of an earlier one, and return the faults of its pages."""
    if out.exists() and any(out.iterdir()) and not (out / SITEMAP).exists():
        raise SystemExit(f"`out` must be empty or an earlier site, got {out}. Name another folder.")
    with tempfile.TemporaryDirectory() as folder:
        docs = Path(folder, "docs")
        pages = {page.place: page for page in (*written(), *made.pages(ROOT))}
        for page in pages.values():
            put(docs / page.place, staged(page, pages, docs))
        for path in (*HERE.glob("assets/*"), *made.ASSETS):
            put(docs / "assets" / path.name, path.read_bytes())
        for place, html in made.whole(ROOT).items():
            put(docs / place, framed(html, place) if place.endswith(".html") else html)
        put(Path(folder, "mkdocs.yml"), json.dumps(configured(pages)))
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        shutil.rmtree(out, ignore_errors=True)
        shutil.move(Path(folder, "site"), out)
    for path in out.rglob("*.html"):  # an empty heading of a table is none
        put(path, EMPTY.sub("<td></td>", path.read_text("utf-8")))
    return faults(out)


def put(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def written() -> Iterator[made.Page]:
    """Yield the pages that the menu names, from the repository and from `reference/` here."""
    for place in NAMED:
        path = HERE / place if place.startswith("reference/") else ROOT / place
        if path.is_file():
            yield made.Page(place, path.read_text("utf-8"), path.relative_to(ROOT).as_posix())


def unfolded(menu: list[Any], pages: dict[str, made.Page]) -> list[Any]:
    """Replace each pattern of a menu by the pages that match it and are not named themselves."""
    found: list[Any] = []
    for entry in menu:
        if isinstance(entry, dict):
            lists = {k: unfolded(v, pages) for k, v in entry.items() if isinstance(v, list)}
            found.append(entry | lists)
        elif "*" in entry:
            found += [p for p in pages if Path(p).match(entry) and p not in NAMED]
        else:
            found.append(entry)
    return found


def configured(pages: dict[str, made.Page]) -> dict[str, Any]:
    """Return the settings of Zensical, with addresses, version, and the pages of the menu."""
    config = tomllib.loads(SETTINGS)["project"]
    config["nav"] = unfolded(config["nav"], pages)
    config["site_url"] = SITE or "https://posenc.invalid/"  # without one there is no 404 page
    config["copyright"] = f"posenc {__version__}"
    config["extra"] |= {"site": SITE}
    config["theme"]["custom_dir"] = str(HERE / "theme")
    handler = config["plugins"]["mkdocstrings"]["handlers"]["python"]
    handler["paths"] = [str(ROOT / "src")]
    handler["options"]["extensions"] = [str(HERE / "docstrings.py")]
    return config | ({"repo_url": REPOSITORY, "edit_uri": ""} if REPOSITORY else {})


def staged(page: made.Page, pages: dict[str, made.Page], docs: Path) -> str:
    """Return the text of a page with its front matter, and stage the files that it shows.

    Links are relative to the page's source. One to a file without a page leads to the
    repository, or is left out where its address is not known.
    """
    up = "../" * page.place.count("/")

    def lead(found: re.Match[str]) -> str:
        image, words, target = found.groups()
        path, _, anchor = target.partition("#")
        file = os.path.normpath(Path(page.source).parent / path)
        if not path or "://" in path or not (ROOT / file).exists():
            return found[0]
        if image or file.endswith((".csv", ".svg")):
            put(docs / file, (ROOT / file).read_bytes())
        elif f"{file}/README.md" in pages:
            file += "/README.md"
        elif Path(file).with_suffix(".md").as_posix() in pages:
            file = Path(file).with_suffix(".md").as_posix()
        elif REPOSITORY:
            kind = "blob" if (ROOT / file).is_file() else "tree"
            return f"[{words}]({REPOSITORY}/{kind}/main/{file})"
        else:
            return words
        return f"{image}[{words}]({up}{file}{'#' * bool(anchor)}{anchor})"

    text = STATE.sub(rf"[`\1`]({up}explorer.html\1)", LINK.sub(lead, page.text))
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    front = {
        "title": title[1].replace("`", "") if title else "posenc",
        # The theme puts it between quotation marks as it is
        "description": (page.description or made.first(text)).replace('"', "'"),
        "source": page.source,
        "image": page.image,
    }
    return f"---\n{json.dumps(front)}\n---\n{text}"  # JSON is YAML


def framed(html: str, place: str) -> str:
    """Give a page that is complete in itself a picture for links to it, and a way to the site."""
    up = "../" * place.count("/")
    image = f'<meta property="og:image" content="{SITE}assets/card.png">'
    html = html.replace("</head>", f"{image}\n</head>", 1)
    home = f'<nav aria-label="Site"><a href="{up}index.html">posenc</a></nav>'
    return re.sub(r'(<a class="skip".*?</a>)', rf"\1\n{home}", html, count=1)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = build(Path(sys.argv[1]))
    print(f"{sys.argv[1]}/index.html")
    if found:
        sys.exit("\n".join(["the pages have faults:", *found]))
