"""How fast exact simulation is: operations per CPU second of the op-by-op simulation and of function summaries.

    python benchmarks/simulate.py

Programs are inference pipelines of transformer-like layers on 16 devices: data x tensor x pipeline parallel, with
microbatches. Each layer and stage is outlined once. "first" summarises from nothing, reading the IR included; "again"
has a memo that knows the program's functions, as in a search over configurations. Where the op-by-op simulation would
take minutes, its time is estimated from its rate in this run. Both results are compared wherever both ran.
"""

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, TensorType, f16, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from distir.dialects.dist import AllReduceOp, CallOp, SendOp
from distir.dialects.dist.attributes import on_device, placed, relocated
from distir.dialects.onnx import OPERATORS
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import SummaryMemo, simulate, summarize

WIDTH, ROWS = 512, 64
CHAIN = 24
"""Elementwise operations in each layer: with the others, 32 operations per layer and rank, about what GPT-2 has."""
MOST = 600_000
"""Operations that the op-by-op simulation is given."""


def tensor(device: int, *shape: int) -> Attribute:
    return placed(TensorType(f16, shape), on_device(device))


class Function:
    """A function while it is built."""

    def __init__(self, arguments: Sequence[Attribute]):
        self.block = Block(arg_types=arguments)

    def add(self, op: Operation) -> Sequence[SSAValue]:
        self.block.add_op(op)
        return op.results

    def each(self, name: str, *operands: Sequence[SSAValue]) -> list[SSAValue]:
        """An operator on every rank; the result has the type of operand 0."""
        columns = zip(*operands, strict=True)
        return [self.add(OPERATORS[name].create(operands=row, result_types=[row[0].type]))[0] for row in columns]

    def matmul(self, xs: Sequence[SSAValue], ws: Sequence[SSAValue], columns: int) -> list[SSAValue]:
        matmul = OPERATORS["MatMul"]
        types = [tensor(rank, ROWS, columns) for rank in range(len(xs))]
        return [
            self.add(matmul.create(operands=[x, w], result_types=[t]))[0] for x, w, t in zip(xs, ws, types, strict=True)
        ]

    def finish(self, name: str, results: Sequence[SSAValue]) -> FuncOp:
        self.block.add_op(ReturnOp(*results))
        return FuncOp(name, (self.block.arg_types, [v.type for v in results]), Region(self.block))


def layer(ranks: int) -> FuncOp:
    """Megatron's: columns of one matmul and rows of the next on each rank, then an allreduce; twice."""
    rank_types: list[Callable[[int], Attribute]] = [
        lambda rank: tensor(rank, ROWS, WIDTH),
        *[lambda rank: tensor(rank, WIDTH, WIDTH // ranks), lambda rank: tensor(rank, WIDTH // ranks, WIDTH)] * 2,
    ]
    function = Function([type_(rank) for type_ in rank_types for rank in range(ranks)])
    x, *weights = [list(function.block.args[i * ranks : (i + 1) * ranks]) for i in range(5)]
    for first, second in (weights[:2], weights[2:]):
        h = function.matmul(x, first, WIDTH // ranks)
        for _ in range(CHAIN // 2):
            h = function.each("Relu", h)
        y = function.matmul(h, second, WIDTH)
        if ranks > 1:
            y = list(function.add(AllReduceOp(y)))
        x = function.each("Add", x, y)
    return function.finish("layer", x)


def pipeline(replicas: int, ranks: int, stages: int, microbatches: int, layers: int) -> ModuleOp:
    """A forward pass, in the order of a pipeline: at step s, stage p runs microbatch s - p."""
    body = layer(ranks)
    each = layers // stages
    weights = body.function_type.inputs.data[ranks:]
    stage = Function([*body.function_type.inputs.data[:ranks], *weights * each])
    x: Sequence[SSAValue] = stage.block.args[:ranks]
    for i in range(each):
        given = stage.block.args[ranks + i * len(weights) : ranks + (i + 1) * len(weights)]
        x = stage.add(CallOp("layer", [*x, *given], range(ranks), body.function_type.outputs.data))
    outlined = stage.finish("stage", x)
    groups = {
        (p, d): range((p * replicas + d) * ranks, (p * replicas + d + 1) * ranks)
        for p in range(stages)
        for d in range(replicas)
    }
    types = {place: [relocated(t, group) for t in weights * each] for place, group in groups.items()}
    main = Function([t for given in types.values() for t in given])
    arguments = iter(main.block.args)
    held = {place: [next(arguments) for _ in given] for place, given in types.items()}
    flowing: dict[tuple[int, int], Sequence[SSAValue]] = {}
    for d in range(replicas):
        for k in range(microbatches):
            inputs = [tensor(device, ROWS, WIDTH) for device in groups[0, d]]
            flowing[d, k] = [main.block.insert_arg(t, len(main.block.args)) for t in inputs]
    for step in range(stages + microbatches - 1):
        running = [(p, d, step - p) for p in range(stages) for d in range(replicas) if 0 <= step - p < microbatches]
        for p, d, k in running:
            outputs = [relocated(t, groups[p, d]) for t in outlined.function_type.outputs.data]
            flowing[d, k] = main.add(CallOp("stage", [*flowing[d, k], *held[p, d]], groups[p, d], outputs))
        for p, d, k in running:
            if p + 1 < stages:
                there = groups[p + 1, d]
                sends = [SendOp(v, placed(v.type, on_device(to))) for v, to in zip(flowing[d, k], there, strict=True)]
                flowing[d, k] = [main.add(send)[0] for send in sends]
    entry = main.finish("main", [v for values in flowing.values() for v in values])
    return ModuleOp([entry, outlined, body], {"dist.devices": IntegerAttr(replicas * ranks * stages, i64)})


def seconds(run: Callable[[], Any], times: int = 1) -> tuple[float, Any]:
    """CPU seconds, the least of several runs, and the result."""
    least, result = float("inf"), None
    for _ in range(times):
        gc.collect()
        start = time.process_time()
        result = run()
        least = min(least, time.process_time() - start)
    return least, result


def main() -> None:
    gc.set_threshold(200_000, 50, 50)  # as the tools do
    machine = load_machine("dgx-a100")
    print("CPU seconds; D T P K: replicas, tensor ranks, stages, microbatches; op-by-op times with ~ are estimated")
    print(
        f"{'D  T  P   K layers':>20} {'executed':>10} {'in IR':>6} {'op by op':>9} {'first':>8} {'again':>8} {'ratio':>8} {'ops/s':>8}"
    )
    rates: list[float] = []
    for replicas, ranks, stages, microbatches, layers in [
        (1, 1, 16, 128, 32), (1, 4, 4, 16, 32), (2, 2, 4, 16, 32), (8, 2, 1, 4, 32),
        (1, 1, 16, 128, 96), (1, 8, 2, 128, 96), (2, 4, 2, 128, 96), (8, 1, 2, 128, 96), (1, 2, 8, 128, 96),
    ]:  # fmt: skip
        module = pipeline(replicas, ranks, stages, microbatches, layers)
        memo = SummaryMemo()
        first, summary = seconds(lambda: summarize(module, machine), 3)
        summarize(module, machine, memo=memo)
        again, _ = seconds(lambda: summarize(module, machine, memo=memo), 3)
        executed = sum(summary.counts.values())
        in_ir = sum(1 for function in module.ops for _ in function.walk())
        estimated = executed > MOST
        if estimated:
            oracle_seconds = executed / (sum(rates) / len(rates))
        else:
            oracle_seconds, oracle = seconds(lambda: simulate(module, machine))
            rates.append(executed / oracle_seconds)
            assert summary.makespan_picoseconds == oracle.makespan_picoseconds
            assert summary.peak_memory_bytes == oracle.peak_memory_bytes
            assert summary.busy_seconds == oracle.busy_seconds
            assert summary.counts == oracle.counts
            del oracle
        print(
            f"{replicas:>2} {ranks:>2} {stages:>2} {microbatches:>3} {layers:>6} {executed:>12,} {in_ir:>6} "
            f"{'~' if estimated else ''}{oracle_seconds:>8.2f} {first:>8.4f} {again:>8.4f} {oracle_seconds / first:>7.0f}x "
            f"{executed / first:>8.2g}"
        )
    print(f"op by op: {sum(rates) / len(rates):,.0f} operations per second")


if __name__ == "__main__":
    main()
