"""Programs over groups whose devices do the same: what is written once computes, takes and projects to what every device has of its own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    UnrealizedConversionCastOp,
    f32,
    i64,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from distir.dialects import dist
from distir.dialects.dist.attributes import on_device
from distir.dialects.dist.groups import BY_RANK, ByRankAttr
from distir.dialects.onnx import OPERATORS
from distir.dialects.sharding import MeshOp
from distir.interpreters.cost_models.analytic import AnalyticCostModel
from distir.interpreters.entry import entry_function
from distir.interpreters.lines import by_lines
from distir.interpreters.machines import load_machine
from distir.interpreters.module_check import check_module
from distir.interpreters.ranks import explicit, group_of
from distir.interpreters.reference import Reference, run
from distir.interpreters.simulate import SummaryMemo
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.microbatch import MicrobatchPass
from distir.passes.pipeline_schedule import PipelineSchedulePass
from distir.passes.pipeline_stages import PipelineStagesPass
from distir.passes.project_to_rank import project
from distir.passes.structure import shape_of
from tests.small_models import gpt2, mlp
from tests.unit import random_modules
from tests.unit.simulation.test_summaries import parse, same

Draw = Any
ROWS = 12
SHARED = SummaryMemo()


@dataclass
class Body:
    """A function over groups while it is drawn; all values are matrices of so many columns."""

    draw: Draw
    sizes: Mapping[str, int]
    stages: int
    functions: list[FuncOp]
    block: Block = field(default_factory=Block)
    values: list[SSAValue] = field(default_factory=list)

    def type(self, stage: int, rows: int = ROWS, stream: str = "") -> TensorType[Any]:
        count = prod(self.sizes.values())
        return TensorType(f32, [rows, 6], on_device(stage * count, stream, count))

    def add(self, op: Operation) -> None:
        self.block.add_op(op)
        self.values += op.results

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def stage_of(self, value: SSAValue) -> int:
        return value.type.encoding.device // prod(self.sizes.values())  # pyright: ignore

    def step(self) -> None:
        value, kind = (
            self.pick(self.values),
            self.pick(["relu", "add", "over", "over", "slice", "first", "send", "call", "move", "pack"]),
        )
        on, stage = value.type.encoding, self.stage_of(value)
        axis, rows = self.pick(self.sizes), value.type.get_shape()[0]
        size = self.sizes[axis]
        if kind == "relu":
            self.add(OPERATORS["Relu"].create(operands=[value], result_types=[value.type]))
        elif kind == "add":
            other = self.pick([v for v in self.values if v.type == value.type])
            self.add(dist.AccumulateOp([value, other]))
        elif kind == "over":
            self.over(value, axis, size, rows)
        elif kind == "slice" and rows % size == 0:
            entry = [{"starts": [i * rows // size, 0], "stops": [(i + 1) * rows // size, 6]} for i in range(size)]
            op = dist.SliceOp(value, [(0, rows // size), (0, 6)])
            array = type(op.starts).from_list
            op.attributes[BY_RANK] = ByRankAttr([axis], [{k: array(i64, v) for k, v in e.items()} for e in entry])
            self.add(op)
        elif kind == "first":
            self.add(dist.FirstOnlyOp(value, axis))
        elif kind == "send" and self.stages > 1:
            self.add(dist.SendOp(value, self.type((stage + 1) % self.stages, rows, on.stream)))
        elif kind == "call" and self.functions and rows == ROWS and not on.stream:
            callee, count = self.pick(self.functions), prod(self.sizes.values())
            devices = range(stage * count, (stage + 1) * count)
            given = [value] * len(callee.function_type.inputs)
            name = callee.sym_name.data
            results = [TensorType(f32, t.get_shape(), on_device(stage * count, t.encoding.stream, count)) for t in callee.function_type.outputs.data]  # fmt: skip  # pyright: ignore
            self.add(dist.CallOp(name, given, devices, results))
        elif kind == "move":
            self.add(dist.MoveOp(value, "" if on.stream else "comm"))
        elif kind == "pack":
            others = [v for v in self.values if v.type.encoding == on]  # pyright: ignore
            packed = dist.PackOp([value, self.pick(others)])
            self.block.add_op(packed)
            self.add(dist.UnpackOp(packed.output))

    def over(self, value: SSAValue, axis: str, size: int, rows: int) -> None:
        kind, over = self.pick(["allreduce", "allgather", "reducescatter", "alltoall"]), {"over": StringAttr(axis)}
        if kind == "allreduce":
            op: Operation = dist.AllReduceOp([value])
        elif kind == "allgather" and rows * size <= 4 * ROWS:
            op = dist.AllGatherOp([value], 0, [TensorType(f32, [rows * size, 6], value.type.encoding)])  # pyright: ignore
        elif kind == "reducescatter" and rows % size == 0:
            op = dist.ReduceScatterOp([value], 0, [TensorType(f32, [rows // size, 6], value.type.encoding)])  # pyright: ignore
        elif kind == "alltoall" and rows % size == 0:
            op = dist.AllToAllOp([value], 0, 0, [value.type])
        else:
            return
        op.properties.update(over)
        self.add(op)

    def function(self, name: str, arguments: int, steps: int) -> FuncOp:
        stages = [self.draw(st.integers(0, self.stages - 1)) for _ in range(arguments)]
        self.block = Block(arg_types=[self.type(stage) for stage in stages])
        self.values = list(self.block.args)
        for _ in range(steps):
            self.step()
        returned = self.draw(st.lists(st.sampled_from(self.values), min_size=1, max_size=3))
        self.block.add_op(ReturnOp(*returned))
        types = [a.type for a in self.block.args], [v.type for v in returned]
        return FuncOp(name, types, Region(self.block), visibility="public" if name == "main" else "private")


@st.composite
def programs(draw: Draw) -> ModuleOp:
    sizes = {axis: draw(st.sampled_from([1, 2, 2, 3])) for axis in ["a", "b"][: draw(st.integers(1, 2))]}
    if prod(sizes.values()) == 1:
        sizes["a"] = 2
    functions: list[FuncOp] = []
    for i in range(draw(st.integers(0, 2))):
        functions.append(Body(draw, sizes, 1, list(functions)).function(f"main_line_{i}", 1, draw(st.integers(1, 5))))
    stages = draw(st.integers(1, min(3, 16 // prod(sizes.values()))))
    main = Body(draw, sizes, stages, functions).function("main", draw(st.integers(1, 3)), draw(st.integers(1, 10)))
    names = [DictionaryAttr({"dist.name": StringAttr(f"x{i}")}) for i in range(len(main.function_type.inputs))]
    main.arg_attrs = ArrayAttr(names)
    module = ModuleOp([MeshOp("mesh", sizes), main, *functions])
    module.attributes["dist.devices"] = IntegerAttr(stages * prod(sizes.values()), i64)
    return module


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(programs())
def test_one_device_of_each_class_is_simulated_and_all_figures_are_those_of_every_device(module: ModuleOp):
    module.verify()
    check_module(module)
    text = str(module)
    assert str(parse(text)) == text
    written = explicit(module)
    written.verify()
    check_module(written)
    assert group_of(written) is None
    same(module, memo=SHARED)
    same(module, AnalyticCostModel, memo=SHARED, machine=load_machine("dgx-a100"))
    same(module, AnalyticCostModel, machine=odd_machine())


@cache
def odd_machine() -> Any:
    """Units of three devices: groups lie differently."""
    machine = load_machine("dgx-a100")
    return random_modules.replace(
        machine, levels=(random_modules.replace(machine.levels[0], devices=3), *machine.levels[1:])
    )


def printed(module: ModuleOp) -> str:
    return re.sub(r"%\w+", "%", str(module))


@pytest.mark.parametrize(
    ("make", "stages", "count", "mesh"),
    [
        (mlp, 2, 1, "dp=2,tp=2"),
        (mlp, 1, 4, "dp=2"),
        pytest.param(gpt2, 1, 2, "dp=2,tp=3", marks=pytest.mark.long),
    ],
)
def test_a_pipeline_over_groups_is_that_of_every_device(make: Any, stages: int, count: int, mesh: str):
    """Applied, scheduled, simulated, projected and executed."""
    model = make()
    module = model.module.clone()
    for each in (PipelineStagesPass(stages), MicrobatchPass(count), IlpShardPass(mesh=mesh, restrict="dp=batch")):
        each.apply(Context(), module)
    one, every = module.clone(), module
    ApplyShardingPass(grouped=True).apply(Context(), one)
    ApplyShardingPass(grouped=False).apply(Context(), every)
    assert group_of(one) is not None
    assert group_of(every) is None
    for each in (one, every):
        PipelineSchedulePass().apply(Context(), each)
        each.verify()
        check_module(each)
    written = explicit(parse_any(str(one)))
    for rank in range(every.attributes["dist.devices"].value.data):  # pyright: ignore
        assert printed(project(written, rank)) == printed(project(every, rank))
    same(one, AnalyticCostModel, machine=load_machine("dgx-a100"))
    expected, found = model.sequential(np.float64), run(one, model.inputs, dtype=np.float64)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12)


def parse_any(text: str) -> ModuleOp:
    return parse(text)


def computed(module: ModuleOp, arguments: list[Any]) -> Any:
    """What each device has of each result."""
    with np.errstate(all="ignore"):
        return Reference.of(module, np.dtype(np.float64)).call("main", tuple(arguments))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(programs(), st.integers(0, 99))
def test_functions_of_lines_compute_what_every_device_does(module: ModuleOp, seed: int):
    written, lines = explicit(module), by_lines(module)
    lines.verify()
    draw, arguments = np.random.default_rng(seed), list[Any]()
    for argument in entry_function(written).body.block.args:
        arguments.append(draw.standard_normal(shape_of(argument)))
    for found, expected in zip(computed(lines, arguments), computed(written, arguments), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_replicas_until_their_gradients_are_added_up_are_one_function():
    model = mlp()
    module = model.module.clone()
    DtpParallelizePass(dp=4, tp=2, pp=2, microbatches=2, sharding="ilp", divide=True, grouped=True).apply(
        Context(), module
    )
    lines = by_lines(module)
    lines.verify()
    calls = [op for op in entry_function(lines).walk() if isinstance(op, dist.CallOp)]
    replicas = [call for call in calls if call.callee_name == calls[0].callee_name]
    assert [call.devices for call in replicas] == [(2 * i, 2 * i + 1, 8 + 2 * i, 9 + 2 * i) for i in range(4)]
    done = [op for op in lines.walk() if not isinstance(op, UnrealizedConversionCastOp)]
    assert len(done) < 0.5 * sum(1 for _ in explicit(module).walk())
    expected, found = model.sequential(np.float64), run(lines, model.inputs, dtype=np.float64)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12)
