"""The walk that domains share. In go a module, a domain's implementations and arguments; out come results in that
domain. It is xDSL's interpreter with symbols in a dictionary, values freed at their last use, and one default
implementation for operator ops. A domain is a set of `InterpreterFunctions` on it:

    walk = Walk(module, default=run_operator)
    walk.register_implementations(DistFunctions())          # @impl(AllReduceOp) ...
    results = walk.call("main", arguments)

For each op of the function, in order: its implementation (`@impl`), else the default, on the values that it reads: its
operands, then what its regions use from outside. An implementation may return one
`Suspended` as its only value: `Enter` makes the walk run a function in its place, `EnterEach` several times; any other comes out of `steps`, which
goes on with the values that it is sent. That is how several rank programs, each a walk, meet.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues
from xdsl.ir import Block, Operation, SSAValue, Use
from xdsl.utils.exceptions import DiagnosticException

from distir.dialects.errors import DistirError
from distir.dialects.plugins import fault_of_plugin, implementations, told
from distir.interpreters.model_names import Renamings, inside, model_name

Program = Generator["Suspended", PythonValues | None, PythonValues]
"""A function on its way: yields what it waits for, is sent the values, returns its results."""

Default = Callable[[Operation, PythonValues], PythonValues]


def values_read(op: Operation) -> Sequence[SSAValue]:
    """What the op needs to run: its operands, then the values from outside that its regions use, in order of use."""
    if not op.regions:
        return op.operands
    inner = list(op.walk())
    own = {value for each in inner for value in each.results}
    own |= {argument for each in inner for region in each.regions for block in region.blocks for argument in block.args}
    used = (value for each in inner[1:] for value in each.operands)
    return (*op.operands, *dict.fromkeys(value for value in used if value not in own))


def uses_of(value: SSAValue) -> list[Use]:
    """Where a value is read by operations of its own block: which operation, and which of its `values_read`."""
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent
    found: list[Use] = []
    for use in value.uses:
        op = use.operation
        if op.parent is block:
            found.append(use)
            continue
        while (above := op.parent_op()) is not None and op.parent is not block:
            op = above
        inner = Use(op, list(values_read(op)).index(value))
        if inner not in found:
            found.append(inner)
    return found


class Suspended:
    """What an implementation returns as its only value when its values come from elsewhere."""


@dataclass
class Enter(Suspended):
    """Run this function in place of the op: what the implementation of a call returns."""

    function: str
    arguments: PythonValues


@dataclass
class EnterEach(Suspended):
    """Run this function so many times, each time on the same arguments, what it returned the last time (at first, what is carried
    at the start) and, for each of `counters` arguments, how many times it ran before; the values of the op are what it returns the last time."""

    function: str
    arguments: PythonValues
    carried: PythonValues
    times: int
    counters: int


@dataclass
class Walk(Interpreter):
    """Runs functions of one module in one domain."""

    default: Default | None = None
    _functions: dict[str, func.FuncOp] = field(default_factory=dict[str, func.FuncOp])
    _around: Renamings = ()
    """What the calls around the operation that is run say of names."""
    _last_uses: dict[Block, list[list[SSAValue]]] = field(default_factory=dict[Block, list[list[SSAValue]]])

    def __post_init__(self) -> None:
        self._find_functions()

    def _find_functions(self) -> None:
        self._functions = {f.sym_name.data: f for f in self.module.ops if isinstance(f, func.FuncOp)}

    def register(self, functions: Sequence[InterpreterFunctions]) -> Walk:
        """Adds implementations; later ones override earlier ones."""
        for each in functions:
            self.register_implementations(each, override=True)
        return self

    def function(self, name: str) -> func.FuncOp:
        """The function of this name, which may have come into the module since; DistirError names those that there are."""
        if name not in self._functions:
            self._find_functions()
        if (function := self._functions.get(name)) is not None:
            return function
        names = ", ".join(f"@{f}" for f in list(self._functions)[:8]) or "none"
        raise DistirError(f"no function @{name} in the module; its functions: {names}")

    def call(self, name: str, arguments: PythonValues) -> PythonValues:
        """The results of the function on these values."""
        steps = self.steps(name, arguments)
        try:
            next(steps)
        except StopIteration as finished:
            return finished.value
        raise DistirError(f"@{name} is the program of one rank of several: run all of them together")

    def steps(self, name: str, arguments: PythonValues, around: Renamings = ()) -> Program:
        """The same, one suspension at a time, inside calls that say this of names."""
        block = self.function(name).body.block
        values: dict[SSAValue, Any] = dict(zip(block.args, arguments, strict=True))
        del arguments
        for op, dying in zip(block.ops, self._dying(block), strict=True):
            operands = tuple([values[v] for v in values_read(op)])
            if isinstance(op, func.ReturnOp):
                return operands
            for value in dying:
                values.pop(value, None)
            self._around = around
            results = self.run(op, operands)
            del operands
            if len(results) == 1 and isinstance(suspended := results[0], Suspended):
                if isinstance(suspended, Enter):
                    inner = self.steps(suspended.function, suspended.arguments, inside(op, around))
                    del suspended, results
                    results = yield from inner
                elif isinstance(suspended, EnterEach):
                    results = suspended.carried
                    for time in range(suspended.times):
                        given = *suspended.arguments, *results, *[time] * suspended.counters
                        results = yield from self.steps(suspended.function, given, inside(op, around))
                    del suspended
                else:
                    results = self.received(op, (yield suspended) or ())
            for value, result in zip(op.results, results, strict=True):
                if value.first_use is not None:
                    values[value] = result
        raise DistirError(f"@{name} does not return")

    def received(self, op: Operation, results: PythonValues) -> PythonValues:
        """The values of a suspended op, as they came from elsewhere."""
        return results

    def run(self, op: Operation, operands: PythonValues) -> PythonValues:
        """The values of one op in this domain."""
        known = self._impls._impl_dict.get(type(op))  # pyright: ignore[reportPrivateUsage]
        try:
            if known is not None:
                functions, implementation = known
                return implementation(functions, self, op, operands).values
            if self.default is not None:
                return self.default(op, operands)
        except (DistirError, DiagnosticException) as error:
            if type(error) is DistirError and (name := model_name(op, self._around)) and name not in str(error):
                raise DistirError(f"{error} (in {name})") from error
            raise
        except Exception as error:
            where = f" (in {name})" if (name := model_name(op, self._around)) else ""
            raise DistirError(f"{op.name}: {fault_of_plugin(error) or told(error)}{where}") from error
        raise DistirError(f"{op.name} has no meaning here: register InterpreterFunctions with @impl for it")

    def has(self, op: Operation) -> bool:
        """Whether an `@impl` says what the operation is in this domain."""
        return type(op) in self._impls._impl_dict  # pyright: ignore[reportPrivateUsage]

    def _dying(self, block: Block) -> list[list[SSAValue]]:
        """Per op of the block, the values whose last use it is; uses in nested regions count for the outer op."""
        if (known := self._last_uses.get(block)) is not None:
            return known
        last: dict[SSAValue, int] = {}
        for i, op in enumerate(block.ops):
            for inner in op.walk() if op.regions else (op,):
                for value in inner.operands:
                    last[value] = i
        dying: list[list[SSAValue]] = [[] for _ in block.ops]
        for value, i in last.items():
            dying[i].append(value)
        self._last_uses[block] = dying
        return dying


@cache
def single_operations(domain: str) -> Walk:
    """A walk that runs one operation by what plug-ins registered for a domain."""
    return Walk(ModuleOp([])).register(implementations(domain))
