"""Row-wise computations of a model. In goes a traced graph, or a call of the model, with operators that name rows of
the batch by number or lay them end to end; out come operators that work on each row by itself, so that the batch can be cut."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from distir.frontends.pytorch.rewrites import call

aten = torch.ops.aten
READS, WRITES = (aten.index.Tensor, aten._unsafe_index.Tensor), (aten.index_put.default, aten._unsafe_index_put.default)


def rows_by_themselves(graph: fx.GraphModule) -> None:
    """`x[arange(rows), i]`, one element (or, with `i` of two dims, several) of each row, becomes `gather`, and what puts elements there, such as its
    gradient, `scatter`."""
    for node in list(graph.graph.nodes):
        if node.target in (*READS, *WRITES) and (places := _places(node)) is not None:
            with graph.graph.inserting_before(node):
                made = _by_row(graph.graph, node, places)
            node.replace_all_uses_with(made)
            graph.graph.erase_node(node)


def _places(node: fx.Node) -> fx.Node | None:
    """The indices within each row, of an operator that names all rows by number; None if it does not."""
    whole, indices = node.args[0], node.args[1]
    if not isinstance(whole, fx.Node) or not isinstance(indices, list | tuple) or len(indices) != 2:
        return None
    numbers, places = indices
    if not isinstance(numbers, fx.Node) or not isinstance(places, fx.Node) or whole.meta["val"].dim() < 2:
        return None
    shape, taken = tuple(numbers.meta["val"].shape), tuple(places.meta["val"].shape)
    rows = whole.meta["val"].shape[0]
    if places.meta["val"].is_floating_point() or places.meta["val"].dtype is torch.bool or _counted(numbers) != rows:
        return None
    return (
        places
        if (shape, taken) == ((rows,), (rows,)) or (shape, taken[:1], len(taken)) == ((rows, 1), (rows,), 2)
        else None
    )


def _counted(node: fx.Node) -> int | None:
    """How many numbers from 0 on a value has, in any shape; None if it has others."""
    while node.target in (aten.unsqueeze.default, aten.view.default, aten._to_copy.default) and isinstance(
        node.args[0], fx.Node
    ):
        node = node.args[0]
    if getattr(node.target, "overloadpacket", None) is not aten.arange:
        return None
    start, end, step = {1: (0, *node.args, 1), 2: (*node.args, 1), 3: node.args}[len(node.args)]
    return int(end) if (start, step) == (0, 1) and isinstance(end, int) else None  # pyright: ignore[reportArgumentType]


def _by_row(graph: fx.Graph, node: fx.Node, places: fx.Node) -> fx.Node:
    whole: Any = node.args[0]
    shape = list(whole.meta["val"].shape)
    taken = list(places.meta["val"].shape)
    several = [*taken, 1][:2]
    within = call(graph, node, aten.remainder.Scalar, (places, shape[1]))  # an index may count from the end
    within = call(graph, node, aten.view.default, (within, [*several, *(1 for _ in shape[2:])]))
    within = call(graph, node, aten.expand.default, (within, [*several, *shape[2:]]))
    if node.target in READS:
        made = call(graph, node, aten.gather.default, (whole, 1, within))
        return made if len(taken) == 2 else call(graph, node, aten.squeeze.dim, (made, 1))
    values = call(graph, node, aten.expand.default, (node.args[2], [*taken, *shape[2:]]))
    if len(taken) == 1:
        values = call(graph, node, aten.unsqueeze.default, (values, 1))
    adds = len(node.args) > 3 and node.args[3]
    return call(graph, node, aten.scatter_add.default if adds else aten.scatter.src, (whole, 1, within, values))


def _over_rows(values: Tensor) -> Tensor:
    return values.sum(1)


class _Bags:
    """Which of several bags, that begin at `offsets` (the first at 0), each element of a list is in."""

    def __init__(self, offsets: Tensor, elements: int) -> None:
        at = torch.arange(elements, dtype=offsets.dtype)
        self.count = len(offsets)
        self.places = (at.unsqueeze(1) >= offsets[1:]).sum(1)

    def total(self, values: Tensor) -> Tensor:
        return values.new_zeros(self.count, *values.shape[1:]).index_add(0, self.places, values)

    def greatest(self, values: Tensor) -> Tensor:
        """Zero in an empty bag."""
        places = self.places.unsqueeze(1).expand_as(values)
        return values.new_zeros(self.count, *values.shape[1:]).scatter_reduce(
            0, places, values, "amax", include_self=False
        )


@contextmanager
def bags_as_lookups() -> Generator[None]:
    """`embedding_bag` is a lookup, and a sum, mean or maximum: over each row of a matrix, or over what lies between offsets."""
    whole = F.embedding_bag

    def as_lookup(
        input: Tensor,  # as torch calls it
        weight: Tensor,
        offsets: Tensor | None = None,
        max_norm: float | None = None,
        norm_type: float = 2,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        per_sample_weights: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Tensor:
        if (
            (input.dim(), offsets is None) not in ((2, True), (1, False))  # torch refuses it
            or max_norm is not None
            or scale_grad_by_freq
            or (mode == "max" and padding_idx is not None)
        ):
            given = (offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights)
            return whole(input, weight, *given, include_last_offset, padding_idx)
        found = F.embedding(input, weight, padding_idx)
        if per_sample_weights is not None:
            found = found * per_sample_weights.unsqueeze(-1)
        bags = _Bags(offsets[:-1] if include_last_offset else offsets, len(input)) if offsets is not None else None
        if mode == "max":
            return found.amax(1) if bags is None else bags.greatest(found)
        if padding_idx is not None:
            counted = (input != padding_idx % len(weight)).unsqueeze(-1)
            found = torch.where(counted, found, 0)
        elif bags is None:
            return found.sum(1) if mode == "sum" else found.mean(1)
        else:
            counted = torch.ones_like(input, dtype=torch.bool).unsqueeze(-1)
        add = bags.total if bags is not None else _over_rows
        return add(found) if mode == "sum" else add(found) / add(counted.to(found.dtype)).clamp(min=1)

    with patch.object(F, "embedding_bag", as_lookup):
        yield
