"""numpy, torch and jax as discovery sees them. In go a callable and arrays; out come its results, or only their shapes and types.

Native kernels meet only shapes that inference without data accepted: fake tensors in torch, `eval_shape` in jax. numpy
checks as it runs, so there inference is a run. torch and jax are imported when one of their arrays is met."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol, cast

import numpy as np

from distir.dialects.errors import DistirError
from distir.dialects.jax.library import library
from distir.interpreters.exact.arrays import with_scalars
from distir.interpreters.exact.residues import EXACT
from distir.passes.shardcombine.domains import Array

Described = tuple[Sequence[int], np.dtype[Any]]
"""Shape and element type of an array."""
Fill = Callable[[Sequence[Any]], Sequence[Any]]
"""The arguments of a callable, with these arrays."""


def rebuilt(value: Any, of_item: Callable[[Any], Any]) -> Any:
    """The container with other items; what is none, as it is."""
    if isinstance(value, tuple) and hasattr(cast(Any, value), "_fields"):
        return type(cast(Any, value))(*map(of_item, cast(Any, value)))
    if isinstance(value, list | tuple):
        return type(cast(Any, value))(map(of_item, cast(Any, value)))
    if isinstance(value, dict):
        return {key: of_item(item) for key, item in cast(dict[Any, Any], value).items()}
    return value


def leaves(value: Any) -> list[Any]:
    """What is in tuples, lists and dicts, in order."""
    found: list[Any] = []

    def visit(item: Any) -> Any:
        if isinstance(item, tuple | list | dict):
            return rebuilt(item, visit)
        found.append(item)
        return item

    visit(value)
    return found


class Framework(Protocol):
    """Arrays of one library."""

    def is_array(self, value: Any) -> bool: ...

    def described(self, array: Any) -> Described: ...

    def infer(self, function: Callable[..., Any], operands: Sequence[Described], fill: Fill) -> list[Described]:
        """Shapes and types of the results; raises what the callable raises."""
        ...

    def run(
        self, function: Callable[..., Any], operands: Sequence[Array], dtypes: Sequence[np.dtype[Any]], fill: Fill
    ) -> list[Array]:
        """The results on copies of the operands: arrays of exact scalars, or doubles, which become the declared
        types only where the callable insists. Raises what it raises, and TypeError if it cannot take exact scalars."""
        ...

    def kept(
        self, function: Callable[..., Any], operands: Sequence[Array], dtypes: Sequence[np.dtype[Any]], fill: Fill
    ) -> dict[int, Array]:
        """Operands that must be integers which another operator gives, with those integers (`Domains.kept`)."""
        ...

    def before_unchecked(self, dtypes: Sequence[np.dtype[Any]]) -> Callable[[], None] | None:
        """Where kernels may crash on operands of these types: what a fork of this process must do before it runs any, or
        raise. None where they do not, or where a fork cannot run them."""
        ...


def framework_of(values: Sequence[Any]) -> Framework:
    """The library of the arrays among these values. Raises DistirError for a mixture."""
    found = [f for f in _loaded() if any(f.is_array(value) for value in values)]
    if len(found) > 1:
        names = " and ".join(type(f).__name__ for f in found)
        raise DistirError(f"discover: the example arguments mix arrays of {names}: convert them to one library")
    return found[0] if found else Numpy()


def _loaded() -> list[Framework]:
    """The libraries whose arrays there can be: who has one has imported its library."""
    found: list[Framework] = [Numpy()]
    found += [Torch()] if "torch" in sys.modules else []
    found += [Jax()] if "jax" in sys.modules else []
    return found


def _on_doubles_or_declared(
    call: Callable[[Sequence[Array]], list[Array]], operands: Sequence[Array], dtypes: Sequence[np.dtype[Any]]
) -> list[Array]:
    declared = [array.astype(dtype, copy=False) for array, dtype in zip(operands, dtypes, strict=True)]
    try:
        return call(operands)
    except Exception:
        if all(array is operand for array, operand in zip(declared, operands, strict=True)):
            raise
        return call(declared)


class Numpy:
    def is_array(self, value: Any) -> bool:
        return isinstance(value, np.ndarray)

    def described(self, array: Array) -> Described:
        return array.shape, array.dtype

    def infer(self, function: Callable[..., Any], operands: Sequence[Described], fill: Fill) -> list[Described]:
        rng = np.random.default_rng(0)
        arrays: list[Array] = []
        for shape, dtype in operands:
            floats = dtype.kind not in "iub"  # zeros are valid indices; a matrix of draws has an inverse
            arrays.append(rng.uniform(0.5, 1.5, shape).astype(dtype) if floats else np.zeros(shape, dtype))
        results = map(np.asarray, leaves(function(*fill(arrays))))
        return [(result.shape, result.dtype) for result in results]

    def run(
        self, function: Callable[..., Any], operands: Sequence[Array], dtypes: Sequence[np.dtype[Any]], fill: Fill
    ) -> list[Array]:
        def call(arrays: Sequence[Array]) -> list[Array]:
            return [np.asarray(r) for r in leaves(function(*fill([np.array(a) for a in arrays])))]

        if any(operand.dtype == EXACT for operand in operands):
            return call(with_scalars(operands))
        return _on_doubles_or_declared(call, operands, dtypes)

    def kept(
        self, function: Callable[..., Any], operands: Sequence[Array], dtypes: Sequence[np.dtype[Any]], fill: Fill
    ) -> dict[int, Array]:
        return {}

    def before_unchecked(self, dtypes: Sequence[np.dtype[Any]]) -> Callable[[], None] | None:
        return None


class Torch:
    """Shapes are inferred on meta tensors; on fake ones, which are slower, if the callable holds tensors of its own."""

    def __init__(self) -> None:
        self._on_meta: bool | None = None
        self._excused: set[Any] = set()
        """Gradient operators whose gradients need not fit."""
        self._asked = False

    def is_array(self, value: Any) -> bool:
        import torch

        return isinstance(value, torch.Tensor)

    def described(self, array: Any) -> Described:
        return tuple(array.shape), _numpy_dtype(str(array.dtype).removeprefix("torch."))

    def infer(self, function: Callable[..., Any], operands: Sequence[Described], fill: Fill) -> list[Described]:
        if self._on_meta is None:  # the first question is that of the example arguments
            try:
                found = self._infer_on_meta(function, operands, fill)
                self._on_meta = True
                return found
            except Exception:
                self._on_meta = False
        return (self._infer_on_meta if self._on_meta else self._infer_on_fake)(function, operands, fill)

    def _infer_on_meta(
        self, function: Callable[..., Any], operands: Sequence[Described], fill: Fill
    ) -> list[Described]:
        import torch

        with torch.device("meta"):
            return self._infer(function, operands, fill)

    def _infer_on_fake(
        self, function: Callable[..., Any], operands: Sequence[Described], fill: Fill
    ) -> list[Described]:
        from torch._subclasses import fake_tensor

        fake_tensor.log.disabled, was = True, fake_tensor.log.disabled  # it logs what operators reject
        try:
            with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
                return self._infer(function, operands, fill)
        finally:
            fake_tensor.log.disabled = was

    def _infer(self, function: Callable[..., Any], operands: Sequence[Described], fill: Fill) -> list[Described]:
        import torch

        from distir.interpreters.aten.gradients import FittingGradients

        tensors = [torch.empty(tuple(shape), dtype=getattr(torch, dtype.name)) for shape, dtype in operands]
        with FittingGradients(self._excused, is_example=not self._asked):
            results = [torch.as_tensor(result) for result in leaves(function(*fill(tensors)))]
        self._asked = True
        return [self.described(result) for result in results]

    def run(
        self, function: Callable[..., Any], operands: Sequence[Array], dtypes: Sequence[np.dtype[Any]], fill: Fill
    ) -> list[Array]:
        import torch

        from distir.interpreters.aten.exact import call_exactly
        from distir.interpreters.aten.gradients import KeptIntegers
        from distir.interpreters.aten.reference import array_of, tensor_of

        guard = KeptIntegers if _has_integers(dtypes) else nullcontext
        if any(operand.dtype == EXACT for operand in operands):
            torch_types = [getattr(torch, dtype.name) for dtype in dtypes]
            with guard():
                return call_exactly(lambda tensors: leaves(function(*fill(tensors))), operands, torch_types)

        def call(arrays: Sequence[Array]) -> list[Array]:
            with guard():
                results = leaves(function(*fill([tensor_of(np.array(array)) for array in arrays])))
            return [array_of(torch.as_tensor(result)) for result in results]

        return _on_doubles_or_declared(call, operands, dtypes)

    def kept(
        self, function: Callable[..., Any], operands: Sequence[Array], dtypes: Sequence[np.dtype[Any]], fill: Fill
    ) -> dict[int, Array]:
        from distir.interpreters.aten.gradients import KeptIntegers, machine_numbers
        from distir.interpreters.aten.reference import tensor_of

        if not _has_integers(dtypes):
            return {}
        tensors = [tensor_of(machine_numbers(np.array(operand))) for operand in operands]
        with KeptIntegers(tensors) as integers:
            function(*fill(tensors))
        return integers.found

    def before_unchecked(self, dtypes: Sequence[np.dtype[Any]]) -> Callable[[], None] | None:
        """A fork has none of the threads that autograd may have had."""
        import torch

        def prepare() -> None:
            torch.ones(1, requires_grad=True).sum().backward()

        return prepare if _has_integers(dtypes) else None


class Jax:
    def is_array(self, value: Any) -> bool:
        return isinstance(value, library().Array)

    def described(self, array: Any) -> Described:
        return tuple(array.shape), np.dtype(array.dtype)

    def infer(self, function: Callable[..., Any], operands: Sequence[Described], fill: Fill) -> list[Described]:
        jax = library()
        shapes = [jax.ShapeDtypeStruct(tuple(shape), dtype) for shape, dtype in operands]
        with jax.enable_x64(True):
            results = jax.eval_shape(lambda *arrays: leaves(function(*fill(arrays))), *shapes)
        return [(result.shape, np.dtype(result.dtype)) for result in cast(list[Any], results)]

    def run(
        self, function: Callable[..., Any], operands: Sequence[Array], dtypes: Sequence[np.dtype[Any]], fill: Fill
    ) -> list[Array]:
        """Indices out of range, which JAX clips, fills or drops, raise here."""
        jax, jnp, checkify = library(), library("jax.numpy"), library("jax.experimental.checkify")

        if any(operand.dtype == EXACT for operand in operands):
            raise TypeError("jax computes on numbers only")
        indexed = any(operand.dtype.kind in "iu" for operand in operands)

        def call(arrays: Sequence[Array]) -> list[Array]:
            traced: Callable[..., Any] = lambda *values: leaves(function(*fill(values)))  # noqa: E731
            values = [jnp.asarray(array) for array in arrays]
            if not indexed:
                return [np.asarray(result) for result in traced(*values)]
            error, results = checkify.checkify(traced, errors=checkify.index_checks)(*values)
            error.throw()
            return [np.asarray(result) for result in results]

        with jax.enable_x64(True):
            return _on_doubles_or_declared(call, operands, dtypes)

    def kept(
        self, function: Callable[..., Any], operands: Sequence[Array], dtypes: Sequence[np.dtype[Any]], fill: Fill
    ) -> dict[int, Array]:
        return {}

    def before_unchecked(self, dtypes: Sequence[np.dtype[Any]]) -> Callable[[], None] | None:
        """XLA clips, fills or drops; and a process with its threads cannot be forked."""
        return None


def _has_integers(dtypes: Sequence[np.dtype[Any]]) -> bool:
    return any(dtype.kind in "iu" for dtype in dtypes)


def _numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype of this name; those that numpy does not have are of ml_dtypes."""
    if hasattr(np, name):
        return np.dtype("bool" if name == "bool" else name)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))
