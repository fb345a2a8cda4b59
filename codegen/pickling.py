"""Says in one line why an optimized module cannot be pickled, before half of it is written."""

from __future__ import annotations

import pickle

from torch import nn

from memplan.errors import UsageError


def require_picklable(part: str, value: object) -> None:
    """Refuse to pickle a function that another process could not find.

    Args:
        part: What the value is to the user, such as `loss`.
        value: A module, whose parts are not looked into, or anything else.

    Raises:
        UsageError: It cannot be pickled; the text says what to save instead.
    """
    if isinstance(value, nn.Module):
        return
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            f"the {part} cannot be pickled ({error}); define it at the top of a module, or save "
            "state_dict() and, with OptimizedModule.save, the plan"
        ) from None
