"""Sets numbers of a machine: `--set KEY=VALUE`. In go the file's tables and such texts, with keys as `distir
machines NAME` prints them or their last parts (`node.bandwidth`); out come the tables with these values, whose
source is the setting. `0.5x` is half of the file's number, also for measured figures of a link."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Any, cast

from distir.dialects.errors import DistirError
from distir.interpreters.byte_sizes import parse_bytes

MEASURED = {"bandwidth_bytes_per_second": "bus_bandwidth_bytes_per_second", "latency_seconds": "latency_seconds"}
"""Of a link's figures, what they are called in its measurements (`[levels.fitted]`)."""

UNIT = re.compile(r"_(bytes|seconds|flops)(_per_second)?$")


def apply_settings(table: dict[str, Any], settings: Sequence[str]) -> None:
    """Sets each in turn, in place. Raises DistirError for a text of another form, and for a table that the file has not; a key that no machine has is
    refused when the tables are read."""
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise DistirError(f"--set {text}: expected KEY=VALUE, with a key that distir machines NAME prints")
        *path, last = _full(key, table)
        inner: object = table
        for part in path:
            inner = _inside(inner, part)
            if inner is None:
                raise DistirError(f"--set {key}: the machine has no {part}: distir machines NAME lists its keys")
        if not isinstance(inner, dict):
            raise DistirError(f"--set {key}: expected a key that distir machines NAME prints")
        own, source = cast(dict[str, Any], inner), f"--set {text}"
        if value.endswith("x") and value != "x":
            _scale(key, own, last, _number(key, value[:-1]), source)
        else:
            size = parse_bytes(value, f"--set {key}") if last.endswith("_bytes") else _number(key, value)
            _put(own, last, size, source)


def _full(key: str, table: dict[str, Any]) -> list[str]:
    """The parts of the key: what is given, or, if it is the end of one key of the machine, with or without its unit, that key."""
    parts, keys = key.split("."), list(_keys(table))
    if parts in keys:
        return parts
    ends = [k for k in keys if k[-len(parts) : -1] == parts[:-1] and f"{k[-1]}_".startswith(f"{parts[-1]}_")]
    if len(ends) > 1:
        raise DistirError(f"--set {key}: which of {', '.join(map('.'.join, ends))}?")
    if not ends and len(parts) < 3 and parts[0] not in table:
        ends = [[*k[i:-1], UNIT.sub("", k[-1])] for k in keys for i in range(len(k))]
        near = get_close_matches(key, map(".".join, ends), 1, 0.6)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise DistirError(f"--set {key}: the machine has no {key}{hint}: distir machines NAME lists its keys")
    return ends[0] if ends else parts


def _keys(table: object, path: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """The path of every number."""
    if isinstance(table, dict) and "value" not in table:
        for name, inner in cast(dict[str, object], table).items():
            yield from _keys(inner, (*path, name))
    elif isinstance(table, list):
        for number, row in enumerate(cast(list[object], table)):
            name = cast(dict[str, object], row).get("name", number) if isinstance(row, dict) else number
            yield from _keys(row, (*path, str(name)))
    elif not isinstance(table, str):
        yield list(path)


def _inside(tables: object, name: str) -> object:
    """The table of this name: an entry, or a row of an array."""
    if isinstance(tables, dict):
        return cast(dict[str, object], tables).get(name)
    rows = cast(list[dict[str, object]], tables) if isinstance(tables, list) else []
    return next((row for i, row in enumerate(rows) if str(row.get("name", i)) == name), None)


def _put(table: dict[str, Any], name: str, number: float, source: str) -> None:
    table[name] = number if isinstance(table.get(name), int | float) else {"value": number, "source": source}


def _scale(key: str, table: dict[str, Any], name: str, factor: float, source: str) -> None:
    """Multiplies a number, and of a link what was measured of it."""
    entry: Any = table.get(name)
    value: object = cast(dict[str, object], entry).get("value") if isinstance(entry, dict) else entry
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise DistirError(
            f"--set {key}: the machine has no such number to multiply: distir machines NAME lists its keys"
        )
    _put(table, name, _whole(value * factor), source)
    for sizes in cast(dict[str, Any], table.get("fitted", {})).values() if name in MEASURED else ():
        for measured in cast(dict[str, Any], sizes).values():
            if isinstance(measured, dict):
                own = cast(dict[str, Any], measured)
                own[MEASURED[name]] = own[MEASURED[name]] * factor


def _number(key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise DistirError(f"--set {key}: expected a number, got '{value}'")
    return _whole(number)


def _whole(number: float) -> float:
    return int(number) if float(number).is_integer() else number
