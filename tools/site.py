"""Build the site, one static folder that opens offline: python tools/site.py OUT."""

import sys
import time
from pathlib import Path

from website import build, links

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("python tools/site.py OUT: name the folder to write")
    begun, out = time.time(), Path(sys.argv[1])
    pages = build.everything(out)
    if broken := links.broken(out):
        sys.exit("\n".join(["these links lead nowhere:", *broken]))
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
    print(f"{out}/index.html: {pages} pages, {size:.1f} MB, {time.time() - begun:.0f} s")
