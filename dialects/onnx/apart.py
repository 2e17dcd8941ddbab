"""onnx's inference of shapes in a fork of the process, where it may crash: it does not check every integer attribute before it takes it for
a position (`batch_dims` of GatherND, `axis` of LayerNormalization)."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Iterable, Iterator

from onnx import AttributeProto, NodeProto

LEAST = -2
"""Smaller integers are tried apart: nearly all positions that are counted from the end are the last two."""


def is_safe(number: int, least: int = LEAST) -> bool:
    """Whether an integer attribute is one that inference has not been seen to crash on: no position far outside, and no more bits
    than onnx takes it for."""
    return least <= number < 2**31


def crashes(infer: Callable[[], object]) -> bool:
    """Whether a call ends its process by a signal; it is made in a fork of this one."""
    if (child := os.fork()) == 0:
        try:
            faulthandler.disable()
            infer()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def integers(nodes: Iterable[NodeProto]) -> Iterator[int]:
    """All integer attributes of nodes and of those inside them."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.INT:
                yield attribute.i
            yield from attribute.ints
            if attribute.HasField("g"):
                yield from integers(attribute.g.node)
