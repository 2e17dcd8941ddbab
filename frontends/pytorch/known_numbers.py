"""Takes a tensor that a traced step reads as a number or a condition, and gives that number where it is the same in every run: where no
argument of the step and no draw is behind it (`torch.nn.Transformer` asks whether a mask is that of causal attention)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage]


def number_of(operator: OpOverload, *tensors: Tensor) -> Any:
    """The operator's number, of traced tensors; NotImplemented where it is not known."""
    mode = get_proxy_mode()
    slots = [None if mode is None else get_proxy_slot(each, mode.tracer, None) for each in tensors]
    nodes = [slot.proxy.node for slot in slots if slot is not None]
    if mode is None or len(nodes) < len(tensors) or any(_varies(node) for node in nodes):
        return NotImplemented
    with _disable_current_modes(), torch.no_grad():
        values = _values(mode.tracer)
        return operator(*(values[node] for node in nodes)) if values.keys() >= set(nodes) else NotImplemented


def _varies(node: fx.Node) -> bool:
    """Whether an argument or a draw is among what a node is computed from."""
    seen, waiting = {node}, [node]
    while waiting:
        each = waiting.pop()
        if not _is_fixed(each):
            return True
        waiting += (fresh := [n for n in each.all_input_nodes if n not in seen])
        seen |= set(fresh)
    return False


def _is_fixed(node: fx.Node) -> bool:
    """Whether a node computes the same from the same."""
    draws = isinstance(node.target, OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags
    return node.op == "get_attr" or (node.op == "call_function" and not draws)


def _values(tracer: fx.Tracer) -> dict[fx.Node, Any]:
    """Values of all nodes of which they are known, with what is written to them; of none, if something is written that is not."""
    values: dict[fx.Node, Any] = {}
    for node in tracer.graph.nodes:
        inputs = node.all_input_nodes
        if _is_fixed(node) and values.keys() >= set(inputs):
            if node.op == "get_attr":
                values[node] = getattr(tracer.root, node.target).clone()
            else:
                values[node] = node.target(*fx.map_arg(node.args, values.get), **fx.map_arg(node.kwargs, values.get))
        elif _writes(node) and any(each in values for each in inputs):
            return {}
    return values


def _writes(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable  # pyright: ignore[reportPrivateUsage]
