"""Sizes of memory as people write them. In goes a text, `28GB` or `30GiB`; out come bytes."""

from __future__ import annotations

from distir.dialects.errors import DistirError

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_bytes(text: str, what: str) -> int:
    """Bytes; raises DistirError, which names `what` is asked for."""
    number = text.strip().rstrip("bBgGiIkKmMtT ")
    unit = text.strip()[len(number) :].strip().upper()
    try:
        return round(float(number) * UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        raise DistirError(f"{what}: expected a size such as 28GB or 30GiB, got '{text}'") from None
