"""A solver's name with options in one text, as the command line takes it."""

from __future__ import annotations

from dataclasses import Field
from typing import Any

from memplan.errors import UsageError

_YES = ("yes", "true", "on", "1")
_NO = ("no", "false", "off", "0")


def solver_spec(text: str) -> tuple[str, dict[str, str]]:
    """Return the name and the options of `name:option=value:option=value`.

    >>> solver_spec("dtr:heuristic=lru:dealloc=banish")
    ('dtr', {'heuristic': 'lru', 'dealloc': 'banish'})

    Raises:
        UsageError: A part is no `option=value`.
    """
    name, *parts = text.split(":")
    options: dict[str, str] = {}
    for part in parts:
        option, equals, value = part.partition("=")
        if not option or not equals:
            raise UsageError(f"cannot read {part!r} in {text!r}; write {name}:option=value")
        options[option.strip().replace("-", "_")] = value.strip()
    return name.strip(), options


def option_value(solver: str, option: Field[Any], text: str) -> Any:
    """Return `text` as a value of an option: a number, yes or no, a word, or words with `+`.

    Raises:
        UsageError: The option takes no such value, or none that can be written as text.
    """
    kind = option.type if isinstance(option.type, str) else option.type.__name__
    if kind.endswith("| None") and text.lower() == "none":
        return None
    kind = kind.removesuffix("| None").strip()
    try:
        if kind == "bool" and text.lower() in (*_YES, *_NO):
            return text.lower() in _YES
        if kind in ("int", "float"):
            return int(text) if kind == "int" else float(text)
    except ValueError:
        pass
    if kind == "str":
        return text
    if kind == "tuple[str, ...]":
        return tuple(text.split("+"))
    wanted = {"bool": "yes or no", "int": "a whole number", "float": "a number"}.get(kind)
    if wanted is None:
        raise UsageError(f"option {option.name!r} of solver {solver!r} can be set in Python only")
    raise UsageError(f"option {option.name!r} of solver {solver!r} takes {wanted}, not {text!r}")
