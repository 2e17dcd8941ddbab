"""`distir verify --proof`: two programs go in; whether the distributed one is proven to compute the sequential one comes out, without
executing either, and the rules that the proof rests on."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from distir.tools.commands.model import load_executable, require_level, require_same_weights
from distir.tools.commands.report import progress, say

if TYPE_CHECKING:
    from distir.interpreters.proof import Proof

NOT_PROVEN = 3
"""Exit status: it may be right, and execution can tell."""


def run_proof(args: Namespace) -> int:
    """Exit status 0 if every output and update is proven, else `NOT_PROVEN`."""
    from distir.interpreters.entry import entry_function, machine_devices
    from distir.interpreters.proof import prove, prove_ranks
    from distir.interpreters.ranks import explicit
    from distir.interpreters.rounding import rounded_on_purpose
    from distir.passes.decompose import prepare_like
    from distir.passes.project_to_rank import project
    from distir.passes.recognise_attention import RECOGNISED

    with progress("reading the programs"):
        sequential, distributed = load_executable(args.sequential), load_executable(args.distributed)
        require_level(sequential, args.sequential, (1, 2), "expected the sequential program")
        require_same_weights(sequential, distributed, (args.sequential, args.distributed))
    with progress("finding rules"):
        prepare_like(sequential, distributed)
    found: list[tuple[str, Proof]] = []
    with progress("proving"):
        found.append((args.distributed, prove(sequential, distributed)))
        rounded = [f"{c.name} {c.says}" for c in rounded_on_purpose(distributed)]
        if args.ranks and found[0][1]:
            ranks = range(machine_devices(distributed, entry_function(distributed)))
            written = explicit(distributed)
            programs = [project(written, rank) for rank in ranks]
            found.append((f"the programs of {len(ranks)} ranks", prove_ranks(sequential, programs)))
    if RECOGNISED in distributed.attributes:
        rounded.append(
            "attention of both programs is as recognise-attention has it (execution compares with the model's own)"
        )
    return _as_json(found, rounded) if args.json else _said(found, rounded)


def _as_json(found: Sequence[tuple[str, Proof]], rounded: Sequence[str]) -> int:
    """What was found, as JSON; the exit status."""
    proofs = [
        {
            "program": what,
            "proven": bool(proof),
            "outputs": proof.outputs,
            "failure": str(proof.failures[0]) if proof.failures else None,
            "rules": [{"rule": str(rule), "found": rule.found} for rule in proof.rules],
        }
        for what, proof in found
    ]
    holds = all(bool(proof) for _, proof in found)
    print(json.dumps({"proven": holds, "rounding": list(rounded), "proofs": proofs}, indent=1))
    return 0 if holds else NOT_PROVEN


def _said(found: Sequence[tuple[str, Proof]], rounded: Sequence[str]) -> int:
    for what, proof in found:
        if not proof:
            say(f"{what}: not proven, {len(proof.outputs)} outputs are. The claim breaks first at")
            say(f"  {proof.failures[0]}")
            say("this may be a fault, or more than the proof can follow: execute both, without --proof")
            return NOT_PROVEN
    for rule in found[0][1].rules:
        say(f"  {rule}")
    for each in rounded:
        say(f"  but for rounding: {each}")
    probed = sum(rule.found != "exact" for rule in found[0][1].rules)
    for what, proof in found:
        say(
            f"{what}: every output is proven ({len(proof.outputs)}), by {len(proof.rules)} rules of operators, {probed} of them probed"
        )
    return 0
