"""Takes a pass as it is asked for on a command line; gives the pass with its options, numbers and text read as the pass declares them."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import ArgSpec, ParameterListType, ParameterType

from distir.dialects.plugins import expected

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def reading_options(pass_: type[ModulePass]) -> type[ModulePass]:
    """The same pass, whose options may be whole numbers where it takes fractions, and numbers where it takes text. One that is not what the pass takes
    is a ValueError that says what is."""

    def from_spec(cls: type[ModulePass], spec: ArgSpec) -> ModulePass:
        hints = {
            name: hint
            for name, hint in get_type_hints(pass_).items()
            if name in pass_.__dataclass_fields__ and name != "name"
        }
        given = spec.normalize_parameter_names().parameters
        for name in given:
            if name not in hints:
                raise ValueError(
                    f"{spec.name} has no option {_shown(name)}: {expected(_shown(name), map(_shown, hints))}"
                )
        read = {name: _read(f"{spec.name}: {_shown(name)}", value, hints[name]) for name, value in given.items()}
        return super(found, cls).from_spec(ArgSpec(spec.name, read))  # pyright: ignore

    found: Any = type(pass_.__name__, (pass_,), {"from_spec": classmethod(from_spec), "__module__": pass_.__module__})
    return found


def _shown(name: str) -> str:
    return name.replace("_", "-")


def _read(what: str, value: ParameterListType, hint: Any) -> ParameterListType:
    kinds = dict.fromkeys(_kinds(hint))
    is_list = any(get_origin(part) is tuple for part in (hint, *get_args(hint)))
    found = [_one(each, kinds) for each in value]
    if len(found) > 1 and not is_list and all(isinstance(each, str) for each in found):
        return (",".join(map(str, found)),)
    if any(each is None for each in found) or (len(found) > 1 and not is_list):
        expected = " or ".join(WORDS[kind] for kind in kinds)
        got = ",".join(str(each).lower() if isinstance(each, bool) else str(each) for each in value)
        raise ValueError(f"{what}: expected {expected}, got {got}")
    return tuple(each for each in found if each is not None)


def _kinds(hint: Any) -> Iterable[type]:
    """The kinds of values in a type."""
    parts = get_args(hint)
    if not parts and hint in WORDS:
        yield hint
    for part in parts:
        if part not in (NoneType, Ellipsis):
            yield from _kinds(part)


def _one(value: ParameterType, kinds: Iterable[type]) -> ParameterType | None:
    """A value as one of these kinds; None if it is of none."""
    number = None if isinstance(value, bool) else _number(value)
    if type(value) in kinds and (number is None or isinstance(value, str) or isfinite(number)):
        return value
    if number is not None and isfinite(number):
        if int in kinds and number.is_integer():
            return int(number)
        if float in kinds:
            return number
    if str in kinds:
        return str(value).lower() if isinstance(value, bool) else str(value)
    return None


def _number(value: str | float) -> float | None:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
