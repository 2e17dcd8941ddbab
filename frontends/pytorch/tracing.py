"""From a function over tensors to a program: traced by make_fx on tensors without data, then imported node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.pytorch.decompositions import decompositions
from distir.frontends.pytorch.draws import ROWS, SEED, Draws, replacements, restored_generator
from distir.frontends.pytorch.graph import GraphImporter
from distir.frontends.pytorch.rewrites import draws_first, maxima_without_places, without_writes
from distir.frontends.pytorch.steps import Port, TracedFunction
from distir.frontends.weights import attach


def trace(function: TracedFunction) -> ModuleOp:
    """The function as a module with one function, @main, and the values of its arguments attached.

    Attention (`scaled_dot_product_attention`) is traced as its definition: two contractions and a softmax."""
    keys: list[tuple[str, str]] = []
    drawing: list[Draws] = []
    batch = _batch_size(function)
    ports = [*function.ports, Port(SEED, "buffer", torch.tensor(0), torch.tensor(0))]
    if batch is not None:
        ports.append(Port(ROWS, "seed", torch.arange(batch), torch.arange(batch)))

    def flat(*tensors: Tensor) -> list[Tensor]:
        named = {port.name: t for port, t in zip(ports, tensors, strict=True)}
        draws = Draws(named[SEED], named.get(ROWS))
        drawing[:] = [draws]
        results = function.run({port.name: named[port.name] for port in function.ports})
        if draws.any:
            results[SEED, "buffer"] = draws.next_seed
        keys[:] = list(results)
        return list(results.values())

    with FakeTensorMode(allow_non_fake_inputs=True):
        examples = [torch.empty(p.example.shape, dtype=p.example.dtype, device="cpu") for p in ports]
    with restored_generator():
        graph = _traced(flat, examples, replacements(lambda: drawing[0]))
    without_writes(graph)
    if any(_writes(node) for node in graph.graph.nodes):
        graph = _traced(functionalize(graph), examples)
    graph.graph.eliminate_dead_code()
    maxima_without_places(graph)
    graph.graph.eliminate_dead_code()
    draws_first(graph)
    importer = GraphImporter(replace(function, ports=_used(graph, ports, len(function.ports))), graph)
    module = importer.import_graph(keys)
    values = {port.name: port.value for port in ports if port.value is not None} | importer.constants
    values = {port.name: values[port.name] for port in importer.ports if port.name in values}
    attach(module, {name: _array(value) for name, value in values.items()})
    return module


def _batch_size(function: TracedFunction) -> int | None:
    """The rows of the batch: dim 0 of the first input that has one."""
    shapes = (port.example.shape for port in function.ports if port.role in ("input", "label"))
    return next((shape[0] for shape in shapes if shape), None)


def _used(graph: fx.GraphModule, ports: Sequence[Port], own: int) -> list[Port]:
    """The function's own ports, and of those that were added the ones that something uses; the others leave the graph."""
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    kept: list[Port] = []
    for i, (node, port) in enumerate(zip(nodes, ports, strict=True)):
        if i < own or node.users:
            kept.append(port)
        else:
            graph.graph.erase_node(node)
    return kept


def _traced(run: Any, examples: list[Tensor], table: Mapping[Any, Any] | None = None) -> fx.GraphModule:
    with sdpa_kernel(SDPBackend.MATH):
        changed = {**decompositions(), **(table or {})}
        graph = make_fx(run, changed, tracing_mode="fake", _allow_non_fake_inputs=True)(*examples)
    for node in reversed(graph.graph.nodes):
        if _records(node):
            graph.graph.erase_node(node)
    return graph


def _writes(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable  # pyright: ignore


def _records(node: fx.Node) -> bool:
    """Whether a node only tells the profiler what runs."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "profiler"  # pyright: ignore


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    from distir.interpreters.aten_reference import array_of

    return array_of(tensor.cpu().contiguous())
