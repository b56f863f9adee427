"""The base class of implementations of attention."""

from torch import Tensor

from posenc.attention.call import Call


class Path:
    """Base class of an implementation of attention, with the conditions for its use."""

    def cannot(self, call: Call) -> str:
        """Return the reason why this implementation cannot compute the call, or ""."""
        return ""

    def skips(self, call: Call) -> str:
        """Return the reason why "auto" skips this implementation although it works, or ""."""
        return ""

    def why(self, call: Call) -> str:
        """Return a sentence that explains why this implementation was chosen."""
        raise NotImplementedError

    def run(self, call: Call) -> Tensor:
        """Compute attention, (batch, head, query, value)."""
        raise NotImplementedError
