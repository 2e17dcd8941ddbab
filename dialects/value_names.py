"""Names of values in program text. In goes any text that a model calls a value; out comes a name that xDSL's printer and parser agree
on."""

from __future__ import annotations

import re
from collections.abc import Iterable

from xdsl.ir import SSAValue

_NUMBERS = re.compile(r"(?:_[0-9]+)+$")


def name_values(values: Iterable[SSAValue], text: str) -> None:
    """Name the values for readers after this text: letters and digits stay, `h.0.attn` is `%h_0_attn`.

    xDSL prints values of one name as `t`, `t_1`, `t_2`, and keeps a name without one such number. A name that still ends in a
    number (`t_1` of `t_1_2`) would be printed like the second value of another, so all numbers go."""
    name = _NUMBERS.sub("", re.sub(r"[^A-Za-z0-9_]", "_", text))
    if name[:1].isdigit():
        name = f"v{name}"
    for value in values:
        value.name_hint = name or None


def is_numbered(value: SSAValue) -> bool:
    """Whether the name ends in a number, so that it may be printed like another."""
    return value.name_hint is not None and _NUMBERS.search(value.name_hint) is not None
