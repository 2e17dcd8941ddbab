"""Exact minima of networks of cost tables: by elimination, and by bounds where tables are kept from being eliminated at once, both
against all assignments."""

from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distir.passes.solver import bounds as bounds_module
from distir.passes.solver.bounds import Bounds, cheapest, minimum
from distir.passes.solver.deadline import Deadline
from distir.passes.solver.elimination import Network, Table
from distir.passes.solver.implicit_tables import ImplicitTable
from distir.passes.solver.shared_values import Indicators, LiveUse, States, conversion_tables, live_tables
from distir.passes.solver.sparse_elimination import Resource, cheapest_within
from distir.passes.solver.sparse_tables import SparseTable

COSTS = st.one_of(st.integers(0, 20).map(float), st.just(inf))


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[list[float]], list[Table]]:
    """Up to five variables of up to four choices, and tables over up to three of them that tell some choices apart."""
    own = draw(st.lists(st.lists(st.integers(0, 9).map(float), min_size=1, max_size=4), min_size=1, max_size=5))
    tables: list[Table] = []
    for _ in range(draw(st.integers(0, 5))):
        scope = tuple(draw(st.permutations(range(len(own))))[: draw(st.integers(1, 3))])
        classes = tuple(np.array([draw(st.integers(0, 2)) for _ in own[v]]) for v in scope)
        costs = np.array(draw(st.lists(COSTS, min_size=3 ** len(scope), max_size=3 ** len(scope))))
        tables.append(Table(scope, classes, costs.reshape((3,) * len(scope))))
    return own, tables


def cost(own: list[list[float]], tables: list[Table], choices: tuple[int, ...]) -> float:
    total = sum(costs[i] for costs, i in zip(own, choices, strict=True))
    for table in tables:
        index = tuple(c[choices[v]] for v, c in zip(table.scope, table.classes, strict=True))
        total += float(table.costs[index])
    return total


def built(own: list[list[float]], tables: list[Table]) -> Network:
    network = Network()
    for costs in own:
        network.variable(costs)
    for table in tables:
        network.add(table)
    return network


@given(networks())
@settings(max_examples=50)
def test_the_minimum_is_that_of_all_assignments(drawn: tuple[list[list[float]], list[Table]]):
    own, tables = drawn
    least = min(cost(own, tables, choices) for choices in product(*(range(len(costs)) for costs in own)))
    for smallest in (1 << 20, 1, 4):
        found = cheapest(built(own, tables), smallest)
        assert least == inf if found is None else cost(own, tables, tuple(found)) == least


@given(networks(), st.integers(0, 4), st.integers(1, 2))
@settings(max_examples=80)
def test_variables_that_are_alike_decide_together(
    drawn: tuple[list[list[float]], list[Table]], which: int, copies: int
):
    """Those whose costs are the same whatever the others are, as the parameters of layers: the minimum stays what it is."""
    own, tables = drawn
    which %= len(own)
    for _ in range(copies):
        copy = len(own)
        own = [*own, own[which]]
        tables = tables + [
            Table(tuple(copy if v == which else v for v in table.scope), table.classes, table.costs)
            for table in tables
            if which in table.scope and max(table.scope) < len(drawn[0])
        ]
    least = min(cost(own, tables, choices) for choices in product(*(range(len(costs)) for costs in own)))
    network = built(own, tables)
    is_free = not any(which in table.scope for table in network.tables)
    network.merge_alike()
    assert len(network.left) <= len(own) - (0 if is_free else copies)
    for smallest in (1 << 20, 4):
        found = cheapest(built(own, tables), smallest)
        assert least == inf if found is None else cost(own, tables, tuple(found)) == least


@given(networks(), st.integers(0, 3))
@settings(max_examples=50)
def test_the_minimum_within_a_bound_is_that_of_all_assignments(
    drawn: tuple[list[list[float]], list[Table]], beyond: int
):
    """After costs were moved too; none is found below the minimum."""
    own, tables = drawn
    least = min(cost(own, tables, choices) for choices in product(*(range(len(costs)) for costs in own)))
    if least == inf:
        return
    for sweeps in (0, 4):
        network = built(own, tables)
        network.eliminate(2)
        if sweeps and network.left:
            bounds = Bounds(network)
            bounds.improve(sweeps)
            bounds.write()
        found = cheapest_within(network, least + beyond, 1 << 20)
        assert found is not None
        assert cost(own, tables, tuple(found)) == least
        assert not network.left or cheapest_within(network, least - 1, 1 << 20) is None


@given(networks(), networks(), st.integers(0, 40), st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=2, max_size=2))
@settings(max_examples=80)
def test_the_minimum_within_resources_is_that_of_all_assignments(
    drawn: tuple[list[list[float]], list[Table]],
    other: tuple[list[list[float]], list[Table]],
    limit: int,
    prices: list[float],
):
    """Two resources that tables of other costs say what is taken of; whatever they are priced at."""
    own, tables = drawn
    taken = [
        [Table(table.scope, table.classes, np.where(np.isinf(table.costs), 20.0, table.costs)) for table in one]
        for one in (tables, [table for table in other[1] if max(table.scope) < len(own) and fits(table, own)])
    ]
    free = [[0.0] * len(costs) for costs in own]
    every = list(product(*(range(len(costs)) for costs in own)))
    fitting = [c for c in every if all(cost(free, of_one, c) <= limit for of_one in taken)]
    least = min((cost(own, tables, choices) for choices in fitting), default=inf)
    network = built(own, tables)
    numbers = [[network.add_limited(table) for table in of_one] for of_one in taken]
    for price, of_one in zip(prices, taken, strict=True):
        for table in of_one:
            network.add(Table(table.scope, table.classes, price * table.costs))
    if min(cost(own, tables, choices) for choices in every) == inf or not network.drop_impossible():
        return
    bounds = Bounds(network)
    bounds.improve(3)
    bounds.write()
    resources = [
        Resource([network.limited[number] for number in of_one], limit, price)
        for price, of_one in zip(prices, numbers, strict=True)
    ]
    most = 1000.0 if least == inf else least + sum(prices) * limit
    found = cheapest_within(network, most, 1 << 20, resources)
    assert least == inf if found is None else cost(own, tables, tuple(found)) == least
    assert found is None or tuple(found) in fitting


def fits(table: Table, own: list[list[float]]) -> bool:
    """Whether a table's classes are of variables with so many choices."""
    return all(len(c) == len(own[v]) for v, c in zip(table.scope, table.classes, strict=True))


@given(networks())
@settings(max_examples=50)
def test_bounds_are_bounds(drawn: tuple[list[list[float]], list[Table]]):
    """Of all assignments, and of those with any one choice."""
    own, tables = drawn
    every = list(product(*(range(len(costs)) for costs in own)))
    if min(cost(own, tables, choices) for choices in every) == inf:
        return
    bounds = Bounds(built(own, tables))
    bounds.improve(6)
    assert bounds.lower <= min(cost(own, tables, choices) for choices in every) + 1e-9
    for v, bound in bounds.with_choice.items():
        for i in range(len(bound)):
            assert bound[i] <= min(cost(own, tables, choices) for choices in every if choices[v] == i) + 1e-9


@st.composite
def values_with_many_uses(draw: st.DrawFn) -> tuple[list[list[float]], list[Table], np.ndarray, list[np.ndarray]]:
    """Variable 0 is the source; what each of its choices takes to make each of four states; the state that each choice of
    each other variable needs. Beside them, tables."""
    own, tables = draw(networks())
    states = st.lists(COSTS, min_size=4, max_size=4)
    opening = np.array([draw(states) for _ in own[0]])
    return own, tables, opening, [np.array([draw(st.integers(0, 3)) for _ in costs]) for costs in own[1:]]


@given(values_with_many_uses())
@settings(max_examples=50)
def test_a_state_that_several_uses_need_is_paid_once(
    drawn: tuple[list[list[float]], list[Table], np.ndarray, list[np.ndarray]],
):
    """Without writing the table down, in its bounds and in the minimum that is found."""
    own, tables, opening, needs = drawn
    network = built(own, tables)
    distinct = [np.unique(need, return_inverse=True) for need in needs]
    classes = (np.arange(len(own[0])), *(found.reshape(-1) for _, found in distinct))
    table = ImplicitTable(
        tuple(range(len(own))), classes, np.zeros(len(own[0])), opening, tuple(need for need, _ in distinct)
    )
    network.add_wide(table)

    def total(choices: tuple[int, ...]) -> float:
        needed = {int(need[i]) for need, i in zip(needs, choices[1:], strict=True)}
        return cost(own, tables, choices) + sum(float(opening[choices[0], state]) for state in needed)

    every = {choices: total(choices) for choices in product(*(range(len(costs)) for costs in own))}
    assert all(network.cost(choices) == found for choices, found in every.items())
    if min(every.values()) < inf:
        bounds = Bounds(network)
        bounds.improve(6)
        assert bounds.lower <= min(every.values()) + 1e-9
        for v, bound in bounds.with_choice.items():
            for i in range(len(bound)):
                assert bound[i] <= min(found for choices, found in every.items() if choices[v] == i) + 1e-9
    for axis in range(len(own)):
        least = [min(table.cost(c) for c in every if c[axis] == i) for i in range(len(own[axis]))]
        np.testing.assert_array_equal(table.least(axis)[classes[axis]], least)
    finite = sorted(set(map(table.cost, every)) - {inf})
    for most in finite[:: max(1, len(finite) // 3)]:
        found = SparseTable.of_wide(table, most, 1 << 20)
        rows = set(zip(*(row.tolist() for row in found.rows), found.costs.tolist(), strict=True))
        assert len(rows) == len(found.costs)
        of = {tuple(int(c[i]) for c, i in zip(classes, choice, strict=True)): table.cost(choice) for choice in every}
        assert rows == {(*row, cost) for row, cost in of.items() if cost <= most}
    if min(every.values()) < inf:
        within = cheapest_within(network.copy(), min(every.values()), 1 << 20)
        assert within is not None
        assert every[tuple(within)] == min(every.values())
    found = cheapest(network, 1)
    assert min(every.values()) == inf if found is None else every[tuple(found)] == min(every.values())


@given(values_with_many_uses())
@settings(max_examples=25)
def test_a_state_that_several_uses_need_is_paid_once_by_its_indicator(
    drawn: tuple[list[list[float]], list[Table], np.ndarray, list[np.ndarray]],
):
    """As functions of one use each: the minimum over indicators is what is paid, for every assignment."""
    own, tables, opening, needs = drawn
    network = built(own, tables)
    uses = [States(v, need) for v, need in enumerate(needs, 1)]
    made = [] if not uses else conversion_tables(network, States(0, np.arange(len(own[0]))), uses, opening)
    for table in made:
        network.add(table)

    def total(choices: tuple[int, ...]) -> float:
        needed = {int(need[i]) for need, i in zip(needs, choices[1:], strict=True)}
        return cost(own, tables, choices) + sum(float(opening[choices[0], state]) for state in needed)

    every = {choices: total(choices) for choices in product(*(range(len(costs)) for costs in own))}
    found = cheapest(network, 1)
    least = min(every.values())
    assert least == inf if found is None else every[tuple(found[: len(own)])] == least


@st.composite
def held_values(draw: st.DrawFn) -> tuple[np.ndarray, list[np.ndarray], list[tuple[bool, bool, bool]], int | None]:
    """The states that a variable's choices produce and others need (of three); whether uses are earlier, begun and lasting; which
    returns the value."""
    states = st.lists(st.integers(0, 2), min_size=1, max_size=3).map(np.array)
    needs = draw(st.lists(states, min_size=1, max_size=4))
    when = st.sampled_from([(True, True, True), (True, True, False), (False, True, True), (False, False, True)])
    returned = draw(st.one_of(st.none(), st.integers(0, len(needs) - 1)))
    return draw(states), needs, draw(st.lists(when, min_size=len(needs), max_size=len(needs))), returned


@given(held_values(), st.booleans(), st.booleans())
@settings(max_examples=30)
def test_what_a_value_holds_is_counted_by_indicators(
    drawn: tuple[np.ndarray, list[np.ndarray], list[tuple[bool, bool, bool]], int | None],
    has_memory: bool,
    is_born: bool,
):
    """The value as produced: until its last use as it is, or its last conversion that was not made before. Copies: from the first use to
    the last. What is returned is elsewhere."""
    produced, needs, when, returned = drawn
    sizes = np.array([8.0, 3.0, 1.0])
    network = Network()
    for numbers in (produced, *needs):
        network.variable([0.0] * len(numbers))
    uses = [LiveUse(States(v, need), *at) for v, (need, at) in enumerate(zip(needs, when, strict=True), 1)]
    leaving = None if returned is None else uses[returned].states
    tables = live_tables(
        Indicators(network), States(0, produced), sizes, uses, has_memory, has_memory and is_born, leaving
    )
    for table in tables:
        network.add(table)
    for choices in product(*(range(len(numbers)) for numbers in (produced, *needs))):
        source = produced[choices[0]]
        needed = [need[i] for need, i in zip(needs, choices[1:], strict=True)]
        made = {n for n, (is_earlier, _, _) in zip(needed, when, strict=True) if is_earlier}
        begun = {n for n, (_, is_begun, _) in zip(needed, when, strict=True) if is_begun}
        lasting = {n for n, (_, _, is_lasting) in zip(needed, when, strict=True) if is_lasting}
        held = (begun & lasting) - {source}
        later = {n for n, at in zip(needed, when, strict=True) if at[2] and not at[0]}
        if has_memory and (is_born or source in lasting or later - made):
            held.add(source)
        if returned is not None:
            held.discard(needed[returned])
        chosen = network.copy()
        chosen.keep({v: np.array([i]) for v, i in enumerate(choices)})
        found = cheapest(chosen)
        assert found is not None
        assert network.cost(found) == sum(sizes[n] for n in held)


def test_choices_that_are_in_no_row():
    """Of class -1: they cost infinitely much, and leave no row."""
    of_some = SparseTable.made((0,), (np.array([0, -1, 1]),), (np.array([0, 1], np.int32),), np.array([3.0, 4.0]), 0)
    assert list(of_some.least[0]) == [3.0, inf, 4.0]
    assert len(of_some.among({0: np.array([False, True, False])}).costs) == 0
    of_none = SparseTable.made((0,), (np.array([-1, -1]),), (np.array([], np.int32),), np.array([]), 2)
    assert list(of_none.least[0]) == [inf, inf]
    assert len(of_none.among({0: np.array([True, True])}).costs) == 0


def test_equal_bounds_do_not_keep_a_dive_from_ending(monkeypatch: pytest.MonkeyPatch):
    """Five variables of which each pair should differ: every choice has the same bound."""
    monkeypatch.setattr(bounds_module, "TRIED_TABLES", 1)
    pairs = [(a, b) for b in range(5) for a in range(b)]
    tables = [Table(pair, (np.arange(3),) * 2, np.eye(3)) for pair in pairs]
    found = minimum(built([[0.0] * 3] * 5, tables), Deadline.after(20.0), 1)
    assert found.is_proven
    assert found.choices is not None
    assert cost([[0.0] * 3] * 5, tables, tuple(found.choices)) == 2.0
