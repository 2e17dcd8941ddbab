"""Operators of ATen over exact scalars (`exact_scalars`), without a line per operator.

An operator arrives at `ExactTensor.__torch_dispatch__`, and what it is, is seen from what it does, cheapest first:

    it moves elements     its results, run on distinct numbers twice, are those numbers at the same places (views, gathers,
                          concatenations, masks with a constant): the exact elements are moved alike
    it decomposes         torch's own decomposition runs, over exact tensors, down to `prims`
    it is linear          additive in all operands together, or in each (contractions, convolutions, scatters): the 61 bits
                          of the scalars are cut in limbs that doubles multiply and add exactly, and put together again
    it is elementwise     (torch tags it so): a function of its elements of which nothing is known

Anything else raises TypeError. Of `prims`, the ring, the order and reductions over them are given here (`_PRIMS`); all other
elementwise ones are functions of which nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any, cast
from zlib import crc32

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from xdsl.dialects.builtin import AnyFloat, TensorType
from xdsl.ir import Operation

from distir.interpreters.aten_calls import compile_call, torch_dtype
from distir.interpreters.aten_reference import array_of, tensor_of
from distir.interpreters.exact_scalars import PRIME, Scalar

Array = np.ndarray[Any, Any]


def run_exactly(op: Operation, operands: Sequence[Array]) -> tuple[Array | None, ...]:
    """The results of an operation on object arrays of scalars; integers and truths are machine numbers.

    A result of fewer bits than every operand has been rounded, which does not commute with addition. Rounding inside an
    operator is ignored. Raises TypeError for an operator that needs machine numbers."""
    tensors: list[Tensor] = []
    bits: list[int] = []
    for operand, array in zip(op.operands, operands, strict=True):
        element = cast(TensorType[Any], operand.type).element_type
        if isinstance(element, AnyFloat):
            tensors.append(ExactTensor(_scalars(array), torch_dtype(element)))
            bits.append(element.bitwidth)
        else:
            tensors.append(tensor_of(array))
    with torch.no_grad():
        results = compile_call(op)(tensors)
    found: list[Array | None] = []
    for result, declared in zip(results, op.results, strict=True):
        element = declared.type.element_type if isinstance(declared.type, TensorType) else None  # pyright: ignore
        if result is None:
            found.append(None)
        elif isinstance(result, ExactTensor):
            rounded = isinstance(element, AnyFloat) and bits and element.bitwidth < min(bits)
            found.append(_opaque(f"round to {element}", result.exact) if rounded else result.exact)
        elif isinstance(element, AnyFloat):
            found.append(_scalars(array_of(result)))
        else:
            found.append(array_of(result))
    return tuple(found)


def call_exactly(
    compute: Callable[[list[Tensor]], Sequence[Any]], operands: Sequence[Array], dtypes: Sequence[torch.dtype]
) -> list[Array]:
    """The results of any torch code on object arrays of scalars, as tensors of these types; otherwise `run_exactly`."""
    tensors = [
        ExactTensor(_scalars(array), dtype) if dtype.is_floating_point else tensor_of(array)
        for array, dtype in zip(operands, dtypes, strict=True)
    ]
    bits = min((dtype.itemsize for dtype in dtypes if dtype.is_floating_point), default=0)
    found: list[Array] = []
    for result in compute(tensors):
        if isinstance(result, ExactTensor):
            rounded = result.dtype.itemsize < bits
            found.append(_opaque(f"round to {result.dtype}", result.exact) if rounded else result.exact)
            continue
        tensor = torch.as_tensor(result)
        found.append(_scalars(array_of(tensor)) if tensor.dtype.is_floating_point else array_of(tensor))
    return found


class ExactTensor(Tensor):
    """A floating tensor whose elements are exact scalars."""

    exact: Array

    @staticmethod
    def __new__(cls: type[ExactTensor], exact: Array, dtype: torch.dtype) -> ExactTensor:
        make: Any = getattr(torch.Tensor, "_make_wrapper_subclass")
        return make(cls, exact.shape, dtype=dtype)

    def __init__(self, exact: Array, dtype: torch.dtype):
        self.exact = exact

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"ExactTensor({list(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _Call(func, args, dict(kwargs or {})).run()


def _scalars(array: Array) -> Array:
    """An array of numbers as exact scalars."""
    if array.dtype == object and (not array.size or isinstance(array.flat[0], Scalar)):
        return array
    return _from_list([Scalar.of(number) for number in array.astype(object).reshape(-1).tolist()], array.shape)


def _from_list(items: Sequence[Any], shape: Sequence[int]) -> Array:
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(tuple(shape))


def _opaque(name: str, *arrays: Any) -> Array:
    """A function of elements of which nothing is known but its name."""
    code = crc32(name.encode())

    def function(*numbers: Any) -> Scalar:
        return Scalar(hash((code, *(Scalar.of(number).value for number in numbers))) % PRIME)

    return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), dtype=object)


class _Call:
    """One operator on arguments among which are exact tensors."""

    def __init__(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]):
        self.func, self.args, self.kwargs = func, args, kwargs
        self.leaves, self.structure = pytree.tree_flatten((list(args), kwargs))
        self.places = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, ExactTensor)]
        self.exact: list[Array] = [self.leaves[i].exact for i in self.places]

    def run(self) -> Any:
        packet = self.func.overloadpacket.__name__
        if self.func.namespace == "prims":
            return self._prim(packet)
        if (moved := self._moved()) is not None:
            return moved
        if (decomposition := _decompositions().get(self.func)) is not None:
            results = decomposition(*self.args, **self.kwargs)
            if results is not NotImplemented:
                return results
        if self.func._can_decompose():
            return self.func.decompose(*self.args, **self.kwargs)
        if (linear := self._linear()) is not None:
            return linear
        if torch.Tag.pointwise in self.func.tags:
            return self._like_results(_opaque(str(self.func), *self._broadcast()))
        raise TypeError(f"{self.func} needs machine numbers")

    def _on(self, arrays: Sequence[Array]) -> Any:
        """The results of the operator on doubles in the places of the exact tensors."""
        leaves = list(self.leaves)
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, torch.dtype) and leaf.is_floating_point:
                leaves[i] = torch.float64
        for place, array in zip(self.places, arrays, strict=True):
            leaves[place] = torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return self.func(*args, **kwargs)

    def _meta(self) -> Any:
        """The results as shapes and types."""

        def shape_of(leaf: Any) -> Any:
            if isinstance(leaf, ExactTensor):
                return torch.empty(leaf.shape, dtype=leaf.dtype, device="meta")
            return leaf.to("meta") if isinstance(leaf, Tensor) else leaf

        args, kwargs = pytree.tree_unflatten([shape_of(leaf) for leaf in self.leaves], self.structure)
        return self.func(*args, **kwargs)

    def _dtype(self) -> torch.dtype:
        return self._meta().dtype

    def _like_results(self, array: Array) -> Any:
        return ExactTensor(np.asarray(array, dtype=object), self._dtype())

    def _wrapped(self, results: Any, exact: Sequence[Array | None]) -> Any:
        """Results in the structure in which the operator gave them; None in `exact` keeps the machine numbers."""
        leaves, structure = pytree.tree_flatten(results)
        types = [m.dtype if isinstance(m, Tensor) else None for m in pytree.tree_leaves(self._meta())]
        wrapped = [
            ExactTensor(array, dtype or torch.float64) if array is not None else leaf
            for leaf, array, dtype in zip(leaves, exact, types, strict=True)
        ]
        return pytree.tree_unflatten(wrapped, structure)

    # --- operators that move elements ---

    def _moved(self) -> Any:
        """The results of an operator that moves elements, and puts in constants; None if it does not.

        An operator that looks at values moves differently where their order is another, or their sign; one that rounds
        gives none of the numbers, which are fractions."""
        total = sum(array.size for array in self.exact)
        numbers = np.random.default_rng(total).choice(2**40, total, replace=False) + 2.0**41 + 0.25
        runs = [numbers, 2.0**43 + 0.5 - numbers, -numbers]
        try:
            results = [self._on(_filled(self.exact, labels)) for labels in runs]
        except Exception:
            return None
        source = _from_list([x for array in self.exact for x in array.reshape(-1).tolist()], (total,))
        exact: list[Array | None] = []
        for members in zip(*map(pytree.tree_leaves, results), strict=True):
            if not all(isinstance(member, Tensor) for member in members):
                return None
            if not members[0].dtype.is_floating_point:
                if not all(torch.equal(members[0], member) for member in members[1:]):
                    return None
                exact.append(None)
                continue
            arrays = [array_of(member.double()) for member in members]
            places = [_places(array, labels) for array, labels in zip(arrays, runs, strict=True)]
            fixed = places[0] < 0
            for array, place in zip(arrays[1:], places[1:], strict=True):
                if not np.array_equal(place, places[0]):
                    return None
                if not np.array_equal(array[fixed], arrays[0][fixed], equal_nan=True):
                    return None
            moved = np.asarray(source[np.where(fixed, 0, places[0])], dtype=object)
            if fixed.any():
                constants, which = np.unique(arrays[0][fixed], return_inverse=True)
                moved[fixed] = _from_list([Scalar.of(number) for number in constants.tolist()], constants.shape)[which]
            exact.append(moved)
        return self._wrapped(results[0], exact)

    # --- linear operators ---

    def _linear(self) -> Any:
        """The results of an operator that is additive in its exact operands, together or each; None if it is not."""
        generator = np.random.default_rng(7)

        def draw() -> list[Array]:
            return [generator.integers(-(2**10), 2**10, array.shape) / 4 for array in self.exact]

        def run(arrays: Sequence[Array]) -> list[Array] | None:
            leaves = pytree.tree_leaves(self._on(arrays))
            if not all(
                isinstance(leaf, Tensor) and leaf.dtype.is_floating_point for leaf in leaves if leaf is not None
            ):
                return None
            return [array_of(leaf.double()) for leaf in leaves if leaf is not None]

        a, b = draw(), draw()
        try:
            at_a, at_b = run(a), run(b)
            together = run([x + y for x, y in zip(a, b, strict=True)])
            if at_a is None or at_b is None or together is None:
                return None
            if all(np.array_equal(x + y, z) for x, y, z in zip(at_a, at_b, together, strict=True)):
                return self._from_limbs(run, [(limb,) * len(self.exact) for limb in range(_LIMBS)])
            dependent: list[set[int]] = [set() for _ in at_a]
            for i in range(len(self.exact)):
                other = run([b[j] if j == i else a[j] for j in range(len(a))])
                both = run([a[j] + b[j] if j == i else a[j] for j in range(len(a))])
                if other is None or both is None:
                    return None
                for r, (x, y, z) in enumerate(zip(at_a, other, both, strict=True)):
                    if np.array_equal(x, y) and np.array_equal(x, z):
                        continue
                    if not np.array_equal(x + y, z):
                        return None
                    dependent[r].add(i)
            return self._multilinear(run, dependent)
        except (RuntimeError, NotImplementedError):
            return None

    def _multilinear(self, run: Callable[[Sequence[Array]], list[Array] | None], dependent: Sequence[set[int]]) -> Any:
        """Each result is additive in each operand that it depends on: products of limbs over those, others at limb 0."""
        whole: list[Array | None] = [None] * len(dependent)
        for operands in dict.fromkeys(frozenset(each) for each in dependent):
            choices = [range(_LIMBS) if i in operands else range(1) for i in range(len(self.exact))]
            part = self._limb_sums(run, list(product(*choices)), operands)
            for r, each in enumerate(dependent):
                if frozenset(each) == operands:
                    whole[r] = part[r]
        return self._finish(cast(list[Array], whole))

    def _from_limbs(
        self, run: Callable[[Sequence[Array]], list[Array] | None], terms: Sequence[tuple[int, ...]]
    ) -> Any:
        return self._finish(self._limb_sums(run, terms, frozenset([0])))

    def _limb_sums(
        self,
        run: Callable[[Sequence[Array]], list[Array] | None],
        terms: Sequence[tuple[int, ...]],
        counted: frozenset[int],
    ) -> list[Array]:
        """Sums over terms of the results at these limbs, times their weight: two to the bits of the limbs of operands that
        count."""
        values = [
            np.array([x.value for x in array.reshape(-1).tolist()], np.int64).reshape(array.shape)
            for array in self.exact
        ]
        limbs = [
            [(v >> (_LIMB_BITS * k) & (2**_LIMB_BITS - 1)).astype(np.float64) for k in range(_LIMBS)] for v in values
        ]
        totals: list[Any] = []
        for term in terms:
            results = run([limbs[i][k] for i, k in enumerate(term)])
            assert results is not None
            weight = pow(2, _LIMB_BITS * sum(k for i, k in enumerate(term) if i in counted), PRIME)
            if any(np.abs(result).max(initial=0) >= 2**53 or (result != np.round(result)).any() for result in results):
                raise TypeError(f"{self.func}: doubles do not hold its results")
            scaled = [result.astype(np.int64).astype(object) * weight for result in results]
            totals = scaled if not totals else [t + s for t, s in zip(totals, scaled, strict=True)]
        return [np.asarray(total % PRIME, dtype=object) for total in totals]

    def _finish(self, totals: Sequence[Array]) -> Any:
        arrays = [_from_list([Scalar(int(x)) for x in total.reshape(-1).tolist()], total.shape) for total in totals]
        metas = self._meta()
        present = iter(arrays)
        leaves, structure = pytree.tree_flatten(metas)
        wrapped = [None if leaf is None else ExactTensor(next(present), leaf.dtype) for leaf in leaves]
        return pytree.tree_unflatten(wrapped, structure)

    # --- prims ---

    def _broadcast(self) -> list[Any]:
        """All tensors and numbers among the arguments, as arrays of one shape."""
        arrays = [
            leaf.exact
            if isinstance(leaf, ExactTensor)
            else array_of(leaf)
            if isinstance(leaf, Tensor)
            else np.asarray(leaf, object)
            for leaf in self.leaves
            if isinstance(leaf, Tensor | bool | int | float)
        ]
        return list(np.broadcast_arrays(*(a if a.dtype == object else a.astype(object) for a in arrays)))

    def _prim(self, name: str) -> Any:
        if name in _REDUCTIONS:
            dims = tuple(cast(Sequence[int], self.args[1] if len(self.args) > 1 else self.kwargs["dims"]))
            return self._like_results(_REDUCTIONS[name](self.exact[0], dims))
        if name == "var":
            return self._like_results(_variance(self.exact[0], *self.args[1:], **self.kwargs))
        if name == "convert_element_type":
            dtype = cast(torch.dtype, self.args[1] if len(self.args) > 1 else self.kwargs["dtype"])
            if not dtype.is_floating_point:
                raise TypeError("a cast of exact scalars to integers")
            return ExactTensor(self.exact[0], dtype)
        if name in _ELEMENTWISE:
            result = np.asarray(_ELEMENTWISE[name](*self._broadcast()))
            return torch.from_numpy(result.astype(np.bool_)) if name in _COMPARISONS else self._like_operand(result)
        if (moved := self._moved()) is not None:
            return moved
        if torch.Tag.pointwise in self.func.tags or self._is_elementwise():
            return self._like_operand(_opaque(name, *self._broadcast()))
        raise TypeError(f"prims.{name} needs machine numbers")

    def _is_elementwise(self) -> bool:
        """Whether each element of the one result depends on the elements at its own place only."""
        shape = np.broadcast_shapes(*(array.shape for array in self.exact))
        ones = [np.ones(array.shape) for array in self.exact]
        changed = [array + 0.5 * (np.arange(array.size) == array.size // 2).reshape(array.shape) for array in ones]
        before, after = self._on(ones), self._on(changed)
        alike = isinstance(before, Tensor) and before.dtype.is_floating_point and tuple(before.shape) == shape
        if not alike or any(array.shape not in ((), shape) for array in self.exact):
            return False
        same = array_of(torch.isclose(before, after, rtol=0, atol=0, equal_nan=True)).reshape(-1)
        return any(array.shape == () for array in self.exact) or bool(np.delete(same, same.size // 2).all())

    def _like_operand(self, array: Array) -> Any:
        """The result of an elementwise prim: prims do not promote types."""
        dtypes = [self.leaves[i].dtype for i in self.places]
        return ExactTensor(np.asarray(array, dtype=object), dtypes[0])


_LIMB_BITS, _LIMBS = 21, 3


def _filled(arrays: Sequence[Array], labels: Array) -> list[Array]:
    """Arrays of these shapes with labels one after the other."""
    ends = np.cumsum([array.size for array in arrays])[:-1]
    return [part.reshape(array.shape) for part, array in zip(np.split(labels, ends), arrays, strict=True)]


def _places(values: Array, labels: Array) -> Array:
    """Where each value is among the labels; -1 for no label."""
    if not labels.size:
        return np.full(values.shape, -1)
    order = np.argsort(labels)
    at = order[np.minimum(np.searchsorted(labels[order], values), len(labels) - 1)]
    return np.where(labels[at] == values, at, -1)


def _decompositions() -> Mapping[Any, Callable[..., Any]]:
    import torch._decomp
    import torch._refs  # pyright: ignore[reportUnusedImport]  # registers decompositions

    return torch._decomp.decomposition_table  # pyright: ignore[reportPrivateUsage]


def _reduced(combine: Callable[[Any, Any], Any]) -> Callable[[Array, tuple[int, ...]], Array]:
    def function(array: Array, dims: tuple[int, ...]) -> Array:
        if not dims:
            return array
        kept = [d for d in range(array.ndim) if d not in {x % array.ndim for x in dims}]
        shape = [array.shape[d] for d in kept]
        rows = array.transpose([*kept, *(d for d in range(array.ndim) if d not in kept)]).reshape(math.prod(shape), -1)
        return _from_list([reduce(combine, row) for row in rows.tolist()], shape)

    return function


def _variance(array: Array, dims: Sequence[int] | None, correction: float | None = 1, **_: Any) -> Array:
    every = tuple(range(array.ndim)) if dims is None else tuple(d % array.ndim for d in dims)
    count = math.prod(array.shape[d] for d in every)
    mean = np.expand_dims(np.asarray(_REDUCTIONS["sum"](array, every) / count), every)
    return np.asarray(
        _REDUCTIONS["sum"]((array - mean) ** 2, every) / (count - (1 if correction is None else correction))
    )


_REDUCTIONS: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "sum": _reduced(lambda a, b: a + b),
    "prod": _reduced(lambda a, b: a * b),
    "amax": _reduced(lambda a, b: a if a > b else b),
    "amin": _reduced(lambda a, b: a if a < b else b),
}
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isfinite"})
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.frompyfunc(lambda a, b: Scalar.of(a) / b, 2, 1),
    "neg": np.negative,
    "reciprocal": np.frompyfunc(lambda a: 1 / Scalar.of(a), 1, 1),
    "pow": np.frompyfunc(lambda a, b: Scalar.of(a) ** b, 2, 1),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "where": lambda condition, a, b: np.where(condition.astype(np.bool_), a, b),
    "isfinite": lambda a: np.ones(a.shape, np.bool_),
    **{name: np.frompyfunc(getattr(Scalar, f"__{name}__"), 2, 1) for name in ("lt", "le", "gt", "ge", "eq")},
    "ne": np.frompyfunc(lambda a, b: not (Scalar.of(a) == b), 2, 1),
}
