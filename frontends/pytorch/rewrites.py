"""What is done to a traced graph before it is imported: writes to tensors that nobody else sees become values, maxima are pooled
without their places, and what draws depend on comes first."""

from __future__ import annotations

from collections.abc import Sequence
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


def maxima_without_places(graph: fx.GraphModule) -> None:
    """A pooling of maxima whose places nothing takes but its gradient gives none, and its gradient finds them anew: places are
    positions in the whole image, so that neither could be cut by rows, and would be kept from one to the other."""
    aten = torch.ops.aten
    for node in list(graph.graph.nodes):
        if node.target is aten.max_pool2d_with_indices.default:
            _leave_places_out(graph.graph, node, aten.max_pool2d.default, aten.max_pool2d_with_indices_backward.default)
        elif node.target is aten.max_pool3d_with_indices.default:  # ATen has no gradient of it without places
            _leave_places_out(graph.graph, node, aten.max_pool3d.default, None)


def _leave_places_out(graph: fx.Graph, pooling: fx.Node, plain: Any, by_places: Any) -> None:
    """Puts `plain` in the place of a pooling of maxima, and the gradient without places in that of `by_places`."""
    maxima, places = ([user for user in pooling.users if user.args[1] == index] for index in (0, 1))
    gradients = [user for each in places for user in each.users]
    if pooling.kwargs or any(each.target is not by_places or not _is_gradient_of(each, pooling) for each in gradients):
        return
    for each in gradients:
        arguments = (each.args[0], *pooling.args)
        _replace(graph, [each], torch.ops.aten.max_pool2d_backward.default, arguments)
    _replace(graph, maxima, plain, pooling.args)


def _is_gradient_of(gradient: fx.Node, pooling: fx.Node) -> bool:
    """Whether a gradient by the places of a pooling is of tensors like the one that it took."""
    given, taken = gradient.args[1], pooling.args[0]
    if not isinstance(given, fx.Node) or not isinstance(taken, fx.Node) or gradient.kwargs:
        return False
    return given.meta["val"].shape == taken.meta["val"].shape


def _replace(graph: fx.Graph, nodes: Sequence[fx.Node], target: Any, args: Any) -> None:
    """Puts one call in the place of nodes that have its result."""
    if nodes:
        with graph.inserting_before(nodes[0]):
            name = target.overloadpacket.__name__
            made = graph.create_node("call_function", target, args, name=name)
        made.meta = dict(nodes[0].meta)
        for node in nodes:
            node.replace_all_uses_with(made)


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
