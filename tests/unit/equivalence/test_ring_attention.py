"""Attention by chunks of keys that go around is the attention: random shapes, masks and diagonals, on whatever devices."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, DenseArrayBase, ModuleOp, i64
from xdsl.dialects.func import Func
from xdsl.parser import Parser
from xdsl.rewriter import Rewriter

from distir.dialects.attention import Attention, AttentionOp, CombineOp, ForwardOp
from distir.dialects.dist import AccumulateOp, Dist, ScaleOp
from distir.dialects.dist.communication import AllGatherOp
from distir.dialects.dist.windows import ExchangeOp
from distir.interpreters import attention, attention_tensors
from distir.interpreters.machines import load_machine
from distir.interpreters.module_check import check_module
from distir.interpreters.proof import prove
from distir.interpreters.ranks import explicit
from distir.interpreters.reference import run, run_ranks
from distir.interpreters.simulate.analysis import Analysis
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.context_parallel import ContextParallelPass
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.overlap_communication import OverlapCommunicationPass
from distir.passes.project_to_rank import project
from distir.passes.ring_attention import BALANCES, RingAttentionPass
from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}


class Case(NamedTuple):
    """Attention and its gradient: heads in a group if there is more than one."""

    heads: int
    group: int
    rows: int
    keys: int
    mask: tuple[bool, str] | None
    """Whether each row and each head has its own, and the element type."""
    diagonal: int | None
    trains: bool
    axes: str
    ranks: int
    drops: bool = False
    """Whether weights are dropped."""

    @property
    def text(self) -> str:
        size, lead = 4, f"{self.heads}x" if self.heads else ""
        group = f"{self.group}x" if self.group > 1 else ""
        q, k, v = (
            f"tensor<{lead}{n}x{d}xf64>" for n, d in ((f"{group}{self.rows}", size), (self.keys, size), (self.keys, 3))
        )
        o, sums = f"tensor<{lead}{group}{self.rows}x3xf64>", f"tensor<{lead}{group}{self.rows}xf64>"
        given, operand, type_ = "", "", ""
        if self.mask is not None:
            own, element = self.mask
            lead = lead if own else "1x" * bool(self.heads)
            type_ = f"tensor<{lead}{'1x' if group else ''}{self.rows if own else 1}x{self.keys}x{element}>"
            given, operand, type_ = f", %m: {type_} {port('m', False, -1)}", ", %m", f", {type_}"
        if self.drops:
            scores = [*([self.heads] if self.heads else []), *([self.group] if group else []), self.rows, self.keys]
            for i, of in enumerate(["tensor<i64>", *(f"tensor<{n}xi64>" for n in scores)]):
                given, operand, type_ = (
                    f"{given}, %p{i}: {of} {port(f'p{i}', False, -1)}",
                    f"{operand}, %p{i}",
                    f"{type_}, {of}",
                )
        diagonal = "" if self.diagonal is None else f", diagonal = {self.diagonal} : i64"
        options = f"<{{scale = 0.5 : f64{diagonal}{', dropout = 0.375 : f64' * self.drops}}}>"
        lines = [
            f'%o, %s = "attention.forward"(%q, %k, %v{operand}) {options} : ({q}, {k}, {v}{type_}) -> ({o}, {sums})'
        ]
        results = {"o": o}
        if self.trains:
            lines.append(
                f'%dq, %dk, %dv = "attention.backward"(%g, %o, %s, %q, %k, %v{operand}) {options} : '
                f"({o}, {o}, {sums}, {q}, {k}, {v}{type_}) -> ({q}, {k}, {v})"
            )
            results |= {"dq": q, "dk": k, "dv": v}
        arguments = {"q": q, "k": k, "v": v, "g": o}
        return f"""func.func @main({", ".join(f"%{n}: {t} {port(n, True, t.count('x') - 2)}" for n, t in arguments.items())}{given})
            -> ({", ".join(f"{t} {port(n, False, t.count('x') - 2)}" for n, t in results.items())}) {{
          {chr(10).join(lines)}
          func.return {", ".join(f"%{n}" for n in results)} : {", ".join(results.values())}
        }}"""


def port(name: str, is_input: bool, sequence: int) -> str:
    """Attributes of an argument or result; one that has a sequence is cut along it."""
    role = "input" if is_input or sequence < 0 else "output"
    dims = ["{}"] * (sequence + 2)
    if sequence >= 0:
        dims[sequence] = '{"cp"}'
    pin = f", dist.sharding = #dist.sharding<@mesh, [{', '.join(dims)}]>" if sequence >= 0 else ""
    return f'{{dist.name = "{name}", dist.role = "{role}"{pin}}}'


@st.composite
def cases(draw: st.DrawFn) -> Case:
    ranks = draw(st.sampled_from([2, 3, 4]))
    heads = draw(st.sampled_from([0, 1, 2]))
    masks = st.tuples(st.booleans(), st.sampled_from(["i1", "f64"]))
    return Case(
        heads,
        draw(st.sampled_from([1, 3])) if heads else 1,
        ranks * draw(st.integers(2, 4)),
        ranks * draw(st.integers(2, 4)),
        draw(st.none() | masks),
        draw(st.none() | st.integers(0, 2)),
        draw(st.booleans()),
        draw(st.sampled_from(["cp={}", "dp=2,cp={}", "cp={},tp=2"])).format(ranks),
        ranks,
        draw(st.booleans()),
    )


def gathered(case: Case) -> tuple[ModuleOp, ModuleOp]:
    """The program, and the same with queries cut and keys and values gathered."""
    context = Context()
    for dialect in (Builtin, Func, Dist, Attention):
        context.load_dialect(dialect)
    module = Parser(context, case.text).parse_module()
    return module, distributed(context, module, case.axes)


def distributed(context: Context, module: ModuleOp, mesh: str) -> ModuleOp:
    copy = module.clone()
    ContextParallelPass().apply(context, copy)
    IlpShardPass(mesh=mesh, machine="dgx-h100").apply(context, copy)
    ApplyShardingPass(grouped=True).apply(context, copy)
    return copy


def ringed(program: ModuleOp, overlaps: bool = False, balance: str = "no") -> ModuleOp:
    RingAttentionPass(balance).apply(Context(), program)
    if overlaps:
        OverlapCommunicationPass().apply(Context(), program)
    program.verify()
    check_module(program)
    return program


def gathers(module: ModuleOp) -> int:
    return sum(isinstance(op, AllGatherOp) and op.axis == "cp" for op in module.walk())


def drawn(case: Case, module: ModuleOp, random: np.random.Generator) -> dict[str, np.ndarray]:
    from distir.interpreters.entry import entry_function
    from distir.passes.structure import argument_attributes, shape_of, text

    main, found = entry_function(module), dict[str, np.ndarray]()
    for argument, attributes in zip(main.body.block.args, argument_attributes(main), strict=True):
        values = random.standard_normal(shape_of(argument))
        name = text(attributes, "dist.name", "")
        if name == "m":
            values = values > 0.3 if case.mask and case.mask[1] == "i1" else np.where(values > 0.5, -np.inf, values)
        if name.startswith("p"):
            values = np.arange(values.size).reshape(values.shape)
        found[name] = values
    return found


def check(case: Case, seed: int) -> None:
    module, planned = gathered(case)
    before = gathers(planned)
    balance = BALANCES[seed % 3]
    program = ringed(planned, seed % 2 == 1, balance)
    assert before
    assert not gathers(program)
    one_piece = case.ranks * (1 + case.trains)
    has_halves = case.diagonal is not None and not (case.rows // case.ranks % 2 or case.keys // case.ranks % 2)
    pieces = {"no": {1}, "yes": {4 if has_halves else 1}, "auto": {1, 4}}[balance]
    assert sum(isinstance(op, AttentionOp) for op in program.walk()) in [one_piece * n for n in pieces]
    inputs = drawn(case, module, np.random.default_rng(seed))
    expected, got = run(module, inputs), run(program, inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-10 * max(1.0, np.abs(value).max()), err_msg=name)
    written = explicit(program)
    devices = int(written.attributes["dist.devices"].value.data)  # pyright: ignore
    for name, value in run_ranks([project(written, rank) for rank in range(devices)], inputs).items():
        np.testing.assert_array_equal(value, got[name], err_msg=name)
    annotated = module.clone()
    ShardcombineAnnotatePass().apply(Context(), annotated)
    assert prove(annotated, program)
    machine = load_machine("dgx-h100")
    grouped, each = (Analysis(module, machine).summary for module in (program, written))
    assert (grouped.clocks, grouped.peak_memory_bytes) == (each.clocks, each.peak_memory_bytes)


@settings(**QUIET, max_examples=4)  # pyright: ignore[reportArgumentType]
@given(cases(), st.integers(0, 99))
def test_what_goes_around_is_the_attention(case: Case, seed: int) -> None:
    check(case, seed)


@pytest.mark.long
@settings(**QUIET, max_examples=200)  # pyright: ignore[reportArgumentType]
@given(cases(), st.integers(0, 99))
def test_what_goes_around_is_the_attention_of_many(case: Case, seed: int) -> None:
    check(case, seed)


def test_no_device_has_all_keys() -> None:
    """Of memory at the peak, and of messages: a device sends each of 3 parts of keys and values once, where it gets as many when they are gathered."""
    case = Case(2, 1, 4096, 4096, None, 0, False, "cp=4", 4)
    _, planned = gathered(case)
    machine = load_machine("dgx-h100")
    before = Analysis(planned, machine).summary.peak_memory_bytes[0]
    program = ringed(planned)
    assert Analysis(program, machine).summary.peak_memory_bytes[0] < before
    moved = [op for op in program.walk() if isinstance(op, ExchangeOp)]
    assert len(moved) == 2 * 3
    assert all(op.windows == [(3072, 4096), (0, 1024), (1024, 2048), (2048, 3072)] for op in moved)


@pytest.mark.parametrize(("rows", "is_faster"), [(65536, True), (64, False)])
def test_a_diagonal_hides_as_much_from_every_device(rows: int, is_faster: bool) -> None:
    """With two pieces of the sequence on each: all compute as long, and the whole is faster where sequences are long."""
    kind, pin = f"tensor<8x{rows}x128xf16>", 'dist.sharding = #dist.sharding<@mesh, [{}, {"cp"}, {}]>'
    context = Context()
    for dialect in (Builtin, Func, Dist, Attention):
        context.load_dialect(dialect)
    text = f"""func.func @main(%x: {kind} {{dist.name = "x", dist.role = "input", {pin}}})
            -> ({kind} {{dist.name = "o", dist.role = "output", {pin}}}) {{
          %o, %s = "attention.forward"(%x, %x, %x) <{{scale = 0.5 : f64, diagonal = 0 : i64}}> : ({kind}, {kind}, {kind}) -> ({kind}, tensor<8x{rows}xf16>)
          func.return %o : {kind}
        }}"""
    planned, machine = distributed(context, Parser(context, text).parse_module(), "cp=4"), load_machine("dgx-a100")
    found = {b: Analysis(ringed(planned.clone(), balance=b), machine).summary for b in BALANCES}
    first, last = ({b: s.busy_seconds[device]["attention"] for b, s in found.items()} for device in (0, 3))
    assert first["yes"] == pytest.approx(last["yes"])
    assert first["no"] < last["no"] * (0.5 if is_faster else 1)
    assert found["auto"].makespan_seconds == found["yes" if is_faster else "no"].makespan_seconds
    assert (found["yes"].makespan_seconds < found["no"].makespan_seconds) == is_faster


def of(program: ModuleOp, kind: type[Any]) -> list[Any]:
    return [op for op in program.walk() if isinstance(op, kind)]


def sums_instead(program: ModuleOp) -> None:
    """Results are added up, not weighed."""
    combine = of(program, CombineOp)[0]
    sums = [AccumulateOp([a, b]) for a, b in zip(combine.operands[:2], combine.operands[2:], strict=True)]
    Rewriter.replace_op(combine, sums, [each.output for each in sums])


def twice(program: ModuleOp) -> None:
    """One part of the keys is taken twice, another never."""
    combine = of(program, CombineOp)[0]
    combine.operands[2], combine.operands[3] = combine.operands[0], combine.operands[1]


def never(program: ModuleOp) -> None:
    """The last part is left out."""
    combine = of(program, CombineOp)[-1]
    Rewriter.replace_op(combine, [], combine.operands[:2])


def logarithms_of_the_other(program: ModuleOp) -> None:
    combine = of(program, CombineOp)[0]
    combine.operands[1], combine.operands[3] = combine.operands[3], combine.operands[1]


def without_weights(program: ModuleOp) -> None:
    """The results of one part are taken for those of all."""
    combine = of(program, CombineOp)[-1]
    Rewriter.replace_op(combine, [], combine.operands[2:])


def of_another_chunk(program: ModuleOp) -> Any:
    """The first attention that a device has for keys of another one, of three."""
    found = of(program, ForwardOp)
    return found[len(found) // 3]


def seen_from_elsewhere(program: ModuleOp) -> None:
    """One chunk is masked as if it began elsewhere."""
    op = of_another_chunk(program)
    del op.attributes["dist.by_rank"]


def of_the_wrong_device(program: ModuleOp) -> None:
    """Values come from the next device, keys from the one before."""
    exchange = of(program, ExchangeOp)[1]
    exchange.properties["starts"] = DenseArrayBase.from_list(i64, [2, 4, 0])


def halved(program: ModuleOp) -> None:
    """Half of the results of one part."""
    op = of_another_chunk(program)
    for value in op.results:
        half = ScaleOp(value, 1, 2)
        op.parent.insert_op_after(half, op)
        value.replace_uses_with_if(half.output, lambda use: not isinstance(use.operation, ScaleOp))


FAULTS = [
    sums_instead,
    twice,
    never,
    logarithms_of_the_other,
    without_weights,
    seen_from_elsewhere,
    of_the_wrong_device,
    halved,
]


@pytest.mark.parametrize("balance", ["no", "yes"])
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_not_proven(fault: Callable[[ModuleOp], None], balance: str) -> None:
    case = Case(2, 1, 6, 6, None, 0, False, "cp=3", 3)
    module, planned = gathered(case)
    program = ringed(planned, balance=balance)
    ShardcombineAnnotatePass().apply(Context(), module)
    assert prove(module, program)
    fault(program)
    program.verify()
    assert not prove(module, program)
    inputs = drawn(case, module, np.random.default_rng(0))
    assert not np.allclose(run(module, inputs)["o"], run(program, inputs)["o"])


def test_queries_that_are_the_keys_and_values() -> None:
    """One value is three operands: one goes around, and the proof tells them apart."""
    kind = "tensor<2x8x4xf64>"
    pin = 'dist.sharding = #dist.sharding<@mesh, [{}, {"cp"}, {}]>'
    context = Context()
    for dialect in (Builtin, Func, Dist, Attention):
        context.load_dialect(dialect)
    text = f"""func.func @main(%x: {kind} {{dist.name = "x", dist.role = "input", {pin}}})
            -> ({kind} {{dist.name = "o", dist.role = "output", {pin}}}) {{
          %o, %s = "attention.forward"(%x, %x, %x) <{{scale = 0.5 : f64}}> : ({kind}, {kind}, {kind}) -> ({kind}, tensor<2x8xf64>)
          func.return %o : {kind}
        }}"""
    module = Parser(context, text).parse_module()
    program = ringed(distributed(context, module, "cp=4"))
    assert len(of(program, ExchangeOp)) == 3
    ShardcombineAnnotatePass().apply(Context(), module)
    assert prove(module, program)


@pytest.mark.parametrize("diagonal", [None, 0, 3, -2, -9])
@pytest.mark.parametrize("scale", [0.3, 300.0])
def test_results_of_two_parts_combine_to_those_of_the_whole(diagonal: int | None, scale: float) -> None:
    """On arrays and on tensors, where rows see keys of both parts, of one, or of none; sums of exponentials that overflow too."""
    random = np.random.default_rng(0)
    query, key, value = (random.standard_normal((2, n, 4)) for n in (6, 9, 9))
    for split in (1, 4, 8):
        other = None if diagonal is None else diagonal - split
        with np.errstate(over="ignore"):  # of scores that are not seen
            whole = attention.forward(query, key, value, None, scale, diagonal)
            parts = [
                attention.forward(query, key[:, s], value[:, s], None, scale, limit)
                for s, limit in ((slice(None, split), diagonal), (slice(split, None), other))
            ]
        found = attention.combine(*parts[0], *parts[1])
        tensors = [torch.tensor(each) for part in parts for each in part]
        on_tensors = attention_tensors.combine(*tensors)
        for expected, array, tensor in zip(whole, found, on_tensors, strict=True):
            np.testing.assert_allclose(array, expected, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-12, atol=1e-12)
