"""Train short, test long: tasks with lengths, small models, and the statistics of comparing them.

`load` gives back a model that `posenc study --keep` has written.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posenc.lab.study.kept import load as load


# Imported when asked for, so that a folder's lock answers before torch is loaded
def __getattr__(name: str) -> Any:
    if name == "load":
        from posenc.lab.study.kept import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
