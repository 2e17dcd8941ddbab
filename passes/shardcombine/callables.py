"""Rules of Python callables. In go a kernel of any framework and example arguments; out comes the rule of an op
whose meaning is the callable (MetaDist's MetaOp).

`discover` is public, as `distir.discover`. Arrays among the example arguments are operands and integers are sizes, at any
depth of tuples, lists and dicts; the rest is passed as it is. `array_frameworks` knows how arrays of numpy, torch and jax
are made and how shapes are inferred; everything else is the discovery of operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, TensorType, i64
from xdsl.ir import Attribute, Block, Operation
from xdsl.irdl import IRDLOperation, irdl_op_definition, var_operand_def, var_result_def

from distir.dialects.errors import DistirError
from distir.dialects.onnx.types import ELEMENT_OF_NUMPY_NAME
from distir.dialects.sharding import Rule
from distir.interpreters.isolation import in_child
from distir.passes.shardcombine.array_frameworks import Framework, framework_of, leaves, rebuilt
from distir.passes.shardcombine.cache import parse_rule, rule_text
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import Abstract, Array


def discover(callable: Callable[..., Any], example_args: Sequence[Any]) -> Rule:
    """The rule by which `callable(*example_args)` runs on shards; `str` of it is the text `#dist.rule<...>`.

    Arrays (numpy, or torch, or jax) are operands 0, 1, .. of the rule, and integers are sizes, named after the parameter
    that takes them: `reshape(x, shape)` has `shape[0]`, `shape[1]`. Of the arrays, only shapes and element types count;
    modest ones are found faster. Results are the arrays and numbers that the callable returns, in order.

    The callable runs many times, on arrays of other sizes, which it must reject by raising where they do not fit; so
    must it indices that are out of range. Its arguments are copies. It must give the same on equal arguments: one that
    draws random numbers gets a rule without factors, as does anything else for which nothing was found. A torch callable that
    takes integer arrays runs in a fork of this process, since kernels may not check them.

    Numpy callables run on object arrays of exact scalars, torch callables on tensors of them, wherever their code lets
    them (`found = exact`); others, and all of jax, on floats (`found = probed`).

    Raises DistirError if the callable fails on the example arguments or takes none that is an array, and if it crashes where
    it should raise."""
    if not isinstance(example_args, tuple | list):
        raise DistirError(
            f"discover: expected a tuple of arguments, got {type(example_args).__name__}: write discover(f, (x, y))"
        )
    domains = CallableDomains(callable, example_args)
    op = domains.operation()
    if (prepare := domains.framework.before_unchecked(domains.dtypes)) is None:
        return Discovery(domains).rule(op)
    return parse_rule(in_child(lambda: rule_text(Discovery(domains).rule(op)), prepare, domains.name))


@irdl_op_definition
class CallableOp(IRDLOperation):
    """A Python callable as an op. Lifecycle: made for discovery, never part of a program.

    Each parameter that takes integers is a property of its name: an array of them."""

    name = "python.call"
    arguments = var_operand_def()
    values = var_result_def()


@dataclass(frozen=True)
class _Operand:
    index: int


@dataclass(frozen=True)
class _Size:
    parameter: str
    position: int


class _Template:
    """Arguments with places for arrays and integers."""

    def __init__(self, framework: Framework):
        self.framework = framework
        self.arrays: list[Any] = []
        self.sizes: dict[str, list[int]] = {}
        self._places: list[Any] = []

    @staticmethod
    def of(callable: Callable[..., Any], arguments: Sequence[Any]) -> _Template:
        found = _Template(framework_of(leaves(arguments)))
        for name, argument in zip(_parameter_names(callable, len(arguments)), arguments, strict=True):
            found._places.append(found._place(name, argument))
        if not found.arrays:
            raise DistirError("discover: none of the example arguments is an array")
        return found

    def _place(self, name: str, value: Any) -> Any:
        if self.framework.is_array(value):
            self.arrays.append(value)
            return _Operand(len(self.arrays) - 1)
        if isinstance(value, int | np.integer) and not isinstance(value, bool):
            entries = self.sizes.setdefault(name, [])
            entries.append(int(value))
            return _Size(name, len(entries) - 1)
        return rebuilt(value, lambda item: self._place(name, item))

    def filled(self, arrays: Sequence[Any], sizes: dict[str, Sequence[int]]) -> list[Any]:
        """Arguments with these arrays and integers."""

        def fill(place: Any) -> Any:
            if isinstance(place, _Operand):
                return arrays[place.index]
            if isinstance(place, _Size):
                return sizes[place.parameter][place.position]
            return rebuilt(place, fill)

        return [fill(place) for place in self._places]


def _parameter_names(callable: Callable[..., Any], count: int) -> list[str]:
    """The name of the parameter that takes each positional argument; `argument0` and so on where it has none."""
    try:
        parameters = list(inspect.signature(callable).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for i in range(count):
        last = parameters[min(i, len(parameters) - 1)] if parameters else None
        positional = last is not None and last.kind in (last.POSITIONAL_ONLY, last.POSITIONAL_OR_KEYWORD)
        takes_all = last is not None and last.kind is last.VAR_POSITIONAL
        known = takes_all or (positional and i < len(parameters))
        names.append(last.name if last is not None and known else f"argument{i}")
    return names


def element_type(dtype: np.dtype[Any]) -> Attribute:
    """The element type of a dtype. Raises DistirError for one that arrays of a program cannot have."""
    element = ELEMENT_OF_NUMPY_NAME.get(dtype.name)
    if element is None or dtype.kind in "cOSU":
        raise DistirError(f"discover: arrays of {dtype} have no rules: expected floats, integers or booleans")
    return element.type


class CallableDomains:
    """Arrays and types of a `CallableOp`: by running the callable, and by its framework's inference of shapes."""

    states_numbers = False

    def __init__(self, callable: Callable[..., Any], example_args: Sequence[Any]):
        self.callable, self.template = callable, _Template.of(callable, example_args)
        self.framework = self.template.framework
        self.dtypes = [self.framework.described(array)[1] for array in self.template.arrays]
        self.name = str(getattr(callable, "__name__", type(callable).__name__))

    def checking(self, op: Operation) -> None:
        return None

    def is_forked(self, op: Operation) -> bool:
        """All of discovery is in a fork where its framework wants one."""
        return False

    def operation(self) -> CallableOp:
        """The op at the example arguments. Raises DistirError, with the callable's reason, if it fails there."""
        template, framework = self.template, self.framework
        types = [framework.described(array) for array in template.arrays]
        operands = [TensorType(element_type(dtype), shape) for shape, dtype in types]
        try:
            results = self._results(framework.infer(self.callable, types, self._filled(template.sizes)))
        except DistirError:
            raise
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise DistirError(f"discover: {self.name} fails on the example arguments: {reason}") from error
        return CallableOp.create(
            operands=Block(arg_types=operands).args,
            result_types=results,
            properties={
                "callable": StringAttr(getattr(self.callable, "__name__", "callable")),
                **{name: ArrayAttr([IntegerAttr(n, i64) for n in sizes]) for name, sizes in template.sizes.items()},
            },
        )

    def evaluate(self, op: Operation, operands: Sequence[Array | None]) -> list[Array | None]:
        arrays = [cast(Array, operand) for operand in operands]
        return [*self.framework.run(self.callable, arrays, self.dtypes, self._filled(self._sizes(op)))]

    def infer(self, op: Operation, operands: Sequence[Abstract]) -> list[TensorType[Any] | None]:
        shapes = [cast(TensorType[Any], operand).get_shape() for operand in operands]
        types = [*zip(shapes, self.dtypes, strict=True)]
        return [*self._results(self.framework.infer(self.callable, types, self._filled(self._sizes(op))))]

    def kept(self, op: Operation, operands: Sequence[Array | None]) -> dict[int, Array]:
        arrays = [cast(Array, operand) for operand in operands]
        return self.framework.kept(self.callable, arrays, self.dtypes, self._filled(self._sizes(op)))

    def _sizes(self, op: Operation) -> dict[str, Sequence[int]]:
        found: dict[str, Sequence[int]] = {}
        for name in self.template.sizes:
            entries = cast(ArrayAttr[IntegerAttr[Any]], op.properties[name])
            found[name] = [entry.value.data for entry in entries]
        return found

    def _filled(self, sizes: dict[str, Any]) -> Callable[[Sequence[Any]], list[Any]]:
        return lambda arrays: self.template.filled(arrays, sizes)

    @staticmethod
    def _results(types: Sequence[tuple[Sequence[int], np.dtype[Any]]]) -> list[TensorType[Any]]:
        return [TensorType(element_type(dtype), tuple(shape)) for shape, dtype in types]
