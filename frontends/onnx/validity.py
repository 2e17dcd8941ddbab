"""What a file must hold before the importer walks it. In goes a model; out comes the same model, checked: names that
are text, one definition of each name, nodes in an order, operators that are known. Some defects are mended
(`sort_nodes`, `name_default_domain`); any other is a DistirError that names the place."""

from collections.abc import Iterator

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from distir.dialects.errors import DistirError


def graphs_of(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and the graphs inside its nodes, at any depth."""
    yield graph
    for node in graph.node:
        yield from graphs_in(node)


def graphs_in(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs inside a node, at any depth."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield from graphs_of(attribute.g)


def label(node: NodeProto) -> str:
    """A node's name, or that of its first result."""
    return f"node '{node.name}'" if node.name else f"the node of '{next(iter(node.output), '')}'"


_KINDS = {
    **{AttributeProto.FLOAT: "f", AttributeProto.INT: "i", AttributeProto.STRING: "s", AttributeProto.TENSOR: "t"},
    **{AttributeProto.GRAPH: "g", AttributeProto.SPARSE_TENSOR: "sparse_tensor", AttributeProto.TYPE_PROTO: "tp"},
    **{AttributeProto.FLOATS: "floats", AttributeProto.INTS: "ints", AttributeProto.STRINGS: "strings"},
    **{AttributeProto.TENSORS: "tensors", AttributeProto.GRAPHS: "graphs"},
    **{AttributeProto.SPARSE_TENSORS: "sparse_tensors", AttributeProto.TYPE_PROTOS: "type_protos"},
}
"""The field that holds an attribute's value, by its type."""


def refuse_damage(model: ModelProto, where: str) -> None:
    """What onnx's C++ code takes for granted. protobuf gives text that is not UTF-8 as bytes, in any field."""
    texts: list[object] = []
    for graph in graphs_of(model.graph):
        texts += [tensor.name for tensor in graph.initializer]
        for value in (*graph.input, *graph.output, *graph.value_info):
            texts += [value.name, *(dim.dim_param for dim in value.type.tensor_type.shape.dim)]
        for node in graph.node:
            texts += [node.name, node.op_type, node.domain, *node.input, *node.output]
            for attribute in node.attribute:
                texts.append(attribute.name)
                held = {field.name for field, _ in attribute.ListFields()}
                held -= {"name", "type", "doc_string", "ref_attr_name"}
                if not held <= {_KINDS.get(attribute.type)}:
                    raise DistirError(
                        f"{where}: attribute '{attribute.name}' of node '{node.name}' is of type {attribute.type}, but "
                        f"holds {', '.join(sorted(held))}: is the file damaged?"
                    )
    texts += [text for entry in model.metadata_props for text in (entry.key, entry.value)]
    for text in texts:
        if not isinstance(text, str):
            raise DistirError(f"{where}: the name {text!r} is not text: is the file damaged?")


def refuse_double_definitions(graph: GraphProto, where: str) -> None:
    """A name has one meaning in a graph; only an initializer may be an input too. The graphs inside are looked at each
    by itself: a name of an outer graph that they use again is theirs from there."""
    for inner in graphs_of(graph):
        initializers = [t.name for t in inner.initializer] + [t.values.name for t in inner.sparse_initializer]
        by_nodes = [name for node in inner.node for name in node.output if name]
        inputs = [value.name for value in inner.input]
        for kind, names in (("input", inputs), ("initializer", initializers), ("result", by_nodes)):
            seen: set[str] = set()
            for name in names:
                if name in seen:
                    raise DistirError(f"{where}: two {kind}s have the name '{name}': a name has one meaning")
                seen.add(name)
        if both := set(by_nodes) & {*inputs, *initializers}:
            name = min(both)
            raise DistirError(f"{where}: '{name}' is a result of a node and an input or initializer: rename one")
        if "" in inputs or "" in initializers or "" in (value.name for value in inner.output):
            raise DistirError(f"{where}: an input, initializer or output of graph '{inner.name}' has no name")


def name_default_domain(model: ModelProto) -> None:
    """`ai.onnx` is another name of the default domain; from here on it has one."""
    nodes = [node for graph in graphs_of(model.graph) for node in graph.node]
    for function in model.functions:
        nodes += function.node
        nodes += [node for top in function.node for graph in graphs_in(top) for node in graph.node]
    for named in (*nodes, *model.opset_import, *(o for f in model.functions for o in f.opset_import)):
        if named.domain == "ai.onnx":
            named.domain = ""


def sort_nodes(model: ModelProto, where: str) -> None:
    """Nodes of the graph and of functions after those that give what they use, as ONNX wants them; those that are keep
    their order. Not in graphs inside nodes, where a name may mean another value before it is given a new meaning.

    Raises DistirError where that cannot be: nodes that use each other's results."""
    _sort(model.graph.node, where)
    for function in model.functions:
        _sort(function.node, where)


def _sort(nodes: RepeatedCompositeFieldContainer[NodeProto], where: str) -> None:
    giver = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    needs = [sorted({giver[name] for name in names_used(node) if name in giver}) for node in nodes]
    if all(not before or before[-1] < i for i, before in enumerate(needs)):
        return
    order: list[int] = []
    done = [False] * len(nodes)
    open_since: dict[int, None] = {}  # the nodes on the way from where the search started, in order
    for start in range(len(nodes)):
        stack = [start]
        while stack:
            i = stack[-1]
            missing = next((n for n in needs[i] if not done[n]), None) if not done[i] else None
            if done[i] or missing is None:
                if not done[i]:
                    done[i] = True
                    order.append(i)
                open_since.pop(i, None)
                stack.pop()
            elif missing in open_since or missing == i:
                raise DistirError(f"{where}: {label(nodes[missing])} needs its own result: the graph has a cycle")
            else:
                open_since[i] = None
                stack.append(missing)
    copies = [NodeProto.FromString(nodes[i].SerializeToString()) for i in order]
    del nodes[:]
    nodes.extend(copies)


def names_used(node: NodeProto) -> Iterator[str]:
    """By a node, and by the graphs inside it from outside."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            graph = attribute.g
            own = {name for inner in graph.node for name in inner.output}
            own |= {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
            used = (*(name for inner in graph.node for name in names_used(inner)), *(v.name for v in graph.output))
            yield from (name for name in used if name not in own)
