"""Length-generalisation studies: tasks, small transformers, training, and statistics.

`load` reads a model that `posenc study --keep` has saved.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posenc.lab.study.saved_models import load as load


# Imported on first use, because the lock of a folder must be checked before torch is loaded
def __getattr__(name: str) -> Any:
    if name == "load":
        from posenc.lab.study.saved_models import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
