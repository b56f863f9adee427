"""The garbage collector around imports, in a fresh Python and in one that has torch already."""

import gc
import json
import subprocess
import sys

from posenc.commands.imports import no_garbage_collection

FRESH = """
import gc, json
from posenc.commands.imports import no_garbage_collection
states = [gc.isenabled()]
try:
    with no_garbage_collection():
        states.append(gc.isenabled())
        import no_such_module
except ImportError:
    states.append(gc.isenabled())
print(json.dumps([states, gc.get_freeze_count() > 1_000]))
"""


def test_it_is_off_while_modules_are_imported_and_passes_over_them_later():
    ran = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == [[True, False, True], True]


def test_nothing_changes_where_torch_is_imported_already():
    before = gc.isenabled(), gc.get_freeze_count()
    with no_garbage_collection():
        assert (gc.isenabled(), gc.get_freeze_count()) == before
    assert (gc.isenabled(), gc.get_freeze_count()) == before


def test_explore_imports_torch_within():
    """The count is of what torch made: some modules alone make a few thousand objects."""
    code = (
        "import gc, sys; from posenc.commands import cli\n"
        "cli.main(['explore', '--no-browser', '--study', 'none'])"
    )
    code = code.replace("cli.main", "try: cli.main") + "\nexcept SystemExit: pass\n"
    code += "print(gc.get_freeze_count() > 100_000, 'torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "True"]
