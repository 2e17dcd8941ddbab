"""Whether onnx's inference of shapes crashes. In go nodes, or a call to try in a fork of the process; out comes
whether the call is safe. onnx does not check every integer attribute before it takes it for a position or a count
(`batch_dims` of GatherND, `axis` of LayerNormalization, `num_outputs` of Split)."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Iterable, Iterator

from onnx import AttributeProto, NodeProto

LEAST = -2
"""Smaller integers are tried apart: nearly all positions that are counted from the end are the last two."""


def is_safe(number: int, least: int = LEAST, results: int = 1) -> bool:
    """Whether an integer attribute is one that inference has not been seen to crash on: no position far outside, no more bits than onnx takes
    it for, and no count that falls short of the operation's results."""
    return least <= number < 2**31 and not 0 < number < results


def are_safe(nodes: Iterable[NodeProto]) -> bool:
    """Whether all integer attributes of nodes and of those inside them are."""
    return all(is_safe(number, results=results) for number, results in _integers(nodes))


def crashes(infer: Callable[[], object]) -> bool:
    """Whether a call ends its process by a signal; it is made in a fork of this one, which says nothing."""
    if (child := os.fork()) == 0:
        try:
            faulthandler.disable()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            infer()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def _integers(nodes: Iterable[NodeProto]) -> Iterator[tuple[int, int]]:
    """Each, with the number of the node's results."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.INT:
                yield attribute.i, len(node.output)
            for number in attribute.ints:
                yield number, 1
            if attribute.HasField("g"):
                yield from _integers(attribute.g.node)
