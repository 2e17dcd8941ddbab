"""Projection to ranks: for all programs, the rank programs together compute what the program computes."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from distir.dialects.dist import Dist
from distir.dialects.dist.attributes import placement
from distir.dialects.grad import Grad
from distir.dialects.onnx import Onnx
from distir.dialects.rank import Rank
from distir.interpreters.module_check import check_module
from distir.interpreters.placement import place
from distir.interpreters.reference import run, run_ranks
from distir.passes.project_to_rank import project
from tests.unit.random_programs import Program, inputs_for, programs


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Dist, Grad, Rank, Onnx):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


def assert_round_trip(module: ModuleOp) -> None:
    module.verify()
    check_module(module)
    assert parse(str(module)).is_structurally_equivalent(module)


def assert_same(expected: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> None:
    assert expected.keys() == got.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)
        assert got[name].dtype == value.dtype


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_rank_programs_compute_what_the_program_computes(program: Program) -> None:
    module = program.module
    assert_round_trip(module)
    inputs = inputs_for(module)
    ranks = [project(module, r) for r in range(program.devices)]
    for rank_program in ranks:
        assert_round_trip(rank_program)
        assert "#dist.on" not in str(rank_program)
    assert_same(run(module, inputs), run_ranks(ranks, inputs))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_values_are_where_their_types_say(program: Program) -> None:
    for value, on in place(program.module).items():
        assert on == placement(value.type)
