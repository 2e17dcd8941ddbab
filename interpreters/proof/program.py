"""Walks the distributed program over shards of terms. In: its module, the library of the sequential program, and the
values of the arguments. Out: the values of the results, where every operation is shown to be a shard of one of the
sequential program.

A function is walked once for equal arguments, whatever rows they have (`calls`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, cast

from xdsl.dialects import func
from xdsl.dialects.builtin import TensorType, UnrealizedConversionCastOp
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import Operation
from xdsl.traits import Pure

from distir.dialects import rank
from distir.dialects.attention import CombineOp
from distir.dialects.dist import (
    AccumulateOp,
    BatchRowsOp,
    CallOp,
    CastOp,
    ConcatOp,
    InsertOp,
    MicrobatchesOp,
    MoveOp,
    PackOp,
    PutRowsOp,
    ScaleOp,
    SliceOp,
    TakeRowsOp,
    UnpackOp,
    ZerosOp,
)
from distir.dialects.dist.attributes import placement
from distir.dialects.dist.positions import InsideOp, LocalIndexOp
from distir.dialects.errors import DistirError
from distir.dialects.plugins import implementations
from distir.interpreters.mixed import abstract, mixed_operator
from distir.interpreters.proof import shards, values
from distir.interpreters.proof.calls import NOTHING_TOLD, NeedsToKnow, Replay, Told, abstracted
from distir.interpreters.proof.constants import stated, zeros_of
from distir.interpreters.proof.indices import Base, Mismatch
from distir.interpreters.proof.lookups import looked_up, masked, without_lookups
from distir.interpreters.proof.matching import Application, Lookup, Outcome
from distir.interpreters.proof.parts import combined
from distir.interpreters.proof.templates import Form, Template, fits, likeness
from distir.interpreters.proof.terms import (
    Library,
    application,
    is_floating,
    is_number,
    scaled_by,
    with_factors,
)
from distir.interpreters.proof.values import (
    Failure,
    Number,
    Packed,
    Part,
    Positions,
    Shard,
    Term,
    Unknown,
    Value,
    constant,
    expect_shards,
    hole,
    is_hole,
    is_zero,
    packed,
    scaled,
    shard,
    whole,
    zeros,
)
from distir.interpreters.proof.weights import Symbol
from distir.interpreters.reference_dist import CommunicationFunctions, extents
from distir.interpreters.reference_rank import RankFunctions
from distir.interpreters.walk import Enter, Suspended, Walk, values_read


class Walked(NamedTuple):
    """What a function gives for some arguments, which terms are taken to be equal for it, and whose rules it rests on."""

    results: Sequence[Value]
    assumed: Sequence[tuple[Term, Term | None]]
    relied: Collection[Template]


@register_impls
class LocalShards(InterpreterFunctions):
    """Operations on one device."""

    @impl(MoveOp)
    def move(self, interpreter: Interpreter, op: MoveOp, args: PythonValues) -> PythonValues:
        return args

    @impl(CastOp)
    def cast(self, interpreter: Interpreter, op: CastOp, args: PythonValues) -> PythonValues:
        return args

    @impl(SliceOp)
    def slice(self, interpreter: Interpreter, op: SliceOp, args: PythonValues) -> PythonValues:
        return (shards.trimmed(args[0], op.ranges),)

    @impl(ConcatOp)
    def concat(self, interpreter: Interpreter, op: ConcatOp, args: PythonValues) -> PythonValues:
        return (shards.concatenate(args, op.dim.value.data),)

    @impl(TakeRowsOp)
    def take_rows(self, interpreter: Interpreter, op: TakeRowsOp, args: PythonValues) -> PythonValues:
        value, (number,) = args[0], args[1:]
        dim, (rows,) = op.dim.value.data, extents(op.result_types, op.dim.value.data)
        return (shards.taken(expect_shards([value])[0], dim, number.value * rows, (number.value + 1) * rows),)

    @impl(BatchRowsOp)
    def batch_rows(self, interpreter: Interpreter, op: BatchRowsOp, args: PythonValues) -> PythonValues:
        return args

    @impl(PutRowsOp)
    def put_rows(self, interpreter: Interpreter, op: PutRowsOp, args: PythonValues) -> PythonValues:
        whole, rows, number = args
        dim = op.dim.value.data
        for start, stop, at in op.moves(number.value):
            whole = shards.inserted(whole, shards.taken(expect_shards([rows])[0], dim, start, stop), dim, at)
        return (whole,)

    @impl(InsertOp)
    def insert(self, interpreter: Interpreter, op: InsertOp, args: PythonValues) -> PythonValues:
        return (shards.inserted(args[0], args[1], op.dim.value.data, op.start.value.data),)

    @impl(AccumulateOp)
    def accumulate(self, interpreter: Interpreter, op: AccumulateOp, args: PythonValues) -> PythonValues:
        return (shards.reduce(op.reduction.data, args),)

    @impl(CombineOp)
    def combine(self, interpreter: Interpreter, op: CombineOp, args: PythonValues) -> PythonValues:
        if not any(isinstance(value, Part) for value in args):
            return cast(Prover, interpreter).operator(op, args)
        return combined(args)

    @impl(ZerosOp)
    def zeros(self, interpreter: Interpreter, op: ZerosOp, args: PythonValues) -> PythonValues:
        assert isinstance(interpreter, Prover)
        return (zeros(interpreter.library.kinds(op.output.type)),)

    @impl(ScaleOp)
    def scale(self, interpreter: Interpreter, op: ScaleOp, args: PythonValues) -> PythonValues:
        return (scaled(expect_shards(args)[0], Fraction(*op.factor.data)),)

    @impl(LocalIndexOp)
    def local_index(self, interpreter: Interpreter, op: LocalIndexOp, args: PythonValues) -> PythonValues:
        ignored = None if op.ignored is None else op.ignored.value.data
        return (shards.local_index(args[0], Positions(*op.range), ignored),)

    @impl(InsideOp)
    def inside(self, interpreter: Interpreter, op: InsideOp, args: PythonValues) -> PythonValues:
        dims = tuple(int(d) for d in op.dims.get_values())
        return (shards.inside(args[0], args[1], args[2] if len(args) > 2 else None, Positions(*op.range), dims),)

    @impl(PackOp)
    def pack(self, interpreter: Interpreter, op: PackOp, args: PythonValues) -> PythonValues:
        return (packed(args),)

    @impl(UnpackOp)
    def unpack(self, interpreter: Interpreter, op: UnpackOp, args: PythonValues) -> PythonValues:
        return args[0].elements

    @impl(UnrealizedConversionCastOp)
    def bundle(self, interpreter: Interpreter, op: UnrealizedConversionCastOp, args: PythonValues) -> PythonValues:
        if len(op.results) == 1:
            return (packed(args),)
        return args[0].elements if isinstance(args[0], Packed) else args * len(op.results)

    @impl(rank.WaitOp)
    def wait(self, interpreter: Interpreter, op: rank.WaitOp, args: PythonValues) -> PythonValues:
        return args


@register_impls
class CallsOfShards(InterpreterFunctions):
    """Calls: a function that communicates with other ranks is entered, others are walked once."""

    @impl(CallOp)
    def call(self, interpreter: Interpreter, op: CallOp, args: PythonValues) -> PythonValues:
        assert isinstance(interpreter, Prover)
        return interpreter.results_of(op.callee_name, args)

    @impl(func.CallOp)
    def call_in_place(self, interpreter: Interpreter, op: func.CallOp, args: PythonValues) -> PythonValues:
        assert isinstance(interpreter, Prover)
        name = op.callee.string_value()
        return (Enter(name, args),) if interpreter.is_rank else interpreter.results_of(name, args)

    @impl(MicrobatchesOp)
    def microbatches(self, interpreter: Interpreter, op: MicrobatchesOp, args: PythonValues) -> PythonValues:
        assert isinstance(interpreter, Prover)
        same, name = args[: len(op.same)], op.callee.string_value()
        carried = args[len(same) :]
        for number in range(op.times):
            counters = (Number(number),) * (len(interpreter.function(name).args) - len(args))
            carried = interpreter.results_of(name, (*same, *carried, *counters))
        return carried


TRANSPARENT = (CallOp, func.CallOp, MicrobatchesOp, PackOp, UnpackOp, UnrealizedConversionCastOp, MoveOp)
"""What passes values on, of which nothing may be known."""


@dataclass
class ShardCommunication(RankFunctions):
    """Communication of one rank, over shards."""

    def _group(self, op: Any, args: PythonValues, kind: Any, happen: Any) -> PythonValues:
        return super()._group(op, args, kind, lambda sides: _met(op, sides, happen))


def _met(op: Operation, sides: Sequence[Any], happen: Any) -> Sequence[PythonValues]:
    """The results of a meeting; unknown ones where an operand is, or where they do not combine."""
    unknown = next((v for side in sides for v in side.values if isinstance(v, Unknown)), None)
    try:
        if unknown is None:
            return happen(sides)
    except Mismatch as mismatch:
        unknown = Unknown(Failure(described(op), mismatch.reason))
    assert unknown is not None
    return [(unknown,) * len(side.op.results) for side in sides]


@dataclass
class Prover(Walk):
    """The walk over shards, and what it remembers."""

    library: Library = field(default_factory=Library)
    is_rank: bool = False
    hides_terms: bool = True
    """Whether a function is proven for all values of its arguments, where that can be."""
    relied: set[Template] = field(default_factory=set[Template])
    """Templates whose rule was used, in the function that is walked or by what it calls."""
    failures: list[Failure] = field(default_factory=list[Failure])
    refused: list[Failure] = field(default_factory=list[Failure])
    """Operators that do not run on operands of their types, whether or not anything uses their results."""
    walked: int = 0
    """Operations looked at."""
    has_guessed: bool = False
    """Whether one of several operations of the sequential program was taken while the terms that tell them apart were hidden."""
    _results: dict[Any, Walked] = field(default_factory=dict[Any, "Walked"])
    _needs: dict[Any, NeedsToKnow] = field(default_factory=dict[Any, "NeedsToKnow"])
    """What a function must be told, where it was told no more than this of its arguments."""
    _last: dict[str, Told] = field(default_factory=dict[str, "Told"])
    """What each function was told when it was last called: mostly the next call needs the same."""
    _replays: dict[tuple[Term, ...], Replay] = field(default_factory=dict[Any, "Replay"])
    """Terms of the same arguments are replayed once."""
    _matches: dict[Any, list[Fitting] | Mismatch] = field(default_factory=dict[Any, Any])

    def __post_init__(self) -> None:
        super().__post_init__()
        communication = CommunicationFunctions()
        communication.arrays = shards
        self.register([communication, LocalShards(), CallsOfShards(), *implementations("proof")])

    def run(self, op: Operation, operands: PythonValues) -> PythonValues:
        self.walked += 1
        known = self._impls._impl_dict.get(type(op))  # pyright: ignore[reportPrivateUsage]
        if not isinstance(op, TRANSPARENT):
            for value in operands:
                if isinstance(value, Unknown):
                    return (value,) * len(op.results)
        if isinstance(op, UnpackOp) and not isinstance(operands[0], Packed):
            return (operands[0],) * len(op.results)
        try:
            if known is None:
                return self.operator(op, operands)
            functions, implementation = known
            results = implementation(functions, self, op, operands).values
            if not (len(results) == 1 and isinstance(results[0], Suspended)) and not isinstance(op, TRANSPARENT):
                self._check_shapes(op, results)
            return results
        except Mismatch as mismatch:
            needed = mismatch.bases or _opaque(operands)
            if needed or _is_open(operands):
                raise NeedsToKnow(needed, bool(mismatch.bases)) from None
            return self.fail(op, mismatch.reason)

    def fail(self, op: Operation, reason: str) -> PythonValues:
        """Unknown results, because of this operation."""
        failure = Failure(described(op), reason)
        self.failures.append(failure)
        try:
            if type(op) not in self._impls._impl_dict:  # pyright: ignore[reportPrivateUsage]
                mixed_operator(op, [abstract(value.type) for value in values_read(op)])
        except DistirError as error:
            self.refused.append(Failure(described(op), str(error)))
        return (Unknown(failure),) * len(op.results)

    def _check_shapes(self, op: Operation, results: PythonValues) -> None:
        for result, value in zip(op.results, results, strict=True):
            if isinstance(value, Shard) and isinstance(result.type, TensorType):
                shape = self.library.kinds(result.type).shape
                if shape != tuple([i.size for i in value.indices]):
                    raise Mismatch(f"{value} has the type {result.type}")

    # --- calls ---

    def results_of(self, name: str, arguments: PythonValues) -> PythonValues:
        """The results of a function, walked once for all arguments that differ only in what it does not need to know."""
        told = self._last.get(name, NOTHING_TOLD)
        is_new = told == NOTHING_TOLD
        while True:
            abstraction = abstracted(arguments, told, self.hides_terms and not told.terms)
            key = (name, abstraction.arguments)
            walked, need = self._results.get(key), self._needs.get(key)
            if walked is None and not is_new:
                told, is_new = NOTHING_TOLD, True  # these arguments may need less than the last ones
                continue
            if walked is None and need is None:
                try:
                    walked = self._walked(key)
                except NeedsToKnow as raised:
                    need = self._needs[key] = NeedsToKnow(raised.needed, raised.is_named)
            if walked is None:
                assert need is not None
                places = abstraction.places_of(need.needed) - told.places
                if need.is_named and len(need.needed) > 1 and not places <= told.nested:
                    told = told._replace(nested=told.nested | places)
                elif places:
                    told = told._replace(places=told.places | places)
                elif abstraction.terms and not need.is_named:
                    told = told._replace(terms=True)
                else:
                    raise need
                continue
            replay = self._replays.setdefault(
                tuple(abstraction.terms.values()), Replay(abstraction.terms, self.library)
            )
            if self._are_equal(walked.assumed, replay):
                self._last[name] = told
                self.relied.update(walked.relied)
                return abstraction.restored(walked.results, replay)
            if not abstraction.terms:
                raise NeedsToKnow()
            told = told._replace(terms=True)

    def _walked(self, key: tuple[str, PythonValues]) -> Walked:
        """What a function gives for these arguments."""
        of_caller, by_caller = [*values.assumed], self.relied
        values.assumed.clear()
        self.relied = set()
        try:
            results = self.call(*key)
            found = self._results[key] = Walked(results, tuple(dict.fromkeys(values.assumed)), self.relied)
        finally:
            values.assumed[:], self.relied = of_caller, by_caller
        return found

    def _are_equal(self, pairs: Sequence[tuple[Term, Term | None]], replay: Replay) -> bool:
        """Whether what was assumed of terms of a function is so for the arguments of a call; its caller may have to assume it."""
        for first, second in pairs:
            a, b = [each and (replay.of(each) if replay.terms else each) for each in (first, second)]
            assert a is not None
            if a is b:
                continue
            if a.is_open or (b is not None and b.is_open):
                values.assumed.append((a, b))
            elif b is not None or not self.library.has(a):
                return False
        return True

    def _take_as_finite(self, operands: Sequence[Shard]) -> None:
        """What zeros are multiplied by must be values of the sequential program: of others nobody knows that they are numbers."""
        for value in operands:
            if value.is_zero or value.term.array is not None:
                continue
            if value.term.is_open:
                values.assumed.append((value.term, None))
            elif not self.library.has(value.term):
                raise Mismatch(f"zeros are multiplied by what the sequential program does not compute: {value}")

    # --- operators ---

    def operator(self, op: Operation, operands: PythonValues) -> PythonValues:
        """What the results of an operation are, of which some operation of the sequential program it must be a shard."""
        form = self.library.forms(op)
        values, lookup = without_lookups(operands)
        if lookup is None and (constants := self._constants(op, values)) is not None:
            return constants
        key = (
            form,
            tuple(
                [
                    (v.term if v.term.plain.array is not None else v.term.kind, v.indices, v.addend, v.is_zero)
                    for v in values
                ]
            ),
            tuple([values.index(v) for v in values]),
            lookup,
        )
        if key not in self._matches:
            try:
                self._matches[key] = self._matched(op, form, values, lookup)
            except Mismatch as mismatch:
                self._matches[key] = mismatch
        matches = self._matches[key]
        scale = None if lookup is not None else self._scale(form, values)
        if isinstance(matches, Mismatch):
            if scale is None:
                raise matches
            return scale
        found = [
            (*m, application(m[0], self._operand_terms(m[0], values), m[0].results, self.library)) for m in matches
        ]
        if any(term.is_open for *_, terms in found for term in terms):
            chosen = _most_alike(found, values)
            self.has_guessed |= len(found) > 1
            if scale is not None:
                ((own,), (by_scale,)) = chosen[-1], scale
                if chosen[1][0][1] is not None or by_scale.addend is not None:
                    raise NeedsToKnow()  # it may scale an addend that is not known
                if own is not by_scale.term:
                    own.otherwise = own.otherwise or by_scale.term
        else:
            known = next((f for f in found if all(term.plain.is_sequential for term in f[-1])), None)
            chosen = known or max(found, key=lambda f: _holes(f[-1]))
        template, outcomes, mask, by_rule, terms = chosen
        if by_rule:
            self.relied.add(template)
        if scale is not None and not any(t.is_open for t in terms) and not all(map(self.library.has, terms)):
            return scale
        for term in terms:
            if not term.origin and not term.is_sequential:
                term.origin = described(op)
        if any(addend is not None and addend.is_nothing for _, addend in outcomes):
            self._take_as_finite(values)
        results: list[Shard] = []
        for term, (indices, addend), local in zip(terms, outcomes, form.results, strict=True):
            results.append(zeros(local) if addend is not None and addend.is_nothing else shard(term, indices, addend))
        if template.whole is not None:
            return tuple(map(Part, results))
        return tuple(results) if mask is None else tuple([looked_up(r, operands, mask) for r in results])

    def _operand_terms(self, template: Template, values: Sequence[Shard]) -> list[Term]:
        found: list[Term] = []
        for i, (value, kind, term) in enumerate(zip(values, template.kinds, template.constants, strict=True)):
            is_hole = value.is_zero and not template.is_nothing(i)
            own = value.term if term is None else with_factors(term, value.term.factors)
            found.append(hole(kind) if is_hole else own)
        return found

    def _constants(self, op: Operation, values: Sequence[Shard]) -> PythonValues | None:
        """The results of an operation on constants; on zeros and constants if they are zeros."""
        if any((v.term.array is None or v.addend is not None) and not v.is_zero for v in values):
            return None
        terms: list[Term] = []
        for value, local in zip(values, op.operands, strict=False):
            array = zeros_of(local.type) if value.is_zero else None if value.is_whole else stated(value)
            terms.append(value.term if array is None else constant(array, self.library.kinds(local.type)))
        if (found := self.library.evaluated(op, terms)) is None:
            return None
        if not any(v.is_zero for v in values):
            return tuple([whole(term) for term in found])
        return tuple([zeros(term.kind) for term in found]) if all(map(is_zero, found)) else None

    def _scale(self, form: Form, values: Sequence[Shard]) -> PythonValues | None:
        """The result of an operation that multiplies a value by a number."""
        if len(values) != 2 or len(form.results) != 1:
            return None
        key = form.name, tuple(sorted(form.properties.items(), key=lambda e: e[0]))
        value, by = values
        if not self.library.scales.get(key) or not is_number(by.term.kind) or by.term.array is not None or by.is_zero:
            return None
        if (
            not is_floating(value.term.kind)
            or not by.is_whole
            or form.results[0].shape != tuple([i.size for i in value.indices])
        ):
            return None
        if form.results[0].element != value.term.kind.element:
            return None
        if value.is_zero:
            return (value,)
        return (shard(scaled_by(value.term, key, by.term), value.indices, value.addend),)

    def _matched(self, op: Operation, form: Form, values: Sequence[Shard], lookup: Lookup | None) -> list[Fitting]:
        """All templates of which the operation is a shard."""
        templates = self.library.templates.get(form.name, [])
        if not templates and not op.has_trait(Pure):
            raise Mismatch("the operation has no trait Pure, so nothing is known of what it gives")
        if not templates:
            raise Mismatch("the sequential program has no such operation")
        templates = [template for template in templates if fits(template, values)] or templates
        found: list[Fitting] = []
        reasons: list[Mismatch] = []
        for template in templates:
            try:
                application = Application(template, form, values, lookup)
                outcomes = application.solve()
                by_rule = bool(application.cut or application.steps) or any(
                    v.addend is not None or v.is_zero for v in values
                )
                found.append((template, outcomes, masked(application), by_rule))
            except Mismatch as mismatch:
                reasons.append(mismatch)
        if found:
            return found
        closest = max(range(len(reasons)), key=lambda i: likeness(form, values, templates[i]))
        raise Mismatch(reasons[closest].reason, [base for reason in reasons for base in reason.bases])


Fitting = tuple[Template, list[Outcome], "Lookup | None", bool]
"""A template of which an operation is a shard, what its results are, what was done for a lookup, and whether that is so by the template's rule."""

Match = tuple[Template, list[Outcome], "Lookup | None", bool, list[Term]]


def _most_alike(found: Sequence[Match], values: Sequence[Shard]) -> Match:
    """Of several templates of which an operation on unknown values is a shard, the one that has constants where it has, and the same
    value where it has."""
    constants = [v.term.plain.array is not None for v in values]
    alike = tuple([values.index(v) for v in values])
    fitting = [f for f in found if [c is not None for c in f[0].constants] == constants and f[0].alike == alike]
    if len({tuple(f[-1]) for f in found}) > 1 and len({tuple(f[-1]) for f in fitting}) != 1:
        raise NeedsToKnow()  # of several operations of the sequential program it may be a shard of each
    return (fitting or found)[0]


def _holes(terms: Sequence[Term]) -> int:
    """How many operands may be anything: zeros on a device, of an addend or of a constant of zeros, are taken for the former."""
    return sum(is_hole(each) for term in terms for each in term.operands)


def _is_open(operands: PythonValues) -> bool:
    """Whether which values they are is not known."""
    return any(each.term.is_open for value in operands for each in value.shards)


def _opaque(operands: PythonValues) -> frozenset[Base | Symbol]:
    """The index sets and weights of operands that are not known."""
    shards_ = [each for value in operands for each in value.shards]
    return frozenset[Base | Symbol]().union(*[each.bases | each.symbols for each in shards_])


def described(op: Operation) -> str:
    """An operation for readers: its name, its result, where it is."""
    parent = op.parent_op()
    where = f" in @{parent.sym_name.data}" if isinstance(parent, func.FuncOp) else ""
    on = next((p for v in (*op.results, *op.operands) if (p := placement(v.type)) is not None), None)
    device = "" if on is None else f" on device {on.device}"
    names = ", ".join(f"%{result.name_hint}" for result in op.results if result.name_hint)
    return f"{op.name}{f' ({names})' if names else ''}{where}{device}"
