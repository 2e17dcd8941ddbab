"""Numbers of a machine that are other than its file says: `--set KEY=VALUE`. In go the file's tables and such texts, with keys as `distir machines
NAME` prints them; out come the tables with these values in their place, whose source is the setting."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, cast

from distir.dialects.errors import DistirError
from distir.interpreters.byte_sizes import parse_bytes


def apply_settings(table: dict[str, Any], settings: Sequence[str]) -> None:
    """Sets each in turn, in place. Raises DistirError for a text of another form, and for a table that the file has not; a key that no machine has is
    refused when the tables are read."""
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise DistirError(f"--set {text}: expected KEY=VALUE, with a key that distir machines NAME prints")
        *path, last = key.split(".")
        inner: object = table
        for part in path:
            inner = _inside(inner, part)
            if inner is None:
                raise DistirError(f"--set {key}: the machine has no {part}: distir machines NAME lists its keys")
        if not isinstance(inner, dict):
            raise DistirError(f"--set {key}: expected a key that distir machines NAME prints")
        number = _number(key, value)
        own = cast(dict[str, Any], inner)
        own[last] = number if isinstance(own.get(last), int | float) else {"value": number, "source": f"--set {text}"}


def _inside(tables: object, name: str) -> object:
    """The table of this name: an entry, or a row of an array."""
    if isinstance(tables, dict):
        return cast(dict[str, object], tables).get(name)
    rows = cast(list[dict[str, object]], tables) if isinstance(tables, list) else []
    return next((row for i, row in enumerate(rows) if str(row.get("name", i)) == name), None)


def _number(key: str, value: str) -> float:
    if key.endswith("_bytes"):
        return parse_bytes(value, f"--set {key}")
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise DistirError(f"--set {key}: expected a number, got '{value}'")
    return int(number) if number.is_integer() else number
