"""Global arrays and their parts. In go global arrays by name; out come the parts for the arguments of each device.
From the parts of results come global outputs. `run` and `run_ranks` differ only in the owner of each part, a device
or a rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import DYNAMIC_INDEX, AnyFloat, TensorType

from distir.dialects.dist import PartAttr
from distir.dialects.errors import DistirError
from distir.dialects.onnx import numpy_dtype
from distir.dialects.reductions import Reduction
from distir.interpreters import collectives
from distir.interpreters.entry import Port

Array = np.ndarray[Any, np.dtype[Any]]
Type = TensorType[Any]


@dataclass(frozen=True)
class Site:
    """A port and the device (at level 4, the rank) that holds it; sites are ordered by device, then as in the text."""

    device: int
    port: Port


def array_dtype(type_: Type, dtype: np.dtype[Any] | None) -> np.dtype[Any]:
    """The numpy type of values of this type, when floating values, and the parts of complex ones, are computed in `dtype`."""
    own = numpy_dtype(type_.element_type)
    if dtype is None:
        return own
    if own.kind == "c":
        return np.result_type(dtype, np.complex64)
    return dtype if isinstance(type_.element_type, AnyFloat) else own


@dataclass(frozen=True)
class Piece:
    """A part of a global result, as one device has it; the addends of a part are reduced to one piece."""

    device: int
    shape: tuple[int, ...]
    """Of the global array."""
    index: Any
    """The part of the global array, as an index of it."""
    value: Array


def distribute(
    sites: Sequence[Site],
    inputs: Mapping[str, Array],
    dtype: np.dtype[Any] | None = None,
    spread: np.random.Generator | None = None,
) -> list[Any]:
    """The value of each site: its part of the global array of its name.

    Of the addends of one part, the first device's gets the value and the others the reduction's identity; with `spread`,
    floating sums are drawn addends, none of them zero. Raises DistirError for a missing input and for one of another
    shape or kind of element."""
    values: list[Any] = [None] * len(sites)
    given: dict[tuple[str, Any], int] = {}
    for i in sorted(range(len(sites)), key=lambda i: sites[i].device):
        port = sites[i].port
        if port.name not in inputs:
            raise DistirError(f"input {port.name} is missing: expected {_describe(port)}, given: {_names(inputs)}")
        value = inputs[port.name]
        if not isinstance(port.type, TensorType):
            values[i] = value
            continue
        type_ = cast(Type, port.type)
        local = _cut(_checked(port, np.asarray(value)), port.part)
        if port.part is not None and port.part.reduction is not None:
            first = given.setdefault((port.name, port.part), i)
            if first != i and spread is not None and port.part.reduction == Reduction.SUM and local.dtype.kind == "f":
                local = local * spread.uniform(0.25, 0.75, local.shape)
                values[first] = (values[first] - local).astype(values[first].dtype)
            elif first != i:
                local = _identity(local, port.part.reduction)
        values[i] = local.astype(array_dtype(type_, dtype), copy=False)
    return values


def pieces(sites: Sequence[Site], values: Sequence[Any]) -> dict[str, list[Piece]]:
    """What each device has of each result, in order of devices. Raises DistirError where the parts of one result are
    not all of one shape."""
    return {name: _pieces(name, parts) for name, parts in _by_name(sites, values).items()}


def assemble(sites: Sequence[Site], values: Sequence[Any]) -> dict[str, Any]:
    """The global array of each result name. Addends of a part are reduced in order of devices; where parts overlap they
    are replicas. Raises DistirError where replicas disagree and where no part covers an element."""
    outputs: dict[str, Any] = {}
    for name, parts in _by_name(sites, values).items():
        site, value = parts[0]
        whole = len(parts) == 1 and site.port.part is None
        outputs[name] = value if whole else joined(name, _pieces(name, parts))
    return outputs


def _by_name(sites: Sequence[Site], values: Sequence[Any]) -> dict[str, list[tuple[Site, Any]]]:
    """The values of each result name, in order of devices."""
    found: dict[str, list[tuple[Site, Any]]] = {}
    for site, value in sorted(zip(sites, values, strict=True), key=lambda each: each[0].device):
        found.setdefault(site.port.name, []).append((site, value))
    return found


def _describe(port: Port) -> str:
    if not isinstance(port.type, TensorType):
        return f"a value of type {port.type}"
    type_ = cast(Type, port.type)
    return f"an array of shape {list(_global_shape(port))} and type {type_.element_type}"


def _names(inputs: Mapping[str, Array]) -> str:
    names = list(inputs)
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "none"


def _global_shape(port: Port) -> tuple[int, ...]:
    return port.part.global_shape if port.part is not None else cast(Type, port.type).get_shape()


def _checked(port: Port, value: Array) -> Array:
    """The input, if it has the global shape (an open dim is any) and a kind of element that the type can hold."""
    expected = _global_shape(port)
    if len(expected) != value.ndim or any(
        e not in (DYNAMIC_INDEX, n) for e, n in zip(expected, value.shape, strict=True)
    ):
        raise DistirError(f"input {port.name}: expected shape {list(expected)}, got {list(value.shape)}")
    element = cast(Type, port.type).element_type
    if value.dtype.kind in "fc" and not isinstance(element, AnyFloat) and numpy_dtype(element).kind in "iub":
        raise DistirError(f"input {port.name}: expected elements of type {element}, got {value.dtype}")
    return value


def _index(part: PartAttr) -> Any:
    """The part of a global array, as an index."""
    return np.ix_(*[np.concatenate([np.arange(start, stop) for start, stop in dim]) for dim in part.dims])


def _cut(value: Array, part: PartAttr | None) -> Array:
    return value if part is None or part.local_shape == value.shape else value[_index(part)]


def _identity(value: Array, reduction: Reduction) -> Array:
    """What changes nothing when it is reduced with `value`."""
    match reduction:
        case Reduction.SUM:
            return np.zeros_like(value)
        case Reduction.PROD:
            return np.ones_like(value)
        case Reduction.MEAN | Reduction.MAX | Reduction.MIN:
            return value


def _pieces(name: str, parts: Sequence[tuple[Site, Any]]) -> list[Piece]:
    """The pieces of one result, addends reduced."""
    arrays = [(site, np.asarray(value)) for site, value in parts]
    shape = _whole_shape(*arrays[0])
    found: list[Piece] = []
    for site, value in _reduced(arrays):
        if _whole_shape(site, value) != shape:
            raise DistirError(
                f"output {name}: device {site.device} has a part of {_whole_shape(site, value)}, not {shape}"
            )
        found.append(Piece(site.device, shape, ... if site.port.part is None else _index(site.port.part), value))
    return found


def joined(name: str, parts: Sequence[Piece]) -> Array:
    """One global array from its pieces: every replica equals the first. Raises DistirError as `assemble` does."""
    shape = parts[0].shape
    whole = np.zeros(shape, parts[0].value.dtype)
    owner = np.full(shape, -1)
    for piece in parts:
        seen = owner[piece.index] >= 0
        _check_replicas(name, whole[piece.index][seen], piece.value[seen], owner[piece.index][seen], piece.device)
        whole[piece.index] = np.where(seen, whole[piece.index], piece.value)
        owner[piece.index] = np.where(seen, owner[piece.index], piece.device)
    if (missing := int((owner < 0).sum())) > 0:
        raise DistirError(f"output {name}: {missing} of its {owner.size} elements are in no result's part")
    return whole


def _whole_shape(site: Site, value: Array) -> tuple[int, ...]:
    return site.port.part.global_shape if site.port.part is not None else value.shape


def _reduced(parts: Sequence[tuple[Site, Array]]) -> list[tuple[Site, Array]]:
    """Addends of the same part, reduced."""
    groups: dict[Any, list[tuple[Site, Array]]] = {}
    for i, (site, value) in enumerate(parts):
        partial = site.port.part is not None and site.port.part.reduction is not None
        groups.setdefault(site.port.part if partial else i, []).append((site, value))
    reduced: list[tuple[Site, Array]] = []
    for group in groups.values():
        site, part = group[0][0], group[0][0].port.part
        reduction = part.reduction if part is not None else None
        values = [value for _, value in group]
        reduced.append((site, values[0] if reduction is None else collectives.reduce(reduction, values)))
    return reduced


def replica_tolerance(dtype: np.dtype[Any]) -> float:
    """What replicas may differ by, relative to the largest value. They do the same operations: their order alone differs."""
    return 1e-13 if dtype == np.float64 else 1e-6


def _check_replicas(name: str, expected: Array, got: Array, owners: Array, device: int) -> None:
    """Replicas are equal: floating ones to rounding, relative to the largest value."""
    if not expected.size or np.array_equal(expected, got):
        return
    if expected.dtype.kind in "biuOSU":
        different = expected != got
        detail = ""
    else:
        a, b = expected.astype(np.float64), got.astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        limit = replica_tolerance(expected.dtype) * float(np.abs(a[finite]).max(initial=0.0))
        with np.errstate(invalid="ignore"):
            different = ~((a == b) | (np.isnan(a) & np.isnan(b)) | (finite & (np.abs(a - b) <= limit)))
        detail = f" by up to {np.abs((a - b)[different & finite]).max(initial=0.0):.3g}"
    if different.any():
        other = int(owners[different][0])
        raise DistirError(
            f"output {name}: the replicas of devices {other} and {device} disagree{detail}"
            f" ({int(different.sum())} of {got.size} elements)"
        )
