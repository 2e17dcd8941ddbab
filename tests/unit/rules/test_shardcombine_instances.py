"""Rules at the shapes of one op: states and pieces worked out by hand."""

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Partial, Replicated, Sharded
from distir.passes.shardcombine.cache import parse_rule
from distir.passes.shardcombine.instances import factor_extent, instantiate, partial_instance

GEMM = parse_rule(
    "#dist.rule<[S1, S2], [S2, S3], [S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, "
    "partial = [sum: (0, 2) -> 0, sum: S2, 2 -> 0], found = exact>"
)
HEADS = parse_rule("#dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, sizes = {shape[1]: S2}, found = exact>")
QKV = parse_rule("#dist.rule<[S1, S2(pieces = [4, 1, 1])] -> {S2: [gather(1), gather(1), gather(1)]}, found = exact>")
CONCAT = parse_rule("#dist.rule<[S1], [S1] -> {S1: gather(0, pieces = [4, 1])}, found = exact>")
MEAN = parse_rule("#dist.rule<[S1, S2] -> {S1: gather(0), S2: reduce(mean)}, found = exact>")
VIEW = parse_rule(
    "#dist.rule<[S1 * S2, S3, S4], [_] -> {S1: gather(0), S2: gather(1), S3: gather(1, outer = S2), S4: gather(2)}, "
    "sizes = {shape[1]: S2 * S3}, found = exact>"
)
GEMM_SHAPES = ([(8, 12), (12, 6), (6,)], [(8, 6)])
SUM = Partial(Reduction.SUM)
WHOLE = Replicated()


def test_contraction_with_its_partner():
    instance = instantiate(GEMM, "S2", *GEMM_SHAPES, shards=4)
    assert instance is not None
    assert instance.operands == (Sharded(1, (12,)), Sharded(0, (12,)), SUM)
    assert instance.results == (SUM,)


def test_extents_must_divide():
    assert instantiate(GEMM, "S3", *GEMM_SHAPES, shards=4) is None
    assert instantiate(GEMM, "S3", *GEMM_SHAPES, shards=3) is not None


def test_polymorphic_in_pieces():
    instance = instantiate(GEMM, "S3", *GEMM_SHAPES, shards=2, pieces=(4, 2))
    assert instance is not None
    assert instance.operands == (WHOLE, Sharded(1, (4, 2)), Sharded(0, (4, 2)))
    assert instance.results == (Sharded(1, (4, 2)),)
    assert instantiate(GEMM, "S3", *GEMM_SHAPES, shards=2, pieces=(3, 3)) is None


def test_the_extent_of_a_factor_is_what_its_dims_have_in_common():
    shapes = ([(8, 768)], [(8, 12, 64)])
    assert factor_extent(HEADS, "S2", *shapes) == 12
    assert instantiate(HEADS, "S2", *shapes, shards=8) is None
    instance = instantiate(HEADS, "S2", *shapes, shards=2, pieces=(8, 4))
    assert instance is not None
    assert instance.operands == (Sharded(1, (512, 256)),)
    assert instance.results == (Sharded(1, (8, 4)),)


def test_segments_of_an_operand():
    shapes = ([(8, 96)], [(8, 64), (8, 16), (8, 16)])
    instance = instantiate(QKV, "S2", *shapes, shards=4)
    assert instance is not None
    assert instance.operands == (Sharded(1, (64, 16, 16)),)
    assert instance.results == (Sharded(1, (64,)), Sharded(1, (16,)), Sharded(1, (16,)))
    assert instantiate(QKV, "S2", *shapes, shards=4, pieces=(8, 8)) is None
    assert instantiate(QKV, "S2", *shapes, shards=32) is None


def test_segments_of_a_result():
    instance = instantiate(CONCAT, "S1", [(32,), (8,)], [(40,)], shards=2)
    assert instance is not None
    assert instance.operands == (Sharded(0, (32,)), Sharded(0, (8,)))
    assert instance.results == (Sharded(0, (32, 8)),)


def test_a_factor_inside_another_is_cut_within_every_index_of_it():
    """`[3 * 4, 6, 5] -> [3, 4 * 6, 5]`: 4 is cut in each of 3 blocks of the first dim; 6 in each of 4 blocks of the
    result's second."""
    shapes = ([(12, 6, 5), (3,)], [(3, 24, 5)])
    assert [factor_extent(VIEW, factor, *shapes) for factor in VIEW.factors] == [3, 4, 6, 5]
    inner = instantiate(VIEW, "S2", *shapes, shards=2)
    assert inner is not None
    assert inner.operands == (Sharded(0, (4, 4, 4)), WHOLE)
    assert inner.results == (Sharded(1, (24,)),)
    merged = instantiate(VIEW, "S3", *shapes, shards=2, pieces=(4, 2))
    assert merged is not None
    assert merged.operands == (Sharded(1, (4, 2)), WHOLE)
    assert merged.results == (Sharded(1, (4, 2, 4, 2, 4, 2, 4, 2)),)


def test_a_mean_is_flagged():
    instance = instantiate(MEAN, "S2", [(8, 12)], [(8,)], shards=2)
    assert instance is not None
    assert instance.results == (SUM,)
    assert instance.means == (0,)


def test_partial_values_pass():
    instance = partial_instance(GEMM, 0, result_count=1)
    assert instance is not None
    assert instance.operands == (SUM, WHOLE, SUM)
    assert instance.results == (SUM,)
    assert partial_instance(GEMM, 1, result_count=1) is None
