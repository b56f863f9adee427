"""The checker of types in tests: beartype, to which a whole number is a number, as PEP 484 says.

jaxtyping's import hook puts `jaxtyping.jaxtyped` above each function of the library. Its own builds
two more functions for each, binds the arguments to their names at each call, and checks each call
twice, which doubles the time of all tests. The one that takes its place here has beartype check
arguments and result once, within sizes of axes that hold for this call alone.
"""

import dataclasses
import inspect
from functools import partial, wraps

import jaxtyping
import torch
from beartype import BeartypeConf, beartype

REFUSED = jaxtyping.TypeCheckError  # a TypeError, as jaxtyping's own
check = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=REFUSED))
sizes_of_a_call = jaxtyping.jaxtyped("context")


def known(hint, function):
    """Test whether a name in quotes means something here: some are there for pyright alone."""
    try:
        return not isinstance(hint, str) or eval(hint, function.__globals__) is not None
    except (NameError, TypeError):
        return False


def unchecked():
    """True where checks are switched off, and where a graph is traced: its sizes are no numbers."""
    return jaxtyping.config.jaxtyping_disable or torch.compiler.is_compiling()


def jaxtyped(thing=None, *, typechecker=check):
    """Return a function, or a class with the fields of a dataclass, whose types are checked."""
    if thing is None:
        return partial(jaxtyped, typechecker=typechecker)
    if thing == "context":
        return sizes_of_a_call
    if inspect.isclass(thing):
        if dataclasses.is_dataclass(thing) and not hasattr(thing.__init__, "__wrapped__"):
            thing.__init__ = jaxtyped(thing.__init__, typechecker=typechecker)
        return thing
    if not thing.__annotations__:
        return thing
    written = thing.__annotations__
    thing.__annotations__ = {n: hint for n, hint in written.items() if known(hint, thing)}
    checked, thing.__annotations__ = typechecker(thing), written
    hints = written.values()
    if any(isinstance(hint, str) or "jaxtyping" in repr(hint) for hint in hints):

        @wraps(thing)
        def run(*args, **kwargs):
            if unchecked():
                return thing(*args, **kwargs)
            with sizes_of_a_call:
                return checked(*args, **kwargs)
    else:  # no tensor

        @wraps(thing)
        def run(*args, **kwargs):
            return (thing if unchecked() else checked)(*args, **kwargs)

    return run


jaxtyping.jaxtyped = jaxtyped  # the first function that the hook meets imports this
