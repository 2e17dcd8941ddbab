"""A model up to some of its values. In go a model and names of values; out comes the model with these as its
outputs, without the nodes that they do not need. Later nodes may have shapes that depend on data, or operators that nobody knows."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

import onnx
from onnx import ModelProto, NodeProto, helper

from distir.dialects.errors import DistirError
from distir.frontends.onnx.validity import names_used


def cut_after(model: ModelProto, names: Sequence[str], where: str) -> None:
    """Make these values of the main graph its outputs. Raises DistirError for a name that is none."""
    graph = model.graph
    giver = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    for name in names:
        if name not in giver:
            near = get_close_matches(name, giver, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise DistirError(f"{where}: --until {name}: no node of the main graph gives a value of this name{hint}")
    needed, pending = set[int](), list(names)
    while pending:
        i = giver.get(pending.pop())
        if i is not None and i not in needed:
            needed.add(i)
            pending += names_used(graph.node[i])
    known = {value.name: value for value in (*graph.output, *graph.value_info)}
    outputs = [known.get(name) or helper.make_value_info(name, onnx.TypeProto()) for name in dict.fromkeys(names)]
    nodes = [NodeProto.FromString(graph.node[i].SerializeToString()) for i in sorted(needed)]
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in outputs]
    del graph.node[:], graph.output[:]
    graph.node.extend(nodes)
    graph.output.extend(copies)
    used = {name for node in nodes for name in names_used(node)} | {value.name for value in copies}
    kept = [onnx.TensorProto.FromString(t.SerializeToString()) for t in graph.initializer if t.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
