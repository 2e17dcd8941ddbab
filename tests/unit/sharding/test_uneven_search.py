"""Searches choose uneven shards where extents do not divide: what a plan is said to take is what its program takes, its
memory is that of the device with the largest shards, and no strategy of any shards is faster."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.context import Context

from distir.dialects.errors import DistirError
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import load_machine
from distir.interpreters.reference import run
from distir.interpreters.simulate import simulate
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.distribution.batch.batch_axis import parse_batch
from distir.passes.distribution.mesh import Mesh
from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass
from distir.passes.sharding import choice_network, knapsack_weights, memory_tables, relaxation, within_memory
from distir.passes.sharding.beam import Beam
from distir.passes.sharding.choice_network import ChoiceNetwork
from distir.passes.sharding.integer_program import Infeasible
from distir.passes.sharding.least_memory import least_memory
from distir.passes.sharding.makespan import most_waited_seconds
from distir.passes.sharding.memory import footprint
from distir.passes.sharding.prices import Prices
from distir.passes.sharding.problem import Problem, build
from distir.passes.sharding.result import Result
from distir.passes.sharding.search import best_plan
from distir.passes.sharding.settings import write
from distir.passes.sharding.within_memory import WithinMemory
from distir.passes.solver.sparse_elimination import Counted
from distir.passes.solver.sparse_tables import SparseTable
from distir.passes.solver.table_program import TableProgram
from tests.slow_machine import written
from tests.unit.random_models import Program, models
from tests.unit.rules.test_uneven_shards import QUIET, parse

PICOSECOND = 1e-12
TIE = 1e-9
"""Seconds: ten times what breaks ties."""
Check = Callable[[Program, tuple[int, ...], str, Counter[str]], None]
SizesStrategy = st.SearchStrategy[tuple[int, ...]]
MESHES: SizesStrategy = st.sampled_from([(2,), (3,), (4,), (2, 2), (3, 2)])


def problem_of(program: Program, sizes: tuple[int, ...], machine: str, uneven: bool = True) -> Problem:
    module = parse(program.text)
    ShardcombineAnnotatePass().apply(Context(), module)
    mesh = Mesh(tuple(zip("abc", sizes, strict=False)), uneven=uneven)
    return build(module, "main", Prices(mesh, load_machine(machine)), parse_batch("", entry_function(module)), {})


def is_uneven(result: Result) -> bool:
    return any(not option.price.is_uniform for option in result.plan.options.values())


def check(program: Program, sizes: tuple[int, ...], machine: str, seen: Counter[str]) -> None:
    problem = problem_of(program, sizes, machine)
    result = best_plan(problem)
    assert result.gap == 0
    even = best_plan(problem_of(program, sizes, machine, uneven=False))
    assert result.seconds <= even.seconds + TIE
    seen["faster"] += result.seconds < even.seconds - TIE
    seen["uneven"] += is_uneven(result)
    assert Beam(problem, 50).search().seconds > result.seconds - TIE
    if len(sizes) == 1 and len(problem.options) < 5:
        seen["exhaustive"] += 1
        assert abs(Beam(problem, None).search().seconds - result.seconds) < TIE
        assert abs(best_plan(problem, solver="highs").seconds - result.seconds) < TIE
    compare_with_its_program(program, problem, result, machine)


def check_within_memory(program: Program, sizes: tuple[int, ...], machine: str, seen: Counter[str]) -> None:
    problem = problem_of(program, sizes, machine)
    choices = ChoiceNetwork(problem)
    fastest = choices.fastest()
    assert fastest is not None
    peak, least = footprint(problem, choices.plan(fastest)).peak_bytes, least_memory(choices, [fastest])
    limit = (least.memory.peak_bytes + peak) // 2
    seen["limited"] += limit < peak
    if least.is_proven:
        with pytest.raises(DistirError, match=f"needs is {least.memory.peak_bytes} bytes"):
            best_plan(problem, least.memory.peak_bytes - 1)
    result = best_plan(problem, limit)
    seen["uneven"] += is_uneven(result)
    waited = most_waited_seconds(problem)
    seen["waiting"] += waited > 0
    assert result.gap * result.seconds < waited + PICOSECOND  # the sum of prices is proven
    assert result.memory.peak_bytes <= limit
    assert abs(best_plan(problem, limit, solver="highs").seconds - result.seconds) < TIE + waited
    compare_with_its_program(program, problem, result, machine)


def check_just_below_the_fastest(program: Program, sizes: tuple[int, ...], machine: str, seen: Counter[str]) -> None:
    """One byte less than the fastest plan needs."""
    problem = problem_of(program, sizes, machine)
    choices = ChoiceNetwork(problem)
    fastest = choices.fastest()
    assert fastest is not None
    limit = footprint(problem, choices.plan(fastest)).peak_bytes - 1
    search = WithinMemory(choices, limit)
    found = search.search(fastest)
    try:
        expected = best_plan(problem, limit, solver="highs")
    except Infeasible:
        assert found is None
        with pytest.raises(DistirError, match="no sharding fits"):
            best_plan(problem, limit)
        seen["refused"] += 1
        return
    assert not search.is_infeasible
    seen["found"] += found is not None
    seen["proven"] += search.is_proven
    assert search.lower * 1e-12 < expected.seconds + TIE
    result = best_plan(problem, limit)
    assert result.memory.peak_bytes <= limit
    assert expected.seconds * (1 - result.gap) - TIE < result.seconds
    if result.gap == 0:
        assert abs(expected.seconds - result.seconds) < TIE


def compare_with_its_program(program: Program, problem: Problem, result: Result, machine: str) -> None:
    """Time to the picosecond, memory to the byte, and what is computed."""
    inputs = program.draw_inputs()
    expected = run(problem.module, inputs, dtype=np.float64)
    write(problem, result)
    ApplyShardingPass().apply(Context(), problem.module)
    problem.module.verify()
    simulation = simulate(problem.module, machine)
    assert round(simulation.makespan_seconds / PICOSECOND) == round(result.seconds / PICOSECOND)
    assert max(simulation.peak_memory_bytes.values()) == result.memory.peak_bytes
    found = run(problem.module, inputs, dtype=np.float64)
    for name, value in expected.items():
        tolerance = 1e-10 * max(1.0, float(np.abs(value).max()))
        np.testing.assert_allclose(found[name], value, rtol=0, atol=tolerance, err_msg=name)


def run_programs(count: int, largest: int, machine: str, check: Check, meshes: SizesStrategy = MESHES) -> Counter[str]:
    seen: Counter[str] = Counter()

    @settings(max_examples=count, **QUIET)
    @given(models(largest, batch=7, extents=(5, 15)), meshes)
    def examples(program: Program, sizes: tuple[int, ...]) -> None:
        check(program, sizes, machine, seen)

    examples()
    return seen


def check_prices(program: Program, sizes: tuple[int, ...], machine: str, seen: Counter[str]) -> None:
    """Those of all devices: some stand for the others."""
    some = problem_of(program, sizes, machine)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Prices, "_places", lambda self, axis, states, is_by_place: range(self.mesh.sizes[axis]))
        every = problem_of(program, sizes, machine)
    for found, expected in zip(some.options.values(), every.options.values(), strict=True):
        assert [option.price for option in found] == [option.price for option in expected]
        seen["uneven"] += sum(not option.price.is_uniform for option in found)


def test_prices_of_uneven_shards_are_those_of_all_devices(tmp_path: Path):
    meshes = st.sampled_from([(3, 2), (5,), (2, 4), (3, 4), (2, 3, 2)])
    assert run_programs(3, 4, written(tmp_path), check_prices, meshes)["uneven"] > 50


def test_uneven_plans_of_random_programs(tmp_path: Path):
    seen = run_programs(8, 4, written(tmp_path), check)
    assert min(seen["uneven"], seen["faster"]) > 2, seen
    assert seen["exhaustive"], seen


@pytest.mark.long
def test_uneven_plans_of_many_random_programs(tmp_path: Path):
    run_programs(300, 8, written(tmp_path), check)


def test_uneven_plans_within_memory():
    """On a machine on which it would be faster to cut nothing."""
    seen = run_programs(6, 3, "dgx-2", check_within_memory, st.sampled_from([(2,), (3,)]))
    assert seen["limited"] > 1, seen
    assert seen["uneven"] > 1, seen


@pytest.mark.parametrize(
    ("widest", "count", "largest"),
    [
        (16, 8, 2),
        pytest.param(16, 40, 3, marks=pytest.mark.long),
        pytest.param(memory_tables.WIDE, 40, 3, marks=pytest.mark.long),
    ],
)
def test_one_byte_less_than_the_fastest_plan_needs(
    widest: int, count: int, largest: int, monkeypatch: pytest.MonkeyPatch
):
    """Also where most tables of memory are too large to write down, so that prices do not see what exceeds the limit."""
    monkeypatch.setattr(memory_tables, "WIDE", widest)
    seen = run_programs(count, largest, "dgx-2", check_just_below_the_fastest, st.sampled_from([(2,), (3,)]))
    assert seen["found"], seen


@pytest.mark.parametrize(
    ("check", "count", "largest", "machine"),
    [
        (check, 8, 3, None),
        (check_just_below_the_fastest, 5, 2, "dgx-2"),
        pytest.param(check, 100, 5, None, marks=pytest.mark.long),
        pytest.param(check_just_below_the_fastest, 60, 3, "dgx-2", marks=pytest.mark.long),
        pytest.param(check_within_memory, 40, 3, "dgx-2", marks=pytest.mark.long),
    ],
)
def test_values_whose_conversions_are_told_state_by_state(
    check: Check, count: int, largest: int, machine: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As those with many uses are; here all whose tables are not small."""
    for module in (choice_network, relaxation, knapsack_weights):
        monkeypatch.setattr(module, "MOST_WRITTEN", 8)
    monkeypatch.setattr(memory_tables, "WIDE", 8)
    monkeypatch.setattr(choice_network, "MOST_USES", 0)
    run_programs(count, largest, machine or written(tmp_path), check, st.sampled_from([(2,), (3,)]))


@pytest.mark.parametrize(("count", "largest"), [(8, 2), pytest.param(60, 2, marks=pytest.mark.long)])
def test_memory_of_wide_values_is_counted_for_the_combinations_that_are_left(
    count: int, largest: int, monkeypatch: pytest.MonkeyPatch
):
    """Where no table is written down that need not be, and integer programs end nothing."""
    for module in (choice_network, relaxation, knapsack_weights):
        monkeypatch.setattr(module, "MOST_WRITTEN", 8)
    monkeypatch.setattr(memory_tables, "WIDE", 8)
    for name in ("SMALL_TABLES", "LARGEST_PROGRAM", "MIDDLE_PROGRAM", "SMALL_PROGRAM"):
        monkeypatch.setattr(within_memory, name, 8)
    amounts, attached = Counted.amounts, Counter[bool]()

    def counting(counted: Counted, table: SparseTable, left: Mapping[int, np.ndarray]) -> np.ndarray | None:
        found = amounts(counted, table, left)
        attached[found is not None] += 1
        return found

    monkeypatch.setattr(Counted, "amounts", counting)
    count_in_program, in_program = TableProgram.count, Counter[bool]()

    def counting_in_program(*arguments: Any) -> bool:
        in_program[is_new := count_in_program(*arguments)] += 1
        return is_new

    monkeypatch.setattr(TableProgram, "count", counting_in_program)
    seen = run_programs(count, largest, "dgx-2", check_just_below_the_fastest, st.sampled_from([(2,), (3,)]))
    assert seen["proven"], seen
    assert attached[True], attached
    assert in_program[True], in_program


@pytest.mark.long
def test_many_uneven_plans_within_memory():
    run_programs(100, 5, "dgx-2", check_within_memory)


def test_a_smaller_shard_may_be_the_slower_one():
    """4093 columns over 4 devices of tensor cores: the 1024 of one are aligned, the 1023 of the others are not (16 bytes), so they
    are slower in the product, and the one is in what follows. The time is that of the program, and no strategy beats the bound."""
    text = """func.func @main(%x: tensor<4096x4096xf16> {dist.name = "x", dist.role = "input"},
                              %w: tensor<4096x4093xf16> {dist.name = "w", dist.role = "parameter"}) -> tensor<4096x4093xf16> {
        %h = "onnx.MatMul"(%x, %w)PIN : (tensor<4096x4096xf16>, tensor<4096x4093xf16>) -> tensor<4096x4093xf16>
        %y = "onnx.Exp"(%h) : (tensor<4096x4093xf16>) -> tensor<4096x4093xf16>
        func.return %y : tensor<4096x4093xf16> }"""
    pins = ("S1", "S2", "S3", "_")
    pinned = [text.replace("PIN", f' {{dist.strategy = #dist.strategy<@mesh, {{"a": {c}}}>}}') for c in pins]
    results: list[Result] = []
    for one in (text.replace("PIN", ""), *pinned):
        program = Program(one, {})
        problem = problem_of(program, (4,), "dgx-2")
        results.append(best_plan(problem))
        write(problem, results[-1])
        ApplyShardingPass().apply(Context(), problem.module)
        simulation = simulate(problem.module, "dgx-2")
        assert round(simulation.makespan_seconds / PICOSECOND) == round(results[-1].seconds / PICOSECOND)
    best, *others = results
    assert 0 < best.gap < 0.01
    assert best.bound_seconds <= min(other.seconds for other in others)
    by_columns = others[2]
    sums = sum(option.picoseconds for option in by_columns.plan.options.values())
    assert by_columns.seconds < sums * PICOSECOND
