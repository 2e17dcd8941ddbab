"""Cases of a parametrised test, of which `make test` runs a few and `make check-long` all."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def also_long(cases: Iterable[Any], quick: Collection[Any], several: bool = False) -> list[Any]:
    """Cases, of which all but the quick ones are long tests; `several`: each is the values of several parameters."""
    return [
        case if case in quick else pytest.param(*(case if several else (case,)), marks=pytest.mark.long)
        for case in cases
    ]
