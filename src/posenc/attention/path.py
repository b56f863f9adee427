"""A way to compute attention, as an object."""

from torch import Tensor

from posenc.attention.call import Call


class Path:
    """A way to compute attention: what it serves, and how it is run."""

    def serves(self, call: Call) -> str:
        """Why it cannot compute this call; "" where it can."""
        return ""

    def suits(self, call: Call) -> str:
        """Why "auto" passes over it, though it may serve; "" where it does not."""
        return ""

    def why(self, call: Call) -> str:
        """What speaks for it, in a sentence."""
        raise NotImplementedError

    def run(self, call: Call) -> Tensor:
        """Attend: (batch, head, query, value)."""
        raise NotImplementedError
