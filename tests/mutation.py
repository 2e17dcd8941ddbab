"""One fault in a program: a module goes in with an operation of it and what is to be changed; out comes a copy with that change, if it
still verifies as IR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import DiagnosticException, VerifyException

from distir.interpreters.module_check import check_module

Edit = Callable[["Copy"], None]


@dataclass
class Copy:
    """A copy of a module that is about to be changed."""

    module: ModuleOp
    values: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Of each value of the original."""
    ops: dict[Operation, Operation] = field(default_factory=dict[Operation, Operation])

    @classmethod
    def of(cls, module: ModuleOp) -> Copy:
        copy = cls(module)
        copy.module = module.clone(copy.values)
        copy.ops = dict(zip(module.walk(), copy.module.walk(), strict=True))
        return copy


@dataclass(frozen=True)
class Mutation:
    """One change of one operation."""

    kind: str
    op: Operation
    says: str
    edit: Edit

    def applied(self, module: ModuleOp) -> ModuleOp | None:
        """The mutant; None if it does not verify."""
        copy = Copy.of(module)
        function = self.op if isinstance(self.op, FuncOp) else self.op.parent_op()
        assert isinstance(function, FuncOp)
        try:
            self.edit(copy)
            copy.ops[function].verify()  # the others are as they were
            check_module(copy.module)
        except (VerifyException, DiagnosticException, ValueError):
            return None
        return copy.module

    def __str__(self) -> str:
        number = 0 if (block := self.op.parent) is None else list(block.ops).index(self.op)
        function = self.op.parent_op()
        where = f" in @{function.sym_name.data}" if isinstance(function, FuncOp) else ""
        return f"{self.kind}: {self.op.name} {number}{where}: {self.says}"
