"""The first microbatch adds to no sums: zeros go, with what moves them, and nothing else."""

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from distir.dialects.dist import Dist, ZerosOp
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import load_machine
from distir.interpreters.module_check import check_module
from distir.interpreters.simulate import simulate
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.staging.zeros import remove_zeros
from tests.small_models import mlp


def without_zeros(body: str, starting: int | None = None) -> list[str]:
    """The names of the operations of the entry and of the functions that it calls, after zeros were removed: the first so many of the entry, by
    default all."""
    context = Context()
    for dialect in (Builtin, Dist, Func):
        context.load_dialect(dialect)
    text = f"""builtin.module attributes {{dist.devices = 2 : i64}} {{
      func.func @main(%a: tensor<4xf32, #dist.on<0>>, %b: tensor<4xf32, #dist.on<1>>) -> (tensor<4xf32, #dist.on<0>>) {{ {body} }}
      func.func private @add(%sum: tensor<4xf32>, %x: tensor<4xf32>) -> tensor<4xf32> {{
        %y = dist.accumulate sum %sum, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
        func.return %y : tensor<4xf32>
      }}
      func.func private @most(%sum: tensor<4xf32>, %x: tensor<4xf32>) -> tensor<4xf32> {{
        %y = dist.accumulate max %sum, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
        func.return %y : tensor<4xf32>
      }}
    }}"""
    module = Parser(context, text).parse_module()
    check_module(module)
    entry = entry_function(module)
    zeros = [op.output for op in entry.body.block.ops if isinstance(op, ZerosOp)]
    remove_zeros(module, entry, zeros[:starting])
    module.verify()
    check_module(module)
    return [op.name for op in module.walk() if op.name.startswith("dist.")]


ON = "tensor<4xf32, #dist.on<0>>"
RETURN = f"func.return %y : {ON}"


def test_a_function_makes_zeros_that_it_still_needs():
    """The largest of zeros and something is not that."""
    call = f"%z = dist.zeros : {ON} %y = dist.call @{{}}(%z, %a) on [0] : ({ON}, {ON}) -> {ON}"
    assert without_zeros(call.format("add") + RETURN) == ["dist.call"]
    assert without_zeros(call.format("most") + RETURN) == ["dist.call", "dist.zeros", "dist.accumulate"]


def test_zeros_that_two_need_stay():
    calls = [f"%{y} = dist.call @add(%z, %{x}) on [0] : ({ON}, {ON}) -> {ON}" for y, x in (("h", "a"), ("y", "h"))]
    found = without_zeros(f"%z = dist.zeros : {ON} {' '.join(calls)}" + RETURN)
    assert found == ["dist.zeros", "dist.call", "dist.call", "dist.accumulate"]


def test_what_moves_zeros_goes_with_them():
    """A sum of partial sums that are all zeros, and a message of zeros; one that has something else in it stays."""
    other = ON.replace("0>", "1>")
    moved = f"""%z0 = dist.zeros : {ON} %z1 = dist.zeros : {other}
      %r0, %r1 = dist.allreduce sum %z0, %{{}} : ({ON}, {other}) -> ({ON}, {other})
      %m = dist.send %r1 to 0 : {other} -> {ON}
      %s = dist.accumulate sum %r0, %m, %a : ({ON}, {ON}, {ON}) -> {ON}
      %y = dist.accumulate sum %s, %r0 : ({ON}, {ON}) -> {ON} """
    assert without_zeros(moved.format("z1") + RETURN) == []
    assert without_zeros(moved.format("b") + RETURN) == [
        "dist.zeros",
        "dist.allreduce",
        "dist.send",
        "dist.accumulate",
        "dist.accumulate",
    ]


def test_zeros_in_place_of_addends_stay():
    """No sum over microbatches starts from them, and others that have the addends gather and add at the same time."""
    other, long = ON.replace("0>", "1>"), ON.replace("4x", "8x")
    gathered = f"""%z0 = dist.zeros : {ON} %z1 = dist.zeros : {other}
      %r0, %r1 = dist.allgather %z0, %z1 dim 0 : ({ON}, {other}) -> ({long}, {long.replace("0>", "1>")})
      %s = dist.slice %r0 [0:4] : {long} -> {ON}
      %y = dist.accumulate sum %s, %a : ({ON}, {ON}) -> {ON} """
    stated = ["dist.zeros", "dist.zeros"]
    assert without_zeros(gathered + RETURN, 0) == [*stated, "dist.allgather", "dist.slice", "dist.accumulate"]
    assert without_zeros(gathered + RETURN, 1) == [*stated, "dist.allgather", "dist.slice", "dist.accumulate"]
    assert without_zeros(gathered + RETURN, 2) == []


@pytest.mark.parametrize(("stages", "count"), [(1, 2), (2, 4), (2, 1)])
def test_each_gradient_is_added_to_that_of_the_microbatch_before(stages: int, count: int):
    module: ModuleOp = mlp(widths=(12, 24, 24, 12)).module.clone()
    DtpParallelizePass(pp=stages, microbatches=count).apply(Context(), module)
    assert simulate(module, load_machine("dgx-a100")).counts.get("dist.accumulate", 0) == 3 * (count - 1)
