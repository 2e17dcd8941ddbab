"""Traces a step. In goes a function over tensors; out comes a program: make_fx runs the function on tensors without
data, and the graph is imported node by node."""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.frontends.pytorch.attention import whole_attention
from distir.frontends.pytorch.checks import checks_that_pass
from distir.frontends.pytorch.ctc import sequence_losses
from distir.frontends.pytorch.decompositions import decompositions
from distir.frontends.pytorch.devices import autocast_on_cpu, without_draws_of_python
from distir.frontends.pytorch.draws import ROWS, SEED, Draws, replacements, restored_generator
from distir.frontends.pytorch.finite_values import FiniteValues
from distir.frontends.pytorch.graph import GraphImporter
from distir.frontends.pytorch.in_place import mark_updates_in_place
from distir.frontends.pytorch.later_runs import attribute, refuse_memory
from distir.frontends.pytorch.module_paths import module_paths
from distir.frontends.pytorch.remembering import Port, TracedFunction
from distir.frontends.pytorch.rewrites import (
    draws_first,
    maxima_without_places,
    resampled_by_factors,
    without_writes,
    written_constants,
)
from distir.frontends.pytorch.rows import bags_as_lookups, rows_by_themselves
from distir.frontends.pytorch.side_effects import Surroundings
from distir.interpreters.weights import attach

Key = tuple[str, str]


def trace(function: TracedFunction) -> ModuleOp:
    """The function as a module with one function, @main, and the values of its arguments attached.

    Attention (`scaled_dot_product_attention`) is one operation (`attention`). Raises DistirError
    for a function that writes to, or leaves in Python, what the next run of it would read."""
    batch = _batch_size(function)
    ports = [*function.ports, Port(SEED, "buffer", torch.tensor(0), torch.tensor(0), True)]
    if batch is not None:
        ports.append(Port(ROWS, "seed", torch.arange(batch), torch.arange(batch), True))
    with FiniteValues() as finite, checks_that_pass() as checks:
        graph, keys = _traced_alone(function, ports)
    for place in finite.places:
        print(
            f"distir: note: {function.name} asks whether values are numbers{place}: the program takes it that they are",
            file=sys.stderr,
        )
    for place in checks:
        print(
            f"distir: note: {function.name} may raise an error by values of tensors{place}: the program does not check them",
            file=sys.stderr,
        )
    _refuse_constants(function, graph)
    if any(_writes(node) for node in graph.graph.nodes):
        graph = _traced(functionalize(graph), _examples(ports))
        for node in reversed(graph.graph.nodes):
            if _writes(node) and node.args[0].op == "placeholder":  # what was written to arguments, at the end
                graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    maxima_without_places(graph)
    rows_by_themselves(graph)
    resampled_by_factors(graph)
    graph.graph.eliminate_dead_code()
    draws_first(graph)
    ports, keys = _without_unread(graph, ports, keys)
    importer = GraphImporter(replace(function, ports=ports), graph)
    module = importer.import_graph(keys)
    mark_updates_in_place(module)
    values = {port.name: port.value for port in ports if port.value is not None} | importer.constants
    values = {port.name: values[port.name] for port in importer.ports if port.name in values}
    attach(module, {name: _array(value) for name, value in values.items()})
    return module


def _traced_alone(function: TracedFunction, ports: Sequence[Port]) -> tuple[fx.GraphModule, list[Key]]:
    """The graph of one run, which is that of every other."""
    surroundings = Surroundings(function.keeps, function.original)
    try:
        graph, keys = _traced_function(function, ports)
        refuse_memory(function, surroundings, graph, lambda: _traced_function(function, ports)[0])
    finally:
        surroundings.restore()
    return graph, keys


def _traced_function(function: TracedFunction, ports: Sequence[Port]) -> tuple[fx.GraphModule, list[Key]]:
    """The graph of one run, without writes that can be avoided, and names and roles of its results."""
    keys: list[Key] = []
    drawing: list[Draws] = []

    def flat(*tensors: Tensor) -> list[Tensor]:
        named = {port.name: t for port, t in zip(ports, tensors, strict=True)}
        draws = Draws(named[SEED], named.get(ROWS))
        drawing[:] = [draws]
        results = function.run({port.name: named[port.name] for port in function.ports})
        if draws.any:
            results[SEED, "buffer"] = draws.next_seed
        keys[:] = list(results)
        return list(results.values())

    with (
        restored_generator(),
        without_draws_of_python(function.name),
        autocast_on_cpu(),
        whole_attention(lambda: drawing[0]),
        bags_as_lookups(),
        sequence_losses(),
        _without_checks(),
        _quiet(),
    ):
        graph = _traced(flat, _examples(ports), replacements(lambda: drawing[0]))
    without_writes(graph)
    return graph, keys


@contextmanager
def _without_checks() -> Generator[None]:
    """Distributions do not look at the values of what they are given, nor does what checks that all of a tensor holds: they would only raise, and no
    value is known."""
    was = torch.distributions.Distribution._validate_args  # pyright: ignore[reportPrivateUsage]
    torch.distributions.Distribution.set_default_validate_args(False)
    try:
        with patch.object(torch, "_check_tensor_all_with", lambda *args: None):
            yield
    finally:
        torch.distributions.Distribution.set_default_validate_args(was)


@contextmanager
def _quiet() -> Generator[None]:
    """What an operator refuses is said once, by the error, and not by torch's own log before it."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    was = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = was


def _examples(ports: Sequence[Port]) -> list[Tensor]:
    with FakeTensorMode(allow_non_fake_inputs=True):
        return [torch.empty(p.example.shape, dtype=p.example.dtype, device="cpu") for p in ports]


def _batch_size(function: TracedFunction) -> int | None:
    """The rows of the batch: dim 0 of the first input that has one."""
    shapes = (port.example.shape for port in function.ports if port.role in ("input", "label"))
    return next((shape[0] for shape in shapes if shape), None)


def _refuse_constants(function: TracedFunction, graph: fx.GraphModule) -> None:
    """That no tensor from elsewhere is written to, and none that a run remembers is reached past what stands for it."""
    if (written := written_constants(graph)) and (tensor := attribute(graph, written[0])) is not None:
        raise DistirError(
            f"{function.name} writes to a tensor of shape {list(tensor.shape)} that is no parameter, buffer or state of its modules and "
            "optimizers: make it a buffer of a module"
        )
    remembering = function.remembering
    known = {} if remembering is None else {id(tensor): name for (name, _), tensor in remembering.now().items()}
    for node in graph.graph.nodes:
        if node.op == "get_attr" and (name := known.get(id(attribute(graph, node.target)))) is not None:
            raise DistirError(
                f"{function.name} reaches {name} in a way that is not followed (torch.func, or an autograd Function bound before): "
                "use it as an attribute of its module"
            )


def _without_unread(graph: fx.GraphModule, ports: Sequence[Port], keys: Sequence[Key]) -> tuple[list[Port], list[Key]]:
    """Optional ports that nothing reads leave the graph, and so do their updates."""
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    returned = dict(zip(keys, output.args[0], strict=True))
    unread = [
        (node, port)
        for node, port in zip(nodes, ports, strict=True)
        if port.optional and all(_only_returns(user, port, returned, output) for user in node.users)
    ]
    names = {port.name for _, port in unread}
    kept = {key: node for key, node in returned.items() if key[0] not in names or key[1] == "output"}
    output.args = (list(kept.values()),)
    graph.graph.eliminate_dead_code()
    for node, _ in unread:
        graph.graph.erase_node(node)
    return [port for port in ports if port.name not in names], list(kept)


def _only_returns(user: fx.Node, port: Port, returned: Mapping[Key, Any], output: fx.Node) -> bool:
    """Whether a user of an argument returns it as its own update."""
    if user is output:
        return all(key[0] == port.name for key, node in returned.items() if getattr(node, "name", "") == port.name)
    return _is_name(user) and all(
        each is output and all(key[0] == port.name for key, node in returned.items() if node is user)
        for each in user.users
    )


def _is_name(node: fx.Node) -> bool:
    return node.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default)


def _traced(run: Any, examples: list[Tensor], table: Mapping[Any, Any] | None = None) -> fx.GraphModule:
    with sdpa_kernel(SDPBackend.MATH), _without_mkldnn(), module_paths():
        changed = {**decompositions(), **(table or {})}
        graph = make_fx(run, changed, tracing_mode="fake", _allow_non_fake_inputs=True)(*examples)
    for node in reversed(graph.graph.nodes):
        if _only_watches(node):
            graph.graph.erase_node(node)
    return graph


@contextmanager
def _without_mkldnn() -> Generator[None]:
    """Without the library of kernels that torch has for float32 on one kind of device: a whole recurrent layer is one of its operators."""
    get, put = torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled  # pyright: ignore[reportPrivateUsage]
    was_enabled = get()
    put(False)
    try:
        yield
    finally:
        put(was_enabled)


def _writes(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable  # pyright: ignore


def _only_watches(node: fx.Node) -> bool:
    """Whether a node only tells the profiler what runs, or raises for what another found."""
    if not isinstance(node.target, torch._ops.OpOverload):  # pyright: ignore
        return False
    return node.target.namespace == "profiler" or node.target is torch.ops.aten._linalg_check_errors.default


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    from distir.interpreters.aten.reference import array_of

    return array_of(tensor.cpu().contiguous())
