"""Read docstrings as Markdown: examples become blocks of code."""

import re

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Examples(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring:
            text = obj.docstring.value
            obj.docstring.value = EXAMPLE.sub(lambda m: f"\n```pycon\n{m[0]}\n```\n", text)
