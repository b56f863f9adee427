"""Build hook: what is measured of each encoding is in the wheel, so that its users need not wait.

It takes torch and some 20 seconds, once for these files. Without torch, as in an isolated build,
the wheel is made all the same: `posenc show` and `posenc explore` then measure on first use.
"""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class MeasuredEncodings(BuildHookInterface):
    """Adds the files of `posenc.support.made` to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        sys.path.insert(0, str(Path(self.root) / "src"))
        try:
            from posenc.properties.card import findings, findings_key
            from posenc.show.explorer import data, measured, ready
            from posenc.support import made
        except ImportError as error:
            self.app.display_warning(f"{error.name} is missing: users measure on first use")
            return
        bases = data.published_bases()
        data.catalog_page()
        names = [ready.file_name()]
        for card in data.CATALOG:
            findings(card)
            names += [measured.file_name(card, bases), made.file_name(*findings_key(card))]
        for name in names:
            kept = made.cache_folder() / name
            if kept.exists():
                build_data["force_include"][str(kept)] = f"posenc/made/{name}"
