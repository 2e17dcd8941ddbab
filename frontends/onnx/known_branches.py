"""`If` on a constant condition. In goes a graph; out comes the graph with the nodes of the branch taken in place of
each. Exporters write an `If` for what depends on a rank, with branches of other ranks, behind which no type can be inferred."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper


def take_known_branches(graph: GraphProto, outer: Mapping[str, bool] | None = None) -> None:
    """In a graph and those inside it. `outer` are truths that are known outside."""
    known = {**(outer or {}), **{t.name: _truth(t) for t in graph.initializer if _is_truth(t)}}
    nodes, is_changed = list[NodeProto](), False
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain:
            known.update(_stated(node))
        if (branch := _taken(node, known)) is not None:
            take_known_branches(branch, known)
            nodes += _in_place(node, branch)
            graph.initializer.extend(branch.initializer)
            is_changed = True
            continue
        for attribute in node.attribute:
            for inner in _graphs(attribute):
                take_known_branches(inner, known)
        nodes.append(node)
    if is_changed:
        kept = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(kept)


def _taken(node: NodeProto, known: Mapping[str, bool]) -> GraphProto | None:
    """The branch of an `If`; None of another node, on an unknown condition, and of what is no valid `If`, which others refuse."""
    if (
        node.op_type != "If"
        or node.domain
        or len(node.input) != 1
        or node.input[0] not in known
        or not any(node.output)
    ):
        return None
    branches = {each.name: each.g for each in node.attribute if each.type == AttributeProto.GRAPH}
    if branches.keys() != {"then_branch", "else_branch"}:
        return None
    branch = branches["then_branch" if known[node.input[0]] else "else_branch"]
    return branch if len(branch.output) == len(node.output) else None


def _is_truth(tensor: TensorProto) -> bool:
    return tensor.data_type == TensorProto.BOOL and not any(n != 1 for n in tensor.dims) and not tensor.external_data


def _truth(tensor: TensorProto) -> bool:
    return bool(numpy_helper.to_array(tensor).all())


def _stated(node: NodeProto) -> Iterator[tuple[str, bool]]:
    for attribute in node.attribute:
        if attribute.name == "value" and _is_truth(attribute.t):
            yield node.output[0], _truth(attribute.t)


def _in_place(node: NodeProto, branch: GraphProto) -> list[NodeProto]:
    """The branch's nodes, and copies of its results to those of the `If`; its names are those of this place."""
    place = next(output for output in node.output if output)
    own = [t.name for t in branch.initializer] + [output for each in branch.node for output in each.output if output]
    names = {name: f"{place}/{name}" for name in own}
    _rename(branch, names)
    copies = [
        helper.make_node("Identity", [result.name], [output])
        for result, output in zip(branch.output, node.output, strict=True)
        if output
    ]
    return [*branch.node, *copies]


def _rename(graph: GraphProto, names: Mapping[str, str]) -> None:
    for value in (*graph.initializer, *graph.output):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for given in (node.input, node.output):
            renamed = [names.get(name, name) for name in given]
            del given[:]
            given.extend(renamed)
        for attribute in node.attribute:
            for inner in _graphs(attribute):
                _rename(inner, names)


def _graphs(attribute: AttributeProto) -> list[GraphProto]:
    return [attribute.g] if attribute.type == AttributeProto.GRAPH else list(attribute.graphs)
