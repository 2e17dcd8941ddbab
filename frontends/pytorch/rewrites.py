"""Rewrites of a traced graph before it is imported. In goes an fx graph; out comes one without writes to tensors
that nobody else sees, with pooled maxima without their places, and with keys and positions of draws at its start."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch._subclasses import FakeTensorMode
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from distir.frontends.pytorch.attention import drawn_by, is_attention


def without_writes(graph: fx.GraphModule) -> None:
    """An operator that writes to a tensor becomes the one that gives a new tensor, where nothing reads later, by another name
    or as a part, what it wrote to. What else writes stays (`torch.func.functionalize` traces the graph anew for that)."""
    writes = set(_writes_seen_by_result(list(graph.graph.nodes)))
    replaced: dict[fx.Node, fx.Node] = {}
    for node in list(
        graph.graph.nodes
    ):  # in one go: the graph's results are one node, which takes every updated tensor
        if not replaced.keys().isdisjoint(node.all_input_nodes):
            node.args, node.kwargs = map_arg((node.args, node.kwargs), lambda used: replaced.get(used, used))
        if node not in writes:
            continue
        with graph.graph.inserting_before(node):
            made = _new_tensor(graph.graph, node)
        if made is not None:
            replaced[node] = made
    for node in reversed(replaced):
        graph.graph.erase_node(node)


def _new_tensor(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    """What a tensor is after a write, as a new tensor; None if there is no such operator."""
    aten, schema, value = torch.ops.aten, _schema(node), node.meta["val"]
    name = schema.name.removeprefix("aten::")
    if name == "copy_":
        made = call(graph, node, aten.clone.default, (node.args[1],))
    elif name == "zero_" or (name == "fill_" and schema.overload_name == "Scalar"):
        number = 0 if name == "zero_" else node.args[1]
        made = call(graph, node, aten.full.default, (list(value.shape), number), {"dtype": value.dtype})
    else:
        functional = _functional(schema)
        if functional is None:
            return None
        made = call(graph, node, functional, node.args, {k: v for k, v in node.kwargs.items() if k != "out"})
    if made.meta["val"].dtype != value.dtype:
        made = call(graph, node, aten._to_copy.default, (made,), {"dtype": value.dtype})
    if made.meta["val"].shape != value.shape:
        made = call(graph, node, aten.expand.default, (made, list(value.shape)))
    return made


@cache
def _functional(schema: Any) -> Any:
    """The operator that gives a new tensor in place of one that writes to its operand; overloads have other names."""
    packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::").removesuffix("_"), None)
    arguments = [(each.name, str(each.type)) for each in schema.arguments if not each.is_out]
    for overload in packet.overloads() if packet is not None else ():
        found = getattr(packet, overload)
        taken = [(each.name, str(each.type)) for each in found._schema.arguments]
        if taken == arguments and not found._schema.is_mutable and len(found._schema.returns) == 1:
            return found
    return None


def call(graph: fx.Graph, like: fx.Node, target: Any, args: Any, kwargs: Any = None) -> fx.Node:
    """A call of an operator, where nodes are inserted now, from where the model has `like`."""
    made = graph.create_node("call_function", target, args, dict(kwargs or {}), name=target.overloadpacket.__name__)
    made.meta = dict(like.meta)
    operands, options = map_arg((args, dict(kwargs or {})), lambda node: node.meta["val"])
    mode = detect_fake_mode(pytree.tree_leaves((like.meta["val"], operands, options)))
    with mode or FakeTensorMode(), torch.no_grad():
        made.meta["val"] = target(*operands, **options)
    return made


def _writes_seen_by_result(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """Operators that write to a tensor whose memory is read afterwards by the result of the operator alone; and those that
    write nothing but another shape."""
    roots: dict[fx.Node, fx.Node] = {}
    names: dict[fx.Node, list[fx.Node]] = defaultdict(list)
    last_read: dict[fx.Node, int] = {}
    for position, node in enumerate(nodes):
        for used in node.all_input_nodes:
            last_read[used] = position
        source = _source(node)
        roots[node] = node if source is None else roots[source]
        names[roots[node]].append(node)
    found: list[fx.Node] = []
    for position, node in enumerate(nodes):
        schema = _schema(node)
        if schema is None or not schema.is_mutable or roots[node].op == "get_attr" or roots[node] is node:
            continue
        after = {node}
        for name in names[roots[node]]:
            if _source(name) in after:
                after.add(name)
        others = (name for name in names[roots[node]] if name not in after)
        if _is_view(node) or all(last_read.get(name, -1) <= position for name in others):
            found.append(node)
    return found


def _is_view(node: fx.Node) -> bool:
    return torch.Tag.inplace_view in cast(Any, node.target).tags


def written_constants(graph: fx.GraphModule) -> list[str]:
    """Tensors that a traced function had from elsewhere, and writes to."""
    roots: dict[fx.Node, fx.Node] = {}
    found: dict[str, None] = {}
    for node in graph.graph.nodes:
        source = _source(node)
        roots[node] = node if source is None else roots[source]
        schema = _schema(node)
        if schema is not None and schema.is_mutable and source is not None and roots[source].op == "get_attr":
            found[str(roots[source].target)] = None
    return list(found)


def _source(node: fx.Node) -> fx.Node | None:
    """The node whose memory, or a part of it, a node has too."""
    first = node.kwargs.get("out", node.args[0] if node.args else None)
    if node.op != "call_function" or not isinstance(first, fx.Node):
        return None
    if node.target is operator.getitem:
        return _source(first)
    schema = _schema(node)
    if schema is None or all(result.alias_info is None for result in schema.returns):
        return None
    return first


def _schema(node: fx.Node) -> Any:
    target: Any = node.target
    return target._schema if isinstance(target, torch._ops.OpOverload) else None  # pyright: ignore[reportPrivateUsage]


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


def resampled_by_factors(graph: fx.GraphModule) -> None:
    """A resampling that states the sizes of its result states its factors instead where it has such a form and they say as much: sizes
    would have to follow the rows of a shard."""
    for node in list(graph.graph.nodes):
        if (schema := _schema(node)) is None or all(each.name != "output_size" for each in schema.arguments):
            continue
        by_factors = getattr(node.target.overloadpacket, "vec", None)
        named = {each.name: value for each, value in zip(schema.arguments, node.args, strict=False)} | node.kwargs
        factors = _factors(node, named)
        if by_factors is None or factors is None or named.get("align_corners"):
            continue
        given = {"input": node.args[0], "output_size": None, "scale_factors": factors}
        _replace(
            graph.graph,
            [node],
            by_factors,
            tuple(given.get(a.name, named.get(a.name)) for a in by_factors._schema.arguments),
        )


def _factors(node: fx.Node, named: dict[str, Any]) -> list[float] | None:
    """By how much a resampling makes its last dims longer, as it says or as whole numbers; None if its sizes do not follow from that."""
    source, made = cast(Any, node.args[0]).meta["val"], node.meta["val"]
    if not isinstance(made, torch.Tensor) or source.dim() != made.dim():
        return None
    before, after = source.shape[2:], list(made.shape[2:])
    said = [value for name, value in named.items() if name.startswith("scales") and value is not None]
    factors = [float(n) for n in said] if said else [b / a for a, b in zip(before, after, strict=True)]
    if len(factors) != len(after) or (not said and not all(each.is_integer() for each in factors)):
        return None
    return factors if [int(n * each) for n, each in zip(before, factors, strict=True)] == after else None


def draws_first(graph: fx.GraphModule) -> None:
    """Keys and positions of draws are computed before everything else, so that repeated layers, of which each has its own
    keys, are alike."""
    wanted: set[fx.Node] = set()
    for node in reversed(graph.graph.nodes):
        if is_draw(node) or node in wanted:
            wanted.update(node.all_input_nodes)
        elif is_attention(node.target):
            wanted.update(drawn_by(node))
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    last = placeholders[-1]
    for node in list(graph.graph.nodes):
        if node in wanted and node.op != "placeholder":
            last.append(node)
            last = node


def is_draw(node: fx.Node) -> bool:
    """Whether a node draws by positions."""
    return node.target in (torch.ops.distir.bernoulli.default, torch.ops.distir.uniform.default)
