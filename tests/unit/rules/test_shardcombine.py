"""Rules discovered for numpy functions: what they must be, and that they hold on floats, run by other code than found them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, TensorType, f16, f32, f64, i1, i64
from xdsl.dialects.test import TestOp
from xdsl.ir import Block, Operation
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    prop_def,
    var_operand_def,
    var_result_def,
)

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Gather, Identity, Reduce, Rule
from distir.interpreters.exact.arrays import with_scalars
from distir.passes.shardcombine.cache import RuleCache, rule_text
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.instances import factor_extent

DTYPES = {f64: np.float64, f32: np.float32, f16: np.float16, i64: np.int64, i1: np.bool_}
TYPES = {np.dtype(v): k for k, v in DTYPES.items()}


@irdl_op_definition
class FunctionOp(IRDLOperation):
    """A numpy function as an op; its `sizes` are passed after the arrays."""

    name = "test.function"
    function = prop_def(StringAttr)
    sizes = prop_def(ArrayAttr)
    arguments = var_operand_def()
    values = var_result_def()


@dataclass
class Case:
    """A function over arrays and sizes, its operands, and the rule that mathematics says."""

    name: str
    run: Callable[..., Any]
    operands: Sequence[TensorType[Any]]
    rule: str
    sizes: Sequence[int] = ()
    same: bool = False
    """All operands are one value."""
    infer: Callable[..., Any] | None = None
    """Inference that accepts more than the function does."""

    def __call__(self, *arrays: Any, sizes: Sequence[int] = ()) -> tuple[np.ndarray, ...]:
        results = self.run(*arrays, *sizes)
        return tuple(map(np.asarray, results)) if isinstance(results, tuple) else (np.asarray(results),)


class FunctionDomains:
    """Runs functions; infers by running them on ones."""

    states_numbers = True
    cases: ClassVar[dict[str, Case]] = {}
    evaluations: int = 0

    def checking(self, op: Operation) -> None:
        return None

    def is_forked(self, op: Operation) -> bool:
        return False

    def evaluate(self, op: Operation, operands: Sequence[Any]) -> list[Any]:
        operands = with_scalars(operands)
        assert isinstance(op, FunctionOp)
        self.evaluations += 1
        return list(self.cases[op.function.data](*operands, sizes=[s.value.data for s in op.sizes]))

    def infer(self, op: Operation, operands: Sequence[Any]) -> list[Any]:
        assert isinstance(op, FunctionOp)
        case, sizes = self.cases[op.function.data], [s.value.data for s in op.sizes]
        if case.infer is not None:
            return [TensorType(f64, shape) for shape in case.infer(*(o.get_shape() for o in operands), *sizes)]
        arrays = [np.zeros(o.get_shape(), DTYPES[o.element_type]) for o in operands]
        return [TensorType(TYPES[r.dtype], r.shape) for r in case(*arrays, sizes=sizes)]

    def kept(self, op: Operation, operands: Sequence[Any]) -> dict[int, Any]:
        return {}


def op_of(case: Case) -> FunctionOp:
    FunctionDomains.cases[case.name] = case
    arguments = Block(arg_types=case.operands).args
    operands = [arguments[0]] * len(arguments) if case.same else arguments
    arrays = [np.ones(t.get_shape(), DTYPES[t.element_type]) for t in case.operands]
    for array in arrays:
        if array.dtype == np.int64:
            array[...] = 0
    results = case(*arrays, sizes=case.sizes)
    return FunctionOp.create(
        operands=operands,
        result_types=[TensorType(TYPES[r.dtype], r.shape) for r in results],
        properties={
            "function": StringAttr(case.name),
            "sizes": ArrayAttr([IntegerAttr(size, i64) for size in case.sizes]),
        },
    )


def t(*shape: int, of: Any = f64) -> TensorType[Any]:
    return TensorType(of, shape)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5) * scale + bias


def take(table: Any, indices: Any) -> Any:
    if indices.size and (indices.min() < 0 or indices.max() >= len(table)):
        raise IndexError
    return table[indices]


def erf(x: Any) -> Any:
    from math import erf

    return np.vectorize(erf, otypes=["d"])(x)


TWO = "[S1: gather(0), S2: gather(1)"
MOVES = "partial = [sum: 0 -> 0, max: 0 -> 0, min: 0 -> 0]"
CASES = [
    Case("matmul", lambda x, w: x @ w, [t(60, 90), t(90, 30)],
         "[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0]"),
    Case("square matmul", lambda x, w: x @ w, [t(60, 60), t(60, 60)],
         "[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0]"),
    Case("matmul with itself", lambda x, y: x @ y, [t(60, 60), t(60, 60)],
         "[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0]", same=True),
    Case("gemm", lambda x, w, b: x @ w + b, [t(60, 90), t(90, 30), t(30)],
         "[S1, S2], [S2, S3], [S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, "
         "partial = [sum: (0, 2) -> 0, sum: (1, 2) -> 0, sum: S2, 2 -> 0]"),
    Case("gemm of lenient types", lambda x, w, b: x @ w + b, [t(60, 60), t(60, 30), t(30)],
         "[S1, S2], [S2, S3], [S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, "
         "partial = [sum: (0, 2) -> 0, sum: (1, 2) -> 0, sum: S2, 2 -> 0]",
         infer=lambda x, w, b: [(x[0], w[1])]),
    Case("relu of matmul", lambda x, w: np.maximum(x @ w, 0), [t(60, 90), t(90, 30)],
         "[S1, _], [_, S2] -> {S1: gather(0), S2: gather(1)}"),
    Case("abs of sum", lambda x: np.abs(x.sum(1)), [t(60, 90)], "[S1, _] -> {S1: gather(0)}"),
    Case("clamped sum", lambda x: np.minimum(np.maximum(x.sum(1), -1), 1), [t(60, 90)], "[S1, _] -> {S1: gather(0)}"),
    Case("softmax", softmax, [t(30, 60, 90)], "[S1, S2, _] -> {S1: gather(0), S2: gather(1)}"),
    Case("layer norm", layer_norm, [t(30, 60, 90), t(90), t(90)],
         "[S1, S2, _], [_], [_] -> {S1: gather(0), S2: gather(1)}, partial = [sum: (1, 2) -> 0]"),
    Case("mean", lambda x: x.mean(1), [t(60, 90)],
         "[S1, S2] -> {S1: gather(0), S2: reduce(mean)}, partial = [sum: 0 -> 0]"),
    Case("amax", lambda x: x.max(1), [t(60, 90)],
         "[S1, S2] -> {S1: gather(0), S2: reduce(max)}, partial = [max: 0 -> 0]"),
    Case("amin", lambda x: x.min(1), [t(60, 90)],
         "[S1, S2] -> {S1: gather(0), S2: reduce(min)}, partial = [min: 0 -> 0]"),
    Case("product", lambda x: x.prod(1), [t(30, 30)], "[S1, S2] -> {S1: gather(0), S2: reduce(prod)}"),
    Case("transpose", lambda x: x.transpose(0, 2, 1), [t(30, 60, 90)],
         f"[S1, S2, S3] -> {{S1: gather(0), S2: gather(2), S3: gather(1)}}, {MOVES}"),
    Case("merge batch and sequence", lambda x, *s: x.reshape(s), [t(30, 60, 90)],
         "[S1, S2, S3] -> {S1: gather(0), S2: gather(0, outer = S1), S3: gather(1)}, "
         f"sizes = {{sizes[0]: S1 * S2, sizes[1]: S3}}, {MOVES}",
         (1800, 90)),
    Case("split heads", lambda x, *s: x.reshape(s), [t(30, 30, 1800)],
         "[S1, S2, S3 * S4] -> {S1: gather(0), S2: gather(1), S3: gather(2), S4: gather(3)}, "
         f"sizes = {{sizes[0]: S1, sizes[1]: S2, sizes[2]: S3, sizes[3]: S4}}, {MOVES}", (30, 30, 60, 30)),
    Case("split heads, lenient types", lambda x, *s: x.reshape(s), [t(30, 30, 1800)],
         "[S1, S2, S3 * S4] -> {S1: gather(0), S2: gather(1), S3: gather(2), S4: gather(3)}, "
         f"sizes = {{sizes[0]: S1, sizes[1]: S2, sizes[2]: S3, sizes[3]: S4}}, {MOVES}", (30, 30, 60, 30),
         infer=lambda x, *s: [s]),
    Case("merge two pairs, the rest inferred", lambda x, *s: x.reshape(s), [t(30, 30, 60, 30)],
         "[S1, S2, S3, S4] -> {S1: gather(0), S2: gather(0, outer = S1), S3: gather(1), S4: gather(1, outer = S3)}, "
         f"sizes = {{sizes[1]: S3 * S4}}, {MOVES}", (-1, 1800)),
    Case("merge and split", lambda x, *s: x.reshape(s), [t(900, 60, 30)],
         "[S1 * S2, S3, S4] -> {S1: gather(0), S2: gather(1), S3: gather(1, outer = S2), S4: gather(2)}, "
         f"sizes = {{sizes[0]: S1, sizes[1]: S2 * S3, sizes[2]: S4}}, {MOVES}", (30, 1800, 30)),
    Case("merge with the sequence first", lambda x, *s: x.transpose(1, 0, 2).reshape(s), [t(30, 60, 90)],
         "[S1, S2, S3] -> {S1: gather(0, outer = S2), S2: gather(0), S3: gather(1)}, "
         f"sizes = {{sizes[0]: S1 * S2, sizes[1]: S3}}, {MOVES}", (1800, 90)),
    Case("a view that straddles", lambda x, *s: x.reshape(s), [t(60, 90)],
         f"[S1, _] -> {{S1: gather(0)}}, sizes = {{sizes[0]: S1}}, {MOVES}", (90, 60)),
    Case("split in three", lambda x, *s: tuple(np.split(x, np.cumsum(s)[:-1], 1)) if sum(s) == x.shape[1] else 1 / 0,
         [t(60, 270)],
         "[S1, S2(pieces = [1, 1, 1])] -> {S1: [gather(0), gather(0), gather(0)], S2: [gather(1), gather(1), gather(1)]"
         "}, sizes = {sizes[0]: S2, sizes[1]: S2, sizes[2]: S2}, "
         "partial = [sum: 0 -> (0, 1, 2), max: 0 -> (0, 1, 2), min: 0 -> (0, 1, 2)]", (90, 90, 90)),
    Case("split grouped queries",
         lambda x, *s: tuple(np.split(x, np.cumsum(s)[:-1], 1)) if sum(s) == x.shape[1] else 1 / 0, [t(60, 180)],
         "[S1, S2(pieces = [4, 1, 1])] -> {S1: [gather(0), gather(0), gather(0)], S2: [gather(1), gather(1), gather(1)]"
         "}, sizes = {sizes[0]: S2, sizes[1]: S2, sizes[2]: S2}, "
         "partial = [sum: 0 -> (0, 1, 2), max: 0 -> (0, 1, 2), min: 0 -> (0, 1, 2)]", (120, 30, 30)),
    Case("concat", lambda x, y: np.concatenate([x, y], 1), [t(60, 120), t(60, 30)],
         "[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1, pieces = [4, 1])}, partial = [sum: (0, 1) -> 0, "
         "max: (0, 1) -> 0, min: (0, 1) -> 0]"),
    Case("second half", lambda x, start, end: x[:, start:end] if end <= x.shape[1] else 1 / 0, [t(60, 120)],
         f"[S1, S2(pieces = [1, 1])] -> {{S1: gather(0), S2: gather(1)}}, sizes = {{sizes[0]: S2, sizes[1]: S2}}, "
         f"{MOVES}", (60, 120)),
    Case("expand", lambda x, *s: np.broadcast_to(x, s), [t(1, 90)],
         f"[_, S1] -> {{S1: gather(1), S2: gather(0)}}, sizes = {{sizes[1]: S1, sizes[0]: S2}}, {MOVES}", (60, 90)),
    Case("rows by index", take, [t(60, 90), t(30, 120, of=i64)],
         f"[S4, S1], [S2, S3] -> {{S1: gather(2), S2: gather(0), S3: gather(1), S4: reduce(sum)}}, {MOVES}, "
         "offset = S4"),
    Case("broadcasting add", lambda x, y: x + y, [t(30, 60, 90), t(60, 1)],
         "[S1, S2, S3], [S2, _] -> {S1: gather(0), S2: gather(1), S3: gather(2)}, partial = [sum: (0, 1) -> 0]"),
    Case("x * x", lambda x, y: x * y, [t(60, 90), t(60, 90)],
         "[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}", same=True),
    Case("x + x", lambda x, y: x + y, [t(60, 90), t(60, 90)],
         "[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}, "
         "partial = [sum: (0, 1) -> 0]", same=True),
    Case("where", np.where, [t(60, 1, of=i1), t(60, 90), t(60, 90)],
         "[S1, _], [S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: (1, 2) -> 0, "
         "max: (1, 2) -> 0, min: (1, 2) -> 0]"),
    Case("narrowing cast", lambda x: x.astype(np.float16), [t(60, 90)],
         "[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = probed"),
    Case("cast of a sum", lambda x: x.sum(1).astype(np.float16), [t(60, 90)],
         "[S1, _] -> {S1: gather(0)}, found = probed"),
    Case("erf", erf, [t(60, 90)],
         "[S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [max: 0 -> 0, min: 0 -> 0], found = probed"),
    Case("square root, machine numbers", lambda x: np.sqrt(x.astype(np.float64)), [t(60, 90)],
         "[S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [min: 0 -> 0], found = probed"),
    Case("cumulative sum", lambda x: x.cumsum(1), [t(60, 90)],
         "[S1, _] -> {S1: gather(0)}, partial = [sum: 0 -> 0]"),
    Case("first rows of a table", lambda x, n: x[:n] if n <= len(x) else 1 / 0, [t(997, 90)],
         f"[_, S1] -> {{S1: gather(1)}}, {MOVES}", (30,)),
    Case("position in a row", lambda x: x * np.arange(x.shape[1]), [t(60, 90)],
         "[S1, _] -> {S1: gather(0)}, partial = [sum: 0 -> 0]"),
    Case("argmax", lambda x: x.argmax(1), [t(60, 90)], "[S1, _] -> {S1: gather(0)}"),
    Case("sum of integers", lambda x: x.sum(1), [t(60, 90, of=i64)], "[S1, S2] -> {S1: gather(0), S2: reduce(sum)}"),
    Case("any", lambda x: x.any(1), [t(60, 90, of=i1)], "[S1, _] -> {S1: gather(0)}"),
]  # fmt: skip


def discover(case: Case) -> Rule:
    return Discovery(FunctionDomains()).rule(op_of(case))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_rule_is_the_one_that_mathematics_says(case: Case):
    found = "" if "found" in case.rule else ", found = exact"
    assert rule_text(discover(case)) == f"#dist.rule<{case.rule}{found}>"


# --- soundness, by other code ---


def pick(extent: int, segments: Sequence[int], parts: Sequence[int], shard: int) -> np.ndarray:
    """A mask of the indices that a shard holds: within each segment, the part of its share."""
    mask, start = np.zeros(extent, bool), 0
    for segment in segments or (1,):
        length = extent * segment // sum(segments or (1,))
        bounds = np.cumsum([0, *parts]) * length // sum(parts)
        mask[start + bounds[shard] : start + bounds[shard + 1]] = True
        start += length
    return mask


def addends(array: np.ndarray, shards: int, reduction: Reduction, rng: np.random.Generator) -> list[np.ndarray]:
    noise = [rng.standard_normal(array.shape) for _ in range(shards)]
    if reduction is Reduction.SUM:
        return [array - sum(noise[1:]), *noise[1:]]
    sign = -1 if reduction is Reduction.MAX else 1
    last = [np.where(np.arange(array.size).reshape(array.shape) % shards == i, 0, 1) for i in range(shards)]
    return [array + sign * np.abs(n) * own for n, own in zip(noise, last, strict=True)]


def rebuilt(
    combine: Any, whole: np.ndarray, shards: Sequence[np.ndarray], parts: Sequence[int], repeats: int
) -> np.ndarray:
    """`repeats`: how many indices the factors outside a gathered one have."""
    match combine:
        case Identity():
            assert all(np.allclose(shard, shards[0]) for shard in shards)
            return shards[0]
        case Gather(dim, _, pieces, _):
            result = np.full_like(whole, 77)
            for i, shard in enumerate(shards):
                index = [slice(None)] * whole.ndim
                index[dim] = pick(whole.shape[dim], (pieces or (1,)) * repeats, parts, i)
                result[tuple(index)] = shard
            return result
        case Reduce(Reduction.MEAN):
            return sum(shard * part for shard, part in zip(shards, parts, strict=True)) / sum(parts)
        case Reduce(reduction):
            functions = {Reduction.SUM: np.sum, Reduction.MAX: np.max, Reduction.MIN: np.min, Reduction.PROD: np.prod}
            return functions[reduction](np.stack(shards), axis=0)
    raise AssertionError(combine)


def draw(case: Case, rng: np.random.Generator) -> list[np.ndarray]:
    arrays: list[np.ndarray] = []
    for type_ in case.operands:
        if type_.element_type == i1:
            arrays.append(rng.random(type_.get_shape()) < 0.3)
        elif type_.element_type == i64:
            arrays.append(rng.integers(0, 60, type_.get_shape()))
        else:
            array = rng.standard_normal(type_.get_shape())
            arrays.append(np.abs(array) if "root" in case.name else array)
    return [arrays[0]] * len(arrays) if case.same else arrays


def agree(left: np.ndarray, right: np.ndarray) -> bool:
    return left.shape == right.shape and bool(np.allclose(left, right, rtol=1e-6, atol=1e-9, equal_nan=True))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@pytest.mark.parametrize("parts", [(2, 3), (1, 2, 3)], ids=str)
@pytest.mark.filterwarnings("ignore")
def test_every_rule_holds_on_floats(case: Case, parts: tuple[int, ...]):
    rng = np.random.default_rng(len(parts))
    rule = discover(case)
    arrays = draw(case, rng)
    wholes = case(*arrays, sizes=case.sizes)

    def extent(factors: Sequence[str]) -> int:
        shapes = [a.shape for a in arrays], [w.shape for w in wholes]
        return math.prod(factor_extent(rule, factor, *shapes) or 0 for factor in factors)

    for factor, combines in ((f, rule.combines[f]) for f in rule.factors):
        local: list[tuple[np.ndarray, ...]] = []
        partner = rule.partner(factor)
        split = {i: addends(arrays[i], len(parts), Reduction.SUM, rng) for i in (partner.operands if partner else ())}
        for shard in range(len(parts)):
            operands = [split[i][shard] if i in split else array for i, array in enumerate(arrays)]
            for i, dims in enumerate(rule.inputs):
                for d, dim in enumerate(dims):
                    if factor in dim.factors:
                        repeats = extent(dim.factors[: dim.factors.index(factor)])
                        mask = pick(arrays[i].shape[d], (dim.pieces or (1,)) * repeats, parts, shard)
                        operands[i] = operands[i].compress(mask, d)
            sizes = [
                size * parts[shard] // sum(parts) if factor in rule.sizes.get(("sizes", p), ()) else size
                for p, size in enumerate(case.sizes)
            ]
            local.append(case(*operands, sizes=sizes))
        for r, combine in enumerate(combines):
            repeats = extent(combine.outer) if isinstance(combine, Gather) else 1
            assert agree(rebuilt(combine, wholes[r], [shard[r] for shard in local], parts, repeats), wholes[r]), factor
    for partial in rule.partials:
        if partial.factor is None:
            split = {i: addends(arrays[i], len(parts), partial.reduction, rng) for i in set(partial.operands)}
            if case.same:
                split = dict.fromkeys(split, next(iter(split.values())))
            local = [
                case(*(split[i][shard] if i in split else a for i, a in enumerate(arrays)), sizes=case.sizes)
                for shard in range(len(parts))
            ]
            for r, whole in enumerate(wholes):
                combine = Reduce(partial.reduction) if r in partial.results else Identity()
                assert agree(rebuilt(combine, whole, [shard[r] for shard in local], parts, 1), whole), partial


# --- classes and the cache ---


def with_shapes(case: Case, shapes: Sequence[tuple[int, ...]], sizes: Sequence[int] = ()) -> Case:
    return replace(case, operands=[t(*shape) for shape in shapes], sizes=sizes)


def case_named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


@pytest.mark.parametrize(
    ("name", "shapes", "sizes", "other_shapes", "other_sizes"),
    [
        ("matmul", [(8, 768), (768, 3072)], (), [(512, 1600), (1600, 400)], ()),
        ("split heads", [(8, 128, 768)], (8, 128, 12, 64), [(3, 64, 1600)], (3, 64, 25, 64)),
        ("split in three", [(8, 2304)], (768,) * 3, [(5, 4800)], (1600,) * 3),
    ],
)
def test_ops_of_other_widths_share_a_class(name: str, shapes: Any, sizes: Any, other_shapes: Any, other_sizes: Any):
    discovery = Discovery(FunctionDomains())
    rule = discovery.rule(op_of(with_shapes(case_named(name), shapes, sizes)))
    assert discovery.probed == 1
    assert discovery.rule(op_of(with_shapes(case_named(name), other_shapes, other_sizes))) == rule
    assert discovery.probed == 1


def test_other_proportions_are_another_class():
    discovery = Discovery(FunctionDomains())
    for sizes in ((60, 60, 60), (120, 30, 30)):
        discovery.rule(op_of(with_shapes(case_named("split in three"), [(8, 180)], sizes)))
    assert discovery.probed == 2


def test_stand_ins_are_small():
    domains = FunctionDomains()
    sizes: list[int] = []
    case = with_shapes(case_named("gemm of lenient types"), [(512, 50000), (50000, 4096), (4096,)])
    op = op_of(replace(case, run=lambda x, w, b: np.zeros((512, 4096)), infer=None))
    FunctionDomains.cases[case.name] = replace(case, run=lambda x, w, b: (sizes.append(x.size + w.size), x @ w + b)[1])
    assert Discovery(domains).rule(op).combines
    assert max(sizes) < 20_000


def test_a_term_too_small_for_floats_is_seen():
    """x + 1e-13 x^2 only adds and multiplies, so it is tried on floats first, and they take it for linear."""
    case = replace(case_named("gemm"), operands=[t(4, 5)], run=lambda x: x + x * x * 1e-13)
    assert not discover(case).partials


def test_rules_are_kept_between_runs(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DISTIR_CACHE_DIR", str(tmp_path / "rules"))
    op = op_of(case_named("gemm"))
    first = Discovery(FunctionDomains(), RuleCache.on_disk())
    rule = first.rule(op)
    first.cache.save()
    domains = FunctionDomains()
    second = Discovery(domains, RuleCache.on_disk())
    assert second.rule(op) == rule
    assert domains.evaluations == 0


@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"test.function x": 3}', None])
def test_a_damaged_cache_is_ignored(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, damage: str | None):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DISTIR_CACHE_DIR", raising=False)
    op = op_of(case_named("gemm"))
    first = Discovery(FunctionDomains(), RuleCache.on_disk())
    rule = first.rule(op)
    first.cache.save()
    (file,) = (tmp_path / "distir").iterdir()
    text = file.read_text()
    file.write_text(text.replace("gather(0)", "gather(zero)") if damage is None else damage)
    again = Discovery(FunctionDomains(), RuleCache.on_disk())
    assert again.rule(op) == rule
    again.cache.save()
    assert file.read_text() == text


def test_an_op_that_nothing_is_known_of_gets_a_rule_without_factors():
    (argument,) = Block(arg_types=[t(60, 90)]).args
    op = TestOp(operands=[argument], result_types=[t(60, 90)])
    assert rule_text(Discovery(FunctionDomains()).rule(op)) == "#dist.rule<[_, _] -> {}, found = unknown>"
