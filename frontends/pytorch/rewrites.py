"""What is done to a traced graph before it is imported: writes to tensors that nobody else sees become values, and what
draws depend on comes first."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx


def without_writes(graph: fx.GraphModule) -> None:
    """An operator that writes to a tensor of its own (made by an operator, and read by nothing before) becomes the one
    that gives a new tensor. What else writes stays (`torch.func.functionalize` traces the graph anew for that)."""
    for node in list(graph.graph.nodes):
        schema = _schema(node)
        if schema is None or not schema.is_mutable or not _is_own(written := node.args[0], node):
            continue
        value: Tensor = written.meta["val"]
        others = [a.meta.get("val") for a in node.all_input_nodes if a is not written]
        if not value.is_floating_point() or any(not isinstance(o, Tensor) or o.dtype != value.dtype for o in others):
            continue
        if schema.name == "aten::copy_":
            if others[0].shape == value.shape:
                node.replace_all_uses_with(node.args[1])
                graph.graph.erase_node(node)
            continue
        packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::").removesuffix("_"), None)
        if (functional := getattr(packet, schema.overload_name or "default", None)) is not None:
            node.target = functional


def _schema(node: fx.Node) -> Any:
    target: Any = node.target
    return target._schema if isinstance(target, torch._ops.OpOverload) else None  # pyright: ignore[reportPrivateUsage]


def _is_own(written: Any, by: fx.Node) -> bool:
    """Whether a node's tensor is new, and no node but `by` has it."""
    if not isinstance(written, fx.Node) or (schema := _schema(written)) is None:
        return False
    is_new = schema.is_mutable is False and all(result.alias_info is None for result in schema.returns)
    return is_new and list(written.users) == [by] and isinstance(written.meta.get("val"), Tensor)


def draws_first(graph: fx.GraphModule) -> None:
    """Keys and positions of draws are computed before everything else, so that repeated layers, of which each has its own
    keys, are alike."""
    wanted: set[fx.Node] = set()
    for node in reversed(graph.graph.nodes):
        if is_draw(node):
            wanted.update(node.all_input_nodes)
        elif node in wanted:
            wanted.update(node.all_input_nodes)
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    last = placeholders[-1]
    for node in list(graph.graph.nodes):
        if node in wanted and node.op != "placeholder":
            last.append(node)
            last = node


def is_draw(node: fx.Node) -> bool:
    """Whether a node draws by positions."""
    target: Any = node.target
    return isinstance(target, torch._ops.OpOverload) and target.namespace == "distir"  # pyright: ignore
