"""Takes a value that many choices need in some state each; gives cost functions over few variables each, with indicator variables beside the
choices: one per state that says whether any use needs the value so. Their number grows with states times uses, never with sets of uses.

A cost that is paid once per state (a conversion) needs an indicator that is at least as large as each use's need: the cheapest assignment
makes it no larger. What is held in memory also falls where a conversion was made before, so there indicators are exact, by a chain of ternary
functions, one use after the other (Allouche et al., "Tractability-preserving transformations of global cost functions", 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from distir.passes.solver.elimination import Network, Table

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class States:
    """The state of a value, a number, for each of a variable's choices."""

    variable: int
    numbers: Array


@dataclass(frozen=True, eq=False)
class LiveUse:
    """A use of a value, as seen from a program point: whether its conversion is before the point; the same or at it; whether it is held
    at the point or later."""

    states: States
    is_earlier: bool
    is_begun: bool
    is_lasting: bool


def table_over(views: Sequence[States], costs: Array) -> Table:
    """A cost function of numbers that choices have, several of which one variable may decide."""
    import numpy as np

    scope = tuple(dict.fromkeys(view.variable for view in views))
    classes: list[Array] = []
    index: list[Array] = [np.empty(0)] * len(views)
    for axis, variable in enumerate(scope):
        own = [i for i, view in enumerate(views) if view.variable == variable]
        rows, of_choices = np.unique(np.stack([views[i].numbers for i in own], 1), axis=0, return_inverse=True)
        classes.append(of_choices.reshape(-1))
        for column, i in enumerate(own):
            index[i] = rows[:, column].reshape([-1 if a == axis else 1 for a in range(len(scope))])
    return Table(scope, tuple(classes), np.broadcast_to(costs[tuple(index)], [c.max() + 1 for c in classes]))


def conversion_tables(network: Network, produced: States, needed: Sequence[States], costs: Array) -> list[Table]:
    """Adds, per state that is needed, an indicator variable. Returns the cost functions that pay `costs[source, target]` once per
    state that any use needs."""
    import numpy as np

    found: list[Table] = []
    for target in np.unique(np.concatenate([use.numbers for use in needed])).tolist():
        made = States(network.variable([0.0, 0.0]), np.arange(2))
        paid = np.stack([np.zeros(len(costs)), costs[:, target]], axis=1)
        found.append(table_over([produced, made], paid))
        implied = np.array([[0.0, 0.0], [inf, 0.0]])
        found += [table_over([_need(use, target), made], implied) for use in needed if (use.numbers == target).any()]
    return found


def live_tables(
    indicators: Indicators,
    produced: States,
    sizes: Array,
    uses: Sequence[LiveUse],
    has_memory: bool,
    is_born: bool,
    returned: States | None = None,
    holder: States | None = None,
    is_same: Array | None = None,
) -> list[Table]:
    """Bytes that a value holds at a point, as a sum of functions: the value as it was produced, if it `has_memory` of its own, and each copy in
    another state from the first use that needs it to the last. What is `returned` lies in another's memory; so does the value itself where `is_same`
    by the states of its `holder` and its own."""
    import numpy as np

    never = States(produced.variable, np.zeros_like(produced.numbers))
    returned = States(produced.variable, np.full_like(produced.numbers, len(sizes))) if returned is None else returned
    begun = [use.states for use in uses if use.is_begun]
    earlier = [use.states for use in uses if use.is_earlier]
    lasting = [use.states for use in uses if use.is_lasting]
    later = [use.states for use in uses if use.is_lasting and not use.is_earlier]
    found: list[Table] = []
    kept: States | None = None
    for state, size in enumerate(sizes.tolist()):
        lasts, starts = indicators.any_of(lasting, state), indicators.any_of(begun, state)
        if lasts is None:
            continue
        source, leaves = _need(produced, state), _need(returned, state)
        if starts is not None and size:
            copy = np.zeros((2, 2, 2, 2))
            copy[0, 1, 1, 0] = size
            found.append(table_over([source, starts, lasts, leaves], copy))
        if has_memory and not is_born:
            needs, before = (indicators.any_of(some, state) or never for some in (later, earlier))
            is_source, has_last, is_needed, was_made = np.indices((2, 2, 2, 2))
            keeps = (is_source & has_last) | (is_needed & ~was_made & 1)
            kept = indicators.either(kept, [source, lasts, needs, before], keeps)
    if has_memory and (is_born or kept is not None):
        kept = States(produced.variable, np.ones_like(produced.numbers)) if kept is None else kept
        holder = never if holder is None else holder
        same = np.zeros((1, len(sizes)), dtype=bool) if is_same is None else is_same
        own = np.zeros((len(sizes), 2, len(same), len(sizes) + 1))
        own[:, 1, :, :] = np.where(same, 0.0, sizes).T[:, :, None]
        own[np.arange(len(sizes)), :, :, np.arange(len(sizes))] = 0.0
        found.append(table_over([produced, kept, holder, returned], own))
    return found


class Indicators:
    """Variables of one network that are 1 if any of some uses needs a state, and 0 otherwise."""

    def __init__(self, network: Network):
        self._network = network
        self._known: dict[tuple[int, tuple[tuple[int, bytes], ...]], States] = {}

    def any_of(self, uses: Sequence[States], state: int) -> States | None:
        """The variable of these uses; None if none of them can need the state. Uses that begin alike share variables."""
        import numpy as np

        known: States | None = None
        key: tuple[tuple[int, bytes], ...] = ()
        for need in (_need(use, state) for use in uses if (use.numbers == state).any()):
            key = (*key, (need.variable, need.numbers.tobytes()))
            if (state, key) not in self._known:
                self._known[state, key] = need if known is None else self.either(known, [need], np.arange(2))
            known = self._known[state, key]
        return known

    def either(self, before: States | None, views: Sequence[States], is_one: Array) -> States:
        """The variable that is 1 if another one is, or if `is_one` says so for what these choices are."""
        import numpy as np

        found = States(self._network.variable([0.0, 0.0]), np.arange(2))
        either = is_one if before is None else np.stack([is_one, np.ones_like(is_one)])
        cost = np.where(either[..., None] == np.arange(2), 0.0, inf)
        self._network.add(table_over([*([] if before is None else [before]), *views, found], cost))
        return found


def _need(use: States, state: int) -> States:
    import numpy as np

    return States(use.variable, (use.numbers == state).astype(np.intp))
