"""Operators of ATen over exact scalars (`exact.scalars`), without a line per operator. In go an operation and arrays
of residues; out come exact arrays.

An operator arrives at `ExactTensor.__torch_dispatch__`. Its kind is seen from its behaviour, the cheapest test
first:

    it moves elements     its results, run on distinct numbers twice, are those numbers at the same places (views, gathers,
                          concatenations, masks with a constant): the exact elements are moved alike
    it decomposes         torch's own decomposition runs, over exact tensors, down to `prims`
    it is multilinear     a sum of products of its operands (contractions, convolutions, scatters): the 61 bits of the scalars are
                          cut in limbs that doubles multiply and add exactly (`multilinear`)
    it is elementwise     (torch tags it so): an uninterpreted function of its elements

Anything else raises TypeError. Of `prims`, the ring, the order and reductions over them are in `exact.prims`; all
other elementwise prims are uninterpreted functions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from zlib import crc32

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from xdsl.dialects.builtin import AnyFloat, TensorType
from xdsl.ir import Operation

from distir.interpreters.aten.calls import binding_of, torch_dtype
from distir.interpreters.aten.reference import array_of, tensor_of
from distir.interpreters.exact import residues
from distir.interpreters.exact.multilinear import Terms, on_exact, terms
from distir.interpreters.exact.prims import COMPARISONS, ELEMENTWISE, REDUCTIONS, power, variance
from distir.interpreters.exact.residues import EXACT, Residues, packed, unpacked
from distir.interpreters.exact.scalars import LARGEST_POWER
from distir.interpreters.labels import labelled, places_among

Array = np.ndarray[Any, Any]


def run_exactly(op: Operation, operands: Sequence[Array]) -> tuple[Array | None, ...]:
    """The results of an operation on arrays of exact scalars, of type `EXACT`; integers and truths are machine numbers.

    A result of fewer bits than every operand has been rounded, which does not commute with addition. Rounding inside an
    operator is ignored. Raises TypeError for an operator that needs machine numbers."""
    tensors: list[Tensor] = []
    bits: list[int] = []
    for operand, array in zip(op.operands, operands, strict=True):
        element = cast(TensorType[Any], operand.type).element_type
        if isinstance(element, AnyFloat):
            tensors.append(ExactTensor(_elements(array), torch_dtype(element)))
            bits.append(element.bitwidth)
        else:
            tensors.append(tensor_of(array))
    with torch.no_grad():
        results = binding_of(op).compute()(tensors)
    found: list[Array | None] = []
    for result, declared in zip(results, op.results, strict=True):
        element = declared.type.element_type if isinstance(declared.type, TensorType) else None  # pyright: ignore
        if result is None:
            found.append(None)
        elif isinstance(result, ExactTensor):
            rounded = isinstance(element, AnyFloat) and bits and element.bitwidth < min(bits)
            found.append(packed(_opaque(f"round to {element}", result.exact) if rounded else result.exact))
        elif isinstance(element, AnyFloat):
            found.append(packed(residues.residues(array_of(result))))
        else:
            found.append(array_of(result))
    return tuple(found)


def call_exactly(
    compute: Callable[[list[Tensor]], Sequence[Any]], operands: Sequence[Array], dtypes: Sequence[torch.dtype]
) -> list[Array]:
    """The results of any torch code on arrays of exact scalars, as tensors of these types; otherwise `run_exactly`."""
    tensors = [
        ExactTensor(_elements(array), dtype) if dtype.is_floating_point else tensor_of(array)
        for array, dtype in zip(operands, dtypes, strict=True)
    ]
    bits = min((dtype.itemsize for dtype in dtypes if dtype.is_floating_point), default=0)
    found: list[Array] = []
    for result in compute(tensors):
        if isinstance(result, ExactTensor):
            rounded = result.dtype.itemsize < bits
            found.append(packed(_opaque(f"round to {result.dtype}", result.exact) if rounded else result.exact))
            continue
        array = array_of(torch.as_tensor(result))
        found.append(array if array.dtype.kind in "iub" else packed(residues.residues(array)))
    return found


class ExactTensor(Tensor):
    """A floating tensor whose elements are exact scalars, as residues."""

    exact: Residues
    has_alias: bool = False
    """Whether another tensor stands for the same memory: what is written to one would have to be in the other."""

    @staticmethod
    def __new__(cls: type[ExactTensor], exact: Residues, dtype: torch.dtype) -> ExactTensor:
        make: Any = getattr(torch.Tensor, "_make_wrapper_subclass")
        return make(cls, exact.shape, dtype=dtype)

    def __init__(self, exact: Residues, dtype: torch.dtype):
        self.exact = np.asarray(exact)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"ExactTensor({list(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        call = _Call(func, args, dict(kwargs or {}))
        if func._schema.is_mutable:
            return call.run_in_place()
        results = call.run()
        if any(result.alias_info is not None for result in func._schema.returns):
            for tensor in (*call.leaves, *pytree.tree_leaves(results)):
                if isinstance(tensor, ExactTensor):
                    tensor.has_alias = True
        return results


def _elements(array: Array) -> Residues:
    """An array of exact scalars, or of numbers, as residues."""
    return unpacked(array) if array.dtype == EXACT else residues.residues(array)


def _opaque(name: str, *arrays: Any) -> Residues:
    """A function of elements of which nothing is known but its name."""
    return residues.opaque(crc32(name.encode()), *arrays)


@dataclass(frozen=True)
class _Moved:
    """A result whose elements are elements of the operands, or constants."""

    places: Array
    """Of each element, its number among all elements of the operands, from 1; 0 for a constant."""
    constants: Array
    """Those at the places 0, in order."""

    @staticmethod
    def of(result: Tensor, labels: Array) -> _Moved:
        """As seen from a result on these distinct numbers."""
        values = array_of(result.double())
        places = places_among(values, labels) + 1
        return _Moved(places, values[places == 0])

    @property
    def is_undefined(self) -> bool:
        """Whether all of it is nan: these numbers are outside the function's domain (the arc cosine's), and say nothing of it."""
        return self.places.size > 0 and self.constants.size == self.places.size and bool(np.isnan(self.constants).all())


def _is_same(one: _Moved | Tensor, other: _Moved | Tensor) -> bool:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)
    same = np.array_equal(one.places, other.places)
    return same and np.array_equal(one.constants, other.constants, equal_nan=True)


_known: dict[Hashable, dict[str, Any]] = {}
_MOST_KNOWN = 2000
"""Calls of which something is remembered."""
_LARGEST_EXPONENT = 1 << 16
"""Of an integer, in Python."""


class _Call:
    """One operator on arguments among which are exact tensors."""

    def __init__(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]):
        self.func, self.args, self.kwargs = func, args, kwargs
        self.leaves, self.structure = pytree.tree_flatten((list(args), kwargs))
        self.places = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, ExactTensor)]
        self.exact: list[Residues] = [self.leaves[i].exact for i in self.places]
        self.is_elementwise = torch.Tag.pointwise in self.func.tags
        self.shapes = self._described()
        self.are_all_exact = len(self.places) == sum(isinstance(leaf, Tensor) for leaf in self.leaves)

    def run(self) -> Any:
        packet = self.func.overloadpacket.__name__
        if self.func.namespace == "prims":
            return self._prim(packet)
        decomposition = _decompositions().get(self.func)
        if (decomposition is None or not self.is_elementwise) and (moved := self._moved()) is not None:
            return moved
        if decomposition is not None:
            args, kwargs = self._with_short_integers() if self.is_elementwise else (self.args, self.kwargs)
            results = decomposition(*args, **kwargs)
            if results is not NotImplemented:
                return results
        if self.func._can_decompose():
            return self.func.decompose(*self.args, **self.kwargs)
        if (made := self._multilinear()) is not None:
            return made
        if self.is_elementwise:
            return self._like_results(_opaque(str(self.func), *self._broadcast()))
        raise TypeError(f"{self.func} needs machine numbers")

    def _with_short_integers(self) -> Any:
        """The arguments, large integers among them as floats: a power of one would be an integer of as many digits, which takes Python minutes."""
        leaves = [float(x) if type(x) is int and abs(x) > _LARGEST_EXPONENT else x for x in self.leaves]
        return pytree.tree_unflatten(leaves, self.structure)

    def run_in_place(self) -> Any:
        """The tensor that the operator writes to, with what it writes. Raises TypeError where more than that tensor would change."""
        schema = self.func._schema
        written = [
            self.kwargs.get(argument.name, self.args[i] if i < len(self.args) else None)
            for i, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        tensor = written[0] if len(written) == 1 else None
        if not isinstance(tensor, ExactTensor) or tensor.has_alias or len(schema.returns) != 1:
            raise TypeError(f"{self.func} writes to memory that others see")
        result = self.run()
        if not isinstance(result, ExactTensor) or result.shape != tensor.shape:
            raise TypeError(f"{self.func} needs machine numbers")
        tensor.exact = result.exact
        return tensor

    def _on(self, arrays: Sequence[Array]) -> Any:
        """The results of the operator on doubles in the places of the exact tensors, copies, since it may write to them."""
        leaves = list(self.leaves)
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, torch.dtype) and leaf.is_floating_point:
                leaves[i] = torch.float64
        for place, array in zip(self.places, arrays, strict=True):
            leaves[place] = torch.from_numpy(np.array(array, order="C"))
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

    def _types(self) -> Any:
        """The results as their types, in the structure in which the operator gives them; None for what is no tensor."""

        def find() -> Any:
            return pytree.tree_map(lambda m: m.dtype if isinstance(m, Tensor) else None, self._meta())

        return self._remembered("types", find)

    def _like_results(self, array: Residues) -> Any:
        return ExactTensor(array, self._types())

    def _remembered(self, question: str, find: Callable[[], Any]) -> Any:
        """What `find` says of this operator on operands of these shapes with these other arguments, whatever the elements."""
        if len(_known) > _MOST_KNOWN:
            _known.clear()
        answers = _known.setdefault(self.shapes, {})
        if question not in answers:
            answers[question] = find()
        return answers[question]

    def _described(self) -> Hashable:
        """Equal for calls that differ in nothing but the elements of tensors."""
        described = (
            (type(leaf), leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else (type(leaf), leaf)
            for leaf in self.leaves
        )
        return self.func, str(self.structure), *described

    # --- operators that move elements ---

    def _moved(self) -> Any:
        """The results of an operator that moves elements, and puts in constants; None if it does not."""
        found: tuple[Any, list[_Moved | Tensor]] | None = (
            self._remembered("moves", self._moves) if self.are_all_exact else self._moves()
        )
        if found is None:
            return None
        structure, moves = found
        source = np.concatenate([np.zeros(1, np.int64), *(array.reshape(-1) for array in self.exact)])
        types = pytree.tree_leaves(self._types())
        results: list[Tensor] = []
        for moved, dtype in zip(moves, types, strict=True):
            if isinstance(moved, Tensor):
                results.append(moved.clone())
                continue
            exact = np.asarray(source[moved.places])  # of no dims, numpy gives a number
            exact[moved.places == 0] = moved.constants
            results.append(ExactTensor(exact, dtype or torch.float64))
        return pytree.tree_unflatten(results, structure)

    def _moves(self) -> tuple[Any, list[_Moved | Tensor]] | None:
        """Where the elements of each result come from. An operator that looks at values moves differently where their order is
        another, or their sign; one that rounds gives none of the numbers, which are fractions; and one that is at its bounds on large
        numbers (a product of gates) is not on small ones. These come before the negative ones, on which a series (polygamma) may take
        a step for every integer up to zero."""
        total = sum(array.size for array in self.exact)
        rng = np.random.default_rng(total)
        numbers = rng.choice(2**40, total, replace=False) + 2.0**41 + 0.25
        found: list[_Moved | Tensor] = []
        structure: Any = None
        for labels in (numbers, rng.standard_normal(total), -numbers, 2.0**43 + 0.5 - numbers):
            try:
                leaves, structure = pytree.tree_flatten(self._on(labelled(self.exact, labels)))
            except Exception:
                return None
            if not all(isinstance(leaf, Tensor) for leaf in leaves):
                return None
            here = [_Moved.of(leaf, labels) if leaf.dtype.is_floating_point else leaf for leaf in leaves]
            if any(isinstance(each, _Moved) and each.is_undefined for each in here):
                return None
            if found and not all(map(_is_same, found, here)):
                return None
            found = found or here
        return structure, [
            replace(each, constants=residues.residues(each.constants)) if isinstance(each, _Moved) else each
            for each in found
        ]

    # --- operators that add up products ---

    def _run(self, arrays: Sequence[Array]) -> list[Array] | None:
        """The results on doubles; None if one is not of floats."""
        leaves = pytree.tree_leaves(self._on(arrays))
        if not all(isinstance(leaf, Tensor) and leaf.dtype.is_floating_point for leaf in leaves if leaf is not None):
            return None
        return [array_of(leaf.double()) for leaf in leaves if leaf is not None]

    def _multilinear(self) -> Any:
        """The results of an operator that adds up products of its exact operands; None if it does not."""

        def find() -> Terms | None:
            return terms(self._run, [array.shape for array in self.exact])

        try:
            found: Terms | None = self._remembered("terms", find) if self.are_all_exact else find()
            return None if found is None else self._finish(on_exact(self._run, self.exact, found))
        except (RuntimeError, NotImplementedError):
            return None
        except ArithmeticError as error:
            raise TypeError(f"{self.func}: {error}") from error

    def _finish(self, totals: Sequence[Residues]) -> Any:
        present = iter(totals)
        leaves, structure = pytree.tree_flatten(self._meta())
        wrapped = [None if leaf is None else ExactTensor(next(present), leaf.dtype) for leaf in leaves]
        return pytree.tree_unflatten(wrapped, structure)

    # --- prims ---

    def _broadcast(self) -> list[Residues]:
        """All tensors and numbers among the arguments, as residues of one shape."""
        arrays = [
            leaf.exact
            if isinstance(leaf, ExactTensor)
            else residues.residues(array_of(leaf) if isinstance(leaf, Tensor) else leaf)
            for leaf in self.leaves
            if isinstance(leaf, Tensor | bool | int | float)
        ]
        return list(np.broadcast_arrays(*arrays))

    def _prim(self, name: str) -> Any:
        if name in REDUCTIONS:
            dims = tuple(cast(Sequence[int], self.args[1] if len(self.args) > 1 else self.kwargs["dims"]))
            return self._like_results(residues.reduced(REDUCTIONS[name], self.exact[0], dims))
        if name == "var":
            return self._like_results(variance(self.exact[0], *self.args[1:], **self.kwargs))
        if name == "convert_element_type":
            dtype = cast(torch.dtype, self.args[1] if len(self.args) > 1 else self.kwargs["dtype"])
            if not dtype.is_floating_point:
                raise TypeError("a cast of exact scalars to integers")
            return ExactTensor(self.exact[0], dtype)
        if name == "pow" and (exponents := self._exponents()) is not None:
            return self._like_operand(power(self.exact[0], exponents))
        if name in ELEMENTWISE:
            result = np.asarray(ELEMENTWISE[name](*self._broadcast()))
            return torch.from_numpy(result) if name in COMPARISONS else self._like_operand(result)
        if (moved := self._moved()) is not None:
            return moved
        if self.is_elementwise or self._looks_elementwise():
            return self._like_operand(_opaque(name, *self._broadcast()))
        raise TypeError(f"prims.{name} needs machine numbers")

    def _exponents(self) -> Array | None:
        """Those of a power with small integers for exponents."""
        base, exponent = self.args
        if isinstance(exponent, ExactTensor) or not isinstance(base, ExactTensor):
            return None
        numbers = array_of(exponent) if isinstance(exponent, Tensor) else np.asarray(exponent)
        return numbers if (np.abs(numbers) <= LARGEST_POWER).all() and (numbers == np.round(numbers)).all() else None

    def _looks_elementwise(self) -> bool:
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

    def _like_operand(self, array: Residues) -> Any:
        """The result of an elementwise prim: prims do not promote types."""
        dtypes = [self.leaves[i].dtype for i in self.places]
        return ExactTensor(array, dtypes[0])


def _decompositions() -> Mapping[Any, Callable[..., Any]]:
    import torch._decomp
    import torch._refs  # pyright: ignore[reportUnusedImport]  # registers decompositions

    return torch._decomp.decomposition_table  # pyright: ignore[reportPrivateUsage]
