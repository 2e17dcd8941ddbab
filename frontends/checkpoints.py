"""Checkpoints: the values of a program's parameters, buffers and optimizer state by name. A module and a file that
PyTorch wrote go in, and the module comes out with the values; or arrays by name go in, and a file comes out.

    bind(module, "model.safetensors")     # or a state_dict that torch.save wrote
    save("next.safetensors", results)     # what a step returned, to be bound again or loaded into the torch.nn.Module

Names are those of the program's arguments (`dist.name`), which for a PyTorch model are those of `state_dict()`. A checkpoint may have
an array `w` whole of which the program has the layers, `w[0]`, `w[1]`, ... (`distir.frontends.by_layer`)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType

from distir.dialects.errors import DistirError
from distir.dialects.onnx import numpy_dtype
from distir.frontends.by_layer import layers_of, split_layers
from distir.interpreters.entry import Port, arguments_of, entry_function, results_of
from distir.interpreters.weights import Array, WeightFile, attach, weights_of, write_weights


def bind(module: ModuleOp, path: str | os.PathLike[str]) -> list[str]:
    """Gives the arguments the values that the checkpoint has for their names. Returns the buffers and the state that it has
    no value for: they keep what they have (`kept_note` says so).

    The checkpoint must have every parameter, all of the optimizer's state or none, and nothing that the program does not
    know: except a second name of a tensor (tied weights), what a step returned beside its updates (`loss`), and optimizer
    state if the program has none. Raises DistirError, one line, for those, for a tensor of another shape or type, and for
    a file that is no checkpoint. Nothing in a file is executed (torch.load with weights_only).
    """
    found = _read(Path(path))
    entry = entry_function(module)
    ports = {p.name: p for p in arguments_of(entry) if p.role in ("parameter", "buffer", "state")}
    found = _by_layer(found, ports)
    missing = [name for name, port in ports.items() if port.role == "parameter" and name not in found]
    if missing:
        raise DistirError(f"{path}: no value for {_listed(missing)}{_unexpected_note(found, ports)}")
    kept = [name for name in ports if name not in found]
    lost = [name for name in kept if ports[name].role == "state"]
    if lost and any(name in found for name, port in ports.items() if port.role == "state"):
        raise DistirError(
            f"{path}: has a part of the optimizer's state, and no value for {_listed(lost)}: save all of it or none"
        )
    outputs = {p.name for p in results_of(entry) if p.role == "output"}
    has_state = any(port.role == "state" for port in ports.values())
    unexpected = [
        name
        for name in found
        if name not in ports and name not in outputs and (has_state or not name.startswith("state."))
    ]
    if strangers := [name for name in unexpected if not _is_tied(found[name], found, ports)]:
        raise DistirError(f"{path}: has {_listed(strangers)}, which is no parameter, buffer or state of the program")
    bound = {name: found[name] for name in ports if name in found}
    for name, array in bound.items():
        _check(array, ports[name], path)
    attach(module, dict(weights_of(module)) | bound)
    return kept


def kept_note(path: str | os.PathLike[str], kept: Sequence[str]) -> str:
    """What a user should know of a checkpoint that left buffers or state as they are, one line."""
    return f"{path} has no value for {_listed(kept)}: the program's own stay"


def save(path: str | os.PathLike[str], arrays: Mapping[str, Array]) -> None:
    """A safetensors file of named arrays; it appears whole or not at all."""
    write_weights({name: np.asarray(array) for name, array in arrays.items()}, Path(path))


def _read(path: Path) -> Mapping[str, Array]:
    if not path.is_file():
        raise DistirError(f"{path}: no such checkpoint: expected a file of safetensors, or of torch.save(state_dict)")
    return WeightFile(path) if path.suffix == ".safetensors" else _read_torch(path)


def _read_torch(path: Path) -> Mapping[str, Array]:
    import torch

    from distir.interpreters.aten.reference import array_of

    try:
        loaded: object = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file that is something else can fail anywhere
        raise DistirError(
            f"{path}: is no state_dict of tensors: write one with torch.save(model.state_dict(), ...), or as safetensors"
        ) from error
    tensors = cast("Mapping[object, Any]", loaded) if isinstance(loaded, Mapping) else {}
    wrong = next((name for name, value in tensors.items() if not isinstance(value, torch.Tensor)), None)
    if not tensors or wrong is not None:
        what = f"'{wrong}' is a {type(tensors[wrong]).__name__}" if wrong is not None else f"a {type(loaded).__name__}"
        raise DistirError(f"{path}: expected a state_dict, tensors by name, got {what}: save that part alone")
    return {str(name): array_of(value.detach().contiguous()) for name, value in tensors.items()}


def _by_layer(found: Mapping[str, Array], ports: Mapping[str, Port]) -> Mapping[str, Array]:
    """The checkpoint, with parts of arrays of which the program has the layers."""
    layers = {
        name: (dim, count)
        for name, (dim, count) in layers_of(ports).items()
        if name not in ports and name in found and found[name].shape[dim : dim + 1] == (count,)
    }
    return split_layers(found, layers) if layers else found


def _is_tied(array: Array, found: Mapping[str, Array], ports: Mapping[str, Port]) -> bool:
    """Whether it is one of the program's tensors under a second name."""
    same = (found[other] for other in ports if other in found)
    return any(a.shape == array.shape and a.dtype == array.dtype and a.tobytes() == array.tobytes() for a in same)


def _check(array: Array, port: Port, path: str | os.PathLike[str]) -> None:
    type_ = cast("TensorType[Any]", port.type)
    shape, dtype = type_.get_shape(), numpy_dtype(type_.element_type)
    if array.shape != shape:
        raise DistirError(
            f"{path}: '{port.name}' has shape {list(array.shape)}, the program's {port.role} has {list(shape)}"
        )
    if array.dtype != dtype:
        raise DistirError(f"{path}: '{port.name}' is {array.dtype}, the program's {port.role} is {dtype}: cast it")


def _unexpected_note(found: Mapping[str, Array], ports: Mapping[str, Port]) -> str:
    """Often all names differ by a prefix: one of the checkpoint's names says which."""
    other = next((name for name in found if name not in ports), None)
    return "" if other is None else f"; it has '{other}', which the program does not"


def _listed(names: Sequence[str]) -> str:
    """The first few, and how many more."""
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
