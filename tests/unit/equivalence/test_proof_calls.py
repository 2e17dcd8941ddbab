"""What a function is not told of its arguments: calls that differ in that only are one, and results are what the call's arguments say."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distir.interpreters.proof.calls import NOTHING_TOLD, Replay, Told, abstracted
from distir.interpreters.proof.indices import Indices, concat, ranges
from distir.interpreters.proof.terms import Library
from distir.interpreters.proof.values import Shard, Value, kind_of, packed, shard, term_of

ROWS, MICROBATCH, REPLICA = 96, 12, 4


def entries(bounds: Indices, rows: int = ROWS, name: str = "x") -> Shard:
    return shard(term_of(kind_of((rows,), "f32"), name), (bounds,))


@pytest.mark.parametrize("inner", [1, 5])
def test_a_replica_s_rows_are_told_as_a_part_of_a_microbatch_s(inner: int):
    """Rows 12k + 4 to 12k + 8 of those from 12k to 12k + 12, also where one dim merges another: the same in each microbatch."""

    def arguments(k: int) -> tuple[Shard, Shard]:
        start = k * MICROBATCH
        part = ranges([(start + REPLICA, start + 2 * REPLICA)])
        return entries(part), entries(ranges([(start, start + MICROBATCH)]).scaled(inner), ROWS * inner, "labels")

    nested = Told(frozenset(), frozenset({(0, 0), (1, 0)}), False)
    found = {
        told: [abstracted(arguments(k), told, False).arguments for k in range(8)] for told in (nested, NOTHING_TOLD)
    }
    assert len(set(found[nested])) == len(set(found[NOTHING_TOLD])) == 1
    part, whole = (value.shards[0].indices[0] for value in found[nested][0])
    assert whole.slice(REPLICA * inner, 2 * REPLICA * inner) is part.scaled(inner)
    told = abstracted(arguments(1), Told(frozenset({(1, 0)}), nested.nested, False), False)
    assert not told.arguments[1].shards[0].bases, "what is known is no opaque base of others"


@st.composite
def index_sets(draw: Any) -> Indices:
    block = draw(st.sampled_from([1, 2, 4, 12]))
    starts = draw(st.lists(st.integers(0, ROWS // block - 1), min_size=1, max_size=3, unique=True))
    return concat([ranges([(start * block, (start + 1) * block)]) for start in starts])


places = st.frozensets(st.tuples(st.integers(0, 3), st.just(0)))


@given(st.lists(index_sets(), min_size=4, max_size=4), places, places, places, st.data())
def test_a_result_is_what_the_arguments_say(
    sets: list[Indices], known: frozenset[Any], outer: frozenset[Any], inner: frozenset[Any], data: Any
):
    """Whatever a function is told, and whatever its caller was: a function that gives back its arguments gives what the caller has."""
    own: tuple[Value, ...] = tuple([entries(each, name=f"x{i % 2}") for i, each in enumerate(sets)])
    size = data.draw(st.sampled_from([1, 2, 4]))
    arguments = tuple([packed(own[i : i + size]) for i in range(0, 4, size)]) if size > 1 else own
    caller = abstracted(arguments, Told(known, outer, False), data.draw(st.booleans()))
    callee = abstracted(caller.arguments, Told(known, inner, False), data.draw(st.booleans()))
    of_caller = callee.restored(callee.arguments, Replay(dict(callee.terms), Library()))
    assert of_caller == caller.arguments
    assert caller.restored(of_caller, Replay(dict(caller.terms), Library())) == arguments
