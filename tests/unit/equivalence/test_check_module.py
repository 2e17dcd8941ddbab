"""The module check beyond single diagnostics (those are in filecheck/passes/check-module/)."""

import sys

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, i64
from xdsl.dialects.cf import BranchOp
from xdsl.dialects.test import TestOp
from xdsl.ir import Block, Region
from xdsl.utils.exceptions import VerifyException

from distir.interpreters.module_check import check_module
from tests.unit.random_programs import Program, programs


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.data())
def test_any_op_moved_before_what_it_uses_is_found(program: Program, data: st.DataObject) -> None:
    uses = [
        (op, operand.owner)
        for op in program.module.walk()
        for operand in op.operands
        if not isinstance(operand.owner, Block) and not isinstance(op, func.ReturnOp)
    ]
    assume(uses)
    check_module(program.module)
    use, definition = data.draw(st.sampled_from(uses))
    use.detach()
    definition.parent.insert_op_before(use, definition)
    with pytest.raises(VerifyException, match="is used before its definition"):
        check_module(program.module)


def test_blocks_of_a_region_see_each_other() -> None:
    first, second = Block(), Block()
    defining = TestOp(result_types=[i64])
    first.add_ops([defining, BranchOp(second)])
    second.add_ops([TestOp(operands=[defining.results[0]]), func.ReturnOp()])
    check_module(ModuleOp([func.FuncOp("f", ([], []), Region([first, second]))]))


def test_deep_call_chains_do_not_recurse_in_python() -> None:
    depth = 2 * sys.getrecursionlimit()
    functions = [
        func.FuncOp(f"f{i}", ([], []), Region(Block([func.CallOp(f"f{i + 1}", [], []), func.ReturnOp()])))
        for i in range(depth)
    ]
    last = func.FuncOp(f"f{depth}", ([], []), Region(Block([func.ReturnOp()])))
    check_module(ModuleOp([*functions, last]))
