"""The framework's own function, beside the program that was imported from it. In go a program and that function; out
come the function again, and comparisons of both (`distir verify --against-eager`).

Like weights it is beside the program, never in it: a table with weak keys holds it, in memory only."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import SSAValue

from distir.dialects.errors import DistirError
from distir.interpreters.comparison import Comparison, compare, moves_of, tolerance_of, worst
from distir.interpreters.entry import arguments_of, entry_function, results_of
from distir.interpreters.equivalence import Verification, are_numbers, drawings
from distir.interpreters.global_arrays import joined
from distir.interpreters.inputs import between_zero_and_one
from distir.interpreters.reference import run, run_pieces
from distir.interpreters.weights import weights_of
from distir.interpreters.work import work_of

Array = np.ndarray[Any, Any]

INPUTS = ("input", "label", "seed", None)
MEMORY = ("state", "buffer", "seed")
"""Of what a program remembers, and its framework has elsewhere (a count of draws, a scheduler's step): not compared."""

Steps = Callable[[Mapping[str, Array], Sequence[Mapping[str, Array]]], list[dict[str, Array]]]
"""Steps of the framework, one after the other: from what is remembered before the first (parameters, state, buffers) and the
inputs of each, by name, to the results of each, by name. What a step remembers is what the next one starts from. State before
the first step is the framework's own."""

Again = Callable[[], ModuleOp]
"""Imports the same once more."""


@dataclass(frozen=True)
class _Origin:
    steps: Steps
    examples: Mapping[str, Array]
    again: Again | None


_attached: WeakKeyDictionary[ModuleOp, _Origin] = WeakKeyDictionary()


def attach_eager(
    module: ModuleOp, steps: Steps, examples: Mapping[str, Array] | None = None, again: Again | None = None
) -> None:
    """Say what this program was imported from. Of integer inputs there are examples: which numbers are valid, the framework's
    user knows."""
    _attached[module] = _Origin(steps, examples or {}, again)


def change_eager(module: ModuleOp, change: Callable[[Steps], Steps]) -> None:
    """Changes the steps of what a program was imported from, if that is known."""
    if (origin := _attached.get(module)) is not None:
        _attached[module] = replace(origin, steps=change(origin.steps))


def eager_of(module: ModuleOp) -> Steps | None:
    """What the program was imported from; None if nobody said so."""
    return None if (origin := _attached.get(module)) is None else origin.steps


def copied(module: ModuleOp, values: dict[SSAValue, SSAValue] | None = None) -> ModuleOp:
    """A copy of a program, imported from what this one was imported from; `values` gets its values, by those of the program."""
    found = module.clone(values)
    if module in _attached:
        _attached[found] = _attached[module]
    return found


STEPS = 3

CHECK_SECONDS = 10.0
"""What running a program may take, as estimated, for an import to compare it."""
_OPERATION_SECONDS, _FLOP_SECONDS, _BYTE_SECONDS = 5e-4, 1e-9, 1e-9
"""Of a slow core: to call an operation, and for what it does."""


def check_imported(module: ModuleOp) -> str:
    """Compares two steps of a program that was imported with two of its framework, from the model's own values (drawn ones, if it has none),
    if that is cheap at the model's own sizes; if not, imports it once more, since what a step leaves in Python shows in the next one. Says what
    was compared, or why nothing was. Raises DistirError where they differ."""
    if eager_of(module) is None:
        return ""
    reason, advice = _reason_not_to_run(module), ": distir verify --against-eager does it, best at smaller sizes"
    found = None
    if reason is None:
        try:
            found = verify_against_eager(module, steps=2, drawn=False)
        except DistirError as error:
            reason, advice = str(error), ""
    if found is None:
        _import_again(module)
        return f"not compared with the framework's own step: {reason}{advice}"
    if wrong := [each for each in found.comparisons if not each.holds and not each.undecided]:
        says = "; ".join(f"{each.name}: {each.says}" for each in wrong[:3])
        raise DistirError(
            f"the program is not what the framework does: {len(wrong)} of {len(found.comparisons)} results of two steps differ ({says}); "
            "--no-check imports it as it is"
        )
    compared = sum(each.holds for each in found.comparisons)
    if left := [each.name for each in found.comparisons if not each.holds]:
        others = f" and {len(left) - 1} more" if len(left) > 1 else ""
        return (
            f"two steps are the framework's own: {compared} results compared; '{left[0]}'{others} have values that are no numbers there "
            "either, which were not compared"
        )
    return f"two steps are the framework's own: {compared} results compared"


def _import_again(module: ModuleOp) -> None:
    """Raises DistirError if a second import is another program."""
    if (again := _attached[module].again) is None:
        return
    try:
        second = again()
        same = [*map(str, module.ops)] == [*map(str, second.ops)]
    except DistirError as error:
        raise DistirError(f"a second import fails, so the first one left something in Python: {error}") from error
    if not same:
        raise DistirError(
            "a second import gives another program: the step changes something in Python (a counter, an iterator, a cache) that its next run "
            "reads, and a program does not remember; --no-check imports it as it is"
        )
    ours, theirs = weights_of(module), weights_of(second)
    if other := next((name for name in ours if not _are_equal(ours[name], theirs[name])), None):
        raise DistirError(
            f"a second import has other values of {other}: the step changes something in Python that its next run reads; --no-check imports it "
            "as it is"
        )


def _are_equal(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a is b or (a.ctypes.data == b.ctypes.data and a.strides == b.strides) or a.tobytes() == b.tobytes()


def _reason_not_to_run(module: ModuleOp) -> str | None:
    """Why running the program once is not cheap; None if it is."""
    seconds = 0.0
    try:
        for op in module.walk():
            if isinstance(op, ModuleOp | FuncOp | ReturnOp | CallOp):
                continue
            work = work_of(op)
            seconds += _OPERATION_SECONDS + work.flops * _FLOP_SECONDS + work.bytes * _BYTE_SECONDS
            if seconds > CHECK_SECONDS:
                return f"that would take more than {CHECK_SECONDS:.0f} s"
    except DistirError:
        return "its shapes are open"
    return None


def verify_against_eager(
    module: ModuleOp,
    program: ModuleOp | None = None,
    steps: int = STEPS,
    tolerance: float | None = None,
    drawn: bool = True,
) -> Verification:
    """Compares some steps of the framework with the program that was imported from it (or with another one of its), from the
    model's own values and from drawn ones (if `drawn`, or it has none), on inputs that are drawn for each step, in the program's own types.
    Where the framework computes no numbers from drawn values, they are drawn near the model's own, and inputs from (0, 1).

    Each step of the program starts from what the framework remembers, so that a difference is of that step. Raises DistirError
    for a program that was not imported in this process from something that runs."""
    if (eager := eager_of(module)) is None:
        raise DistirError(
            "there is nothing to compare with: expected MODULE:FUNCTION that makes a step of PyTorch or JAX"
        )
    program = module if program is None else program
    ports = {port.name: port for port in arguments_of(entry_function(module))}
    names = [port.name for port in results_of(entry_function(module))]
    own = {name: np.asarray(value) for name, value in weights_of(module).items() if name in ports}
    starts: dict[str, list[Mapping[str, Array]]] = {"the model's own values": [own]} if own else {}
    if drawn or not own:
        others = {name: value for name, value in own.items() if ports[name].role != "parameter"}
        starts["drawn parameters"] = [others, *([] if (near := _near(module, own)) is None else [near])]
    compared: list[list[Comparison]] = []
    for says, tried in starts.items():
        before = 0 if says != "drawn parameters" else 1  # state may begin from parameters, and these are others
        runs = [
            partial(_eager_steps, module, eager, kept, steps + before, is_between)
            for is_between in (False, True)
            for kept in tried
        ]
        held, batches, found = _first_of_numbers(runs)
        for number, (batch, results) in enumerate(zip(batches, found, strict=True)):
            held |= batch
            got = run_pieces(program, held)
            expected = {name: results[name] for name in names if name in results}
            memory = {n for n in got if n not in expected and n in ports and ports[n].role in MEMORY}
            if number >= before:
                counted = {name: pieces for name, pieces in got.items() if name not in memory}
                moves = _moves(module, dict(held))
                found_here = compare(expected, counted, tolerance or tolerance_of(module), held, moves)
                compared.append([*found_here, *_not_returned(results, {*names, *got}, held)])
            held |= {name: joined(name, got[name]) for name in memory}
            held |= {name: value for name, value in results.items() if name in ports}
    return Verification(worst(compared), [f"{steps} steps from {each}" for each in starts], 0)


def _not_returned(results: Mapping[str, Array], returned: set[str], held: Mapping[str, Array]) -> list[Comparison]:
    """What the framework changes and the program keeps as it is."""
    kept = [name for name in results if name in held and name not in returned]
    changed = [
        name for name in kept if not np.array_equal(results[name], held[name], equal_nan=held[name].dtype.kind in "fc")
    ]
    return [Comparison(name, False, "the framework changes it, the program does not") for name in changed]


def _moves(module: ModuleOp, values: dict[str, Array]) -> Iterator[Mapping[str, Array]]:
    outputs, noise = {name: np.asarray(value) for name, value in run(module, values).items()}, np.random.default_rng(0)
    yield from moves_of(lambda near: run(module, near, noise=noise), values, outputs, None)


_Run = tuple[dict[str, Array], list[dict[str, Array]], list[dict[str, Array]]]
"""The values before the first step, the inputs of each, and its results."""


def _first_of_numbers(runs: Sequence[Callable[[], _Run]]) -> _Run:
    """The first of the runs that computes numbers; if none does, the first that ends. Raises what the first raised if none ends."""
    ended: list[_Run] = []
    errors: list[DistirError] = []
    for run_it in runs:
        try:
            ended.append(run_it())
        except DistirError as error:
            errors.append(error)
            continue
        if all(are_numbers(results) for results in ended[-1][2]):
            return ended[-1]
    if not ended:
        raise errors[0]
    return ended[0]


def _near(module: ModuleOp, own: Mapping[str, Array]) -> Mapping[str, Array] | None:
    """Values near the model's own, if it has any."""
    near = drawings(module, count=1)[0].candidates[-1]()
    return None if near is None else {name: near[name] for name in own}


def _eager_steps(module: ModuleOp, eager: Steps, kept: Mapping[str, Array], steps: int, is_between: bool) -> _Run:
    roles = {port.name: port.role for port in arguments_of(entry_function(module))}
    values, *drawn = (_drawn(module, number) for number in range(steps + 1))
    if is_between:
        drawn = [between_zero_and_one(module, each) for each in drawn]
    batches = [{name: value for name, value in batch.items() if roles[name] in INPUTS} for batch in drawn]
    values |= kept
    try:
        return values, batches, eager(values, batches)
    except DistirError:
        raise
    except Exception as error:  # the user's own code
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        raise DistirError(f"the step itself failed: {type(error).__name__}: {reason}") from error


def _drawn(module: ModuleOp, seed: int) -> dict[str, Array]:
    """Values of all arguments; integers are those of the examples, in another order where they are in no order (offsets are)."""
    random = np.random.default_rng(seed)
    names = {port.name for port in arguments_of(entry_function(module))}
    examples = {
        n: a if _is_ordered(a) else random.permutation(a) for n, a in _attached[module].examples.items() if n in names
    }
    values = drawings(module, examples, count=1, seed=seed)[0].candidates[0]()
    assert values is not None
    return values


def _is_ordered(array: Array) -> bool:
    """One number, or numbers that never fall or never rise."""
    if array.ndim != 1:
        return array.ndim == 0
    rises = array[1:] >= array[:-1]
    falls = array[1:] <= array[:-1]
    return bool(rises.all() or falls.all())
