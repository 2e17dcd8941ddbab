"""Checks the claims of a distributed program. In: the sequential and the distributed module (or those of all ranks).
Out: a `Proof`: every argument is the part of the input that `dist.part` says; so is every result, of the output or
update of its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from distir.dialects.dist import PartAttr
from distir.dialects.errors import DistirError
from distir.interpreters.entry import Port, arguments_of, entry_function, machine_devices, rank_of, results_of
from distir.interpreters.global_arrays import Site
from distir.interpreters.lines import by_lines
from distir.interpreters.proof import calls, shards, values
from distir.interpreters.proof.indices import Mismatch, full, ranges
from distir.interpreters.proof.program import Prover, ShardCommunication
from distir.interpreters.proof.templates import rule_of
from distir.interpreters.proof.terms import Library, RuleOf, terms_of
from distir.interpreters.proof.values import (
    Failure,
    Kind,
    Packed,
    Shard,
    Term,
    Unknown,
    reduced,
    shard,
    term_of,
    unified,
)
from distir.interpreters.proof.weights import ONE, Leaf, Weights, addend, region
from distir.interpreters.reference_rank import run_together


@dataclass(frozen=True)
class RuleUse:
    """A rule that the proof rests on."""

    operator: str
    rule: str
    found: str
    """How it was found: `exact` or `probed`."""

    def __str__(self) -> str:
        return f"{self.operator}: {self.rule}"


@dataclass
class Proof:
    """What was shown."""

    failures: list[Failure] = field(default_factory=list[Failure])
    """What does not follow, in the order of the program; the first is where the claim breaks."""
    outputs: list[str] = field(default_factory=list[str])
    """The outputs and updates that are proven."""
    rules: list[RuleUse] = field(default_factory=list[RuleUse])
    walked: int = 0
    """Operations looked at."""
    has_guessed: bool = False
    """Whether a failure may be the fault of the proof: of several operations of the sequential program, one was taken while the terms that
    tell them apart were hidden."""

    @property
    def holds(self) -> bool:
        """Whether every claim is proven."""
        return not self.failures

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        if self.failures:
            return f"not proven: {self.failures[0]}"
        return f"proven: {len(self.outputs)} outputs, by {len(self.rules)} rules"


def prove(sequential: ModuleOp, distributed: ModuleOp, entry: str = "main", rules: RuleOf = rule_of) -> Proof:
    """Whether a distributed program (level 3) computes what the sequential one (level 1 or 2) does.

    Rules are those that the operations of the sequential program carry (`dist.rule`), or what `rules` says of an operation; without
    one, an operation is followed only where it is whole. Raises DistirError for a program of one rank of several."""
    distributed = by_lines(distributed, entry)
    function = entry_function(distributed, entry)
    if (number := rank_of(distributed)) is not None and machine_devices(distributed, function) > 1:
        raise DistirError(f"this is rank {number}'s program of several: prove them all together, with prove_ranks")

    def run(claim: _Claim) -> None:
        sites = [Site(port.on.device if port.on is not None else 0, port) for port in arguments_of(function)]
        prover = Prover(distributed, library=claim.library, hides_terms=hides_terms)
        claim.provers.append(prover)
        results = prover.call(entry, tuple(claim.arguments(sites)))
        claim.conclude(
            [Site(port.on.device if port.on is not None else 0, port) for port in results_of(function)], results
        )

    hides_terms = True
    proof = _proof(sequential, entry, rules, run)
    if not proof and proof.has_guessed:
        hides_terms = False
        proof = _proof(sequential, entry, rules, run)
    return proof


def prove_ranks(sequential: ModuleOp, ranks: Sequence[ModuleOp], entry: str = "main", rules: RuleOf = rule_of) -> Proof:
    """The same of the programs of all ranks (level 4), in their order; messages meet as they would. A deadlock is a failure."""
    functions = [entry_function(module, entry) for module in ranks]

    def run(claim: _Claim) -> None:
        given = iter(claim.arguments([Site(r, p) for r, f in enumerate(functions) for p in arguments_of(f)]))
        programs: list[Any] = []
        for number, (module, function) in enumerate(zip(ranks, functions, strict=True)):
            prover = Prover(module, library=claim.library, is_rank=True)
            prover.register([ShardCommunication(number, shards)])
            claim.provers.append(prover)
            programs.append(prover.steps(entry, tuple([next(given) for _ in function.args])))
        try:
            results = run_together(programs)
        except DistirError as error:
            claim.failures.append(Failure(f"@{entry}", str(error)))
            return
        sites = [Site(r, p) for r, f in enumerate(functions) for p in results_of(f)]
        claim.conclude(sites, [value for each in results for value in each])

    return _proof(sequential, entry, rules, run)


def _proof(sequential: ModuleOp, entry: str, rules: RuleOf, run: Any) -> Proof:
    _forget()
    claim = _Claim(sequential, entry, Library(rules))
    run(claim)
    if values.assumed:
        a, b = values.assumed[0]
        claim.fail(f"@{entry}", f"{a} is taken to be {b or 'a value of the sequential program'}")
    relied = {template for prover in claim.provers for template in prover.relied if template.rule is not None}
    uses = {RuleUse(str(t), str(t.rule), t.rule.found) for t in relied if t.rule is not None}
    failures = [*claim.failures, *(each for prover in claim.provers for each in prover.refused)]
    walked, has_guessed = sum(p.walked for p in claim.provers), any(p.has_guessed for p in claim.provers)
    proof = Proof(failures, claim.proven, sorted(uses, key=str), walked, has_guessed)
    _forget()
    return proof


def _forget() -> None:
    values.forget()
    calls.forget()


class _Claim:
    """The two interfaces, and what was found."""

    def __init__(self, sequential: ModuleOp, entry: str, library: Library):
        self.library = library
        self.failures: list[Failure] = []
        self.proven: list[str] = []
        self.provers: list[Prover] = []
        function = entry_function(sequential, entry)
        self.inputs = {port.name: port for port in arguments_of(function)}
        self.outputs = {port.name: port for port in results_of(function)}
        self.entry = entry
        self.terms: dict[str, Term] = {
            name: term_of(library.kinds(p.type), f"%{name}") for name, p in self.inputs.items()
        }
        names = [port.name for port in arguments_of(function)]
        if len(self.inputs) < len(names):
            raise DistirError("the sequential program has two arguments of one name")
        expected = terms_of(sequential, entry, [self.terms[name] for name in names], library)
        self.expected = dict(zip([port.name for port in results_of(function)], expected, strict=True))

    def fail(self, what: str, reason: str) -> None:
        self.failures.append(Failure(what, reason))

    # --- arguments ---

    def arguments(self, sites: Sequence[Site]) -> list[Any]:
        """What each argument is, by its part."""
        addends = Counter([(s.port.name, s.port.part) for s in sites if _is_addend(s)])
        seen: Counter[tuple[str, Any]] = Counter()
        found: list[Any] = []
        for site in sites:
            key = (site.port.name, site.port.part) if _is_addend(site) else ("", None)
            found.append(self._argument(site, seen[key], addends[key]))
            seen[key] += 1
        return found

    def _argument(self, site: Site, number: int, count: int) -> Any:
        port, what = site.port, f"argument {site.port.name} of device {site.device}"
        known = self.inputs.get(port.name)
        if known is None:
            return self._unknown(what, "the sequential program has no such argument")
        if port.role != known.role:
            return self._unknown(what, f"its role is {port.role}, in the sequential program {known.role}")
        term, problem = self.terms[port.name], self._problem(port, self.library.kinds(known.type))
        if problem is not None:
            return self._unknown(what, problem)
        indices = _indices(port, term.kind)
        reduction = None if port.part is None else port.part.reduction
        if reduction is None:
            return shard(term, indices)
        weights = Weights(region(ranges([(number, number + 1)]), ONE))
        return shard(term, indices, addend(reduction, [Leaf((), (((), "addends", count),), weights)]))

    def _unknown(self, what: str, reason: str) -> Unknown:
        self.fail(what, reason)
        return Unknown(self.failures[-1])

    def _problem(self, port: Port, kind: Kind) -> str | None:
        """What is wrong with the part that a port claims to be."""
        local = self.library.kinds(port.type)
        if local.element != kind.element:
            return f"its type is {local}, in the sequential program {kind}"
        if port.part is None:
            return (
                None if local == kind else f"its type is {local}, in the sequential program {kind}, and it says no part"
            )
        if port.part.global_shape != kind.shape:
            return f"it is a part of {list(port.part.global_shape)}, in the sequential program of {kind}"
        if port.part.local_shape != local.shape:
            return f"its type is {local}, its part {list(port.part.local_shape)}"
        return None

    # --- results ---

    def conclude(self, sites: Sequence[Site], results: Sequence[Any]) -> None:
        """Compares what every result is with its claim."""
        by_name: dict[str, list[tuple[Site, Any]]] = {}
        for site, value in zip(sites, results, strict=True):
            by_name.setdefault(site.port.name, []).append((site, value))
        for name in by_name:
            if name not in self.outputs:
                self.fail(f"result {name}", "the sequential program has no such result")
        for name, port in self.outputs.items():
            count = len(self.failures)
            if name not in by_name:
                self.fail(f"result {name}", "the distributed program has no such result")
                continue
            for site, _ in by_name[name]:
                if site.port.role != port.role:
                    self.fail(f"result {name}", f"its role is {site.port.role}, in the sequential program {port.role}")
            self._conclude(name, by_name[name])
            if len(self.failures) == count:
                self.proven.append(name)
        order = {id(failure): i for i, failure in enumerate(f for prover in self.provers for f in prover.failures)}
        self.failures.sort(key=lambda failure: order.get(id(failure), len(order)))
        unique: dict[Failure, None] = dict.fromkeys(self.failures)
        self.failures[:] = unique

    def _conclude(self, name: str, parts: Sequence[tuple[Site, Any]]) -> None:
        expected, kind = self.expected[name], self.expected[name].kind
        groups: dict[PartAttr | None, list[tuple[Site, Any]]] = {}
        for site, value in parts:
            what = f"result {name} of device {site.device}"
            if (problem := self._problem(site.port, kind)) is not None:
                return self.fail(what, problem)
            if isinstance(value, Unknown):
                self.failures.append(value.failure)
                return None
            if not isinstance(value, Shard):
                return self.fail(
                    what,
                    "what a lookup gave is returned as it is"
                    if not isinstance(value, Packed)
                    else "a tuple is returned",
                )
            groups.setdefault(site.port.part, []).append((site, value))
        for part, group in groups.items():
            what = f"result {name} of device {group[0][0].device}"
            if part is not None and part.reduction is not None:
                try:
                    total = reduced(part.reduction, [value for _, value in group])
                except Mismatch as mismatch:
                    return self.fail(what, mismatch.reason)
                group = [(group[0][0], total)]
            for site, value in group:
                if (failure := self._difference(value, expected, site)) is not None:
                    self.failures.append(failure)
                    return None
        if not _cover([_bounds(site.port, kind) for site, _ in parts], kind.shape or ()):
            self.fail(f"result {name}", "its parts are not all of it")
        return None

    def _difference(self, value: Shard, expected: Term, site: Site) -> Failure | None:
        what = f"result {site.port.name} of device {site.device}"
        if value.is_zero:
            return Failure(what, f"it is zeros, expected {expected}")
        if unified(value.term, expected) is not expected:
            return _blame(value.term, expected, what)
        if value.addend is not None:
            return Failure(what, f"it is only an addend: {value}")
        claimed = _indices(site.port, expected.kind)
        for d, (own, claim) in enumerate(zip(value.indices, claimed, strict=True)):
            if not own.may_be(claim):
                return Failure(what, f"it is {own} in dim {d}, its part claims {claim}")
        return None


def _is_addend(site: Site) -> bool:
    return site.port.part is not None and site.port.part.reduction is not None


def _blame(term: Term, expected: Term, what: str) -> Failure:
    """The first operation that computes what the sequential program does not."""
    seen: set[Term] = set()
    pending: list[tuple[Term, bool]] = [(term, False)]
    while pending:
        each, ready = pending.pop()
        if ready and not each.is_sequential and each.origin:
            return Failure(
                each.origin, f"the sequential program has no {each} of ({', '.join(str(o) for o in each.operands)})"
            )
        if not ready and each not in seen and not each.is_sequential:
            seen.add(each)
            pending.append((each, True))
            pending += [(operand, False) for operand in reversed(each.operands)]
    return Failure(what, f"it is {term}, expected {expected}")


def _indices(port: Port, kind: Kind) -> tuple[Any, ...]:
    if port.part is None:
        return tuple(full(n) for n in kind.shape or ())
    return tuple(ranges(dim) for dim in port.part.dims)


def _bounds(port: Port, kind: Kind) -> list[Sequence[tuple[int, int]]]:
    return [[(0, n)] for n in kind.shape or ()] if port.part is None else list(port.part.dims)


def _cover(parts: Iterable[Sequence[Sequence[tuple[int, int]]]], shape: Sequence[int]) -> bool:
    """Whether these boxes are all of a shape."""
    boxes = {tuple(tuple(dim) for dim in part) for part in parts}
    if any(all(list(dim) == [(0, n)] for dim, n in zip(box, shape, strict=True)) for box in boxes):
        return True
    cuts = [sorted({0, n, *(b for box in boxes for r in box[d] for b in r)}) for d, n in enumerate(shape)]
    cells = [list(pairwise(each)) for each in cuts]
    covered: set[tuple[int, ...]] = set()
    for box in boxes:
        inside = [
            [i for i, (a, b) in enumerate(cells[d]) if any(s <= a and b <= e for s, e in box[d])]
            for d in range(len(shape))
        ]
        covered.update(product(*inside))
    total = 1
    for each in cells:
        total *= len(each)
    return len(covered) == total
