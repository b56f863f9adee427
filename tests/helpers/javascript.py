"""Run JavaScript modules of the explorer in Node.js, or in Chromium if Node.js is missing."""

import json
import os
import re
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import pytest


def source(name: str) -> str:
    """Return the source of a module without imports and exports, so that code can be appended."""
    text = (files("posenc.show.explorer") / name).read_text("utf-8")
    text = re.sub(r"^import \{[^}]*\} from .*;$", "", text, flags=re.MULTILINE)
    return re.sub(r"^export ", "", text, flags=re.MULTILINE)


def evaluate(modules: list[str], function: str, argument: Any) -> Any:
    """Call a JavaScript function and return its result; argument and result are JSON."""
    body = "\n".join(map(source, modules))
    script = f"(argument) => {{ {body}\nreturn ({function})(argument); }}"
    if node := shutil.which("node"):
        asked = "JSON.parse(require('fs').readFileSync(0, 'utf-8'))"
        run = [node, "-e", f"console.log(JSON.stringify(({script})({asked})))"]
        done = subprocess.run(run, input=json.dumps(argument), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        assert "POSENC_BROWSER" not in os.environ, "POSENC_BROWSER is set: no node, no chromium"
        pytest.skip("there is neither node nor chromium on the path")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found)
        try:
            return browser.new_page().evaluate(script, argument)
        finally:
            browser.close()
