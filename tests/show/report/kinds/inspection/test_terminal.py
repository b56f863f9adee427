"""Models as a person sees them on the terminal, against what is said of them."""

import io

from rich.console import Console

from posenc.models.inspection import inspect
from posenc.show.report import page
from posenc.show.report.kinds.inspection import terminal, words


def test_a_verdict_beside_a_warning_is_not_green(llama):
    """On the terminal and on the page; of a shorter text there is nothing to mind."""
    for target, sure in ((131072, False), (4096, True)):
        found = inspect(llama, target)
        console = Console(file=io.StringIO(), force_terminal=True, width=100, no_color=False)
        terminal.show(found, console)
        said = words.verdict_of(found)
        (line,) = (one for one in console.file.getvalue().splitlines() if said in one)
        assert line.startswith("\x1b[32m") is sure, target
        assert (f'<p class="same">{said}' in page.render(found)) is sure, target
