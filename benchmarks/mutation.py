"""Faults put into small programs of every kind, and who catches them: `tests.mutated_programs` go in; per program, how many mutants compute something
else, and of those how many the proof and execution refuse, come out.

    python -m benchmarks.mutation [--count 170] [--seed 0] [--programs mlp-onnx,gpt-adamw] [--kinds slice] [--ranks]

Mutants that are caught by neither, or by one only, are printed; so are harmless ones that the proof rejects, with `--harmless`.
With `--ranks` the mutants are of the programs of single ranks, proven and run all together.
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from xdsl.dialects.builtin import ModuleOp

from benchmarks.arguments import some_of
from distir.interpreters.entry import entry_function, machine_devices
from distir.interpreters.equivalence import Program
from distir.interpreters.proof import Proof, prove, prove_ranks
from distir.passes.decompose import prepare_like
from distir.passes.project_to_rank import project
from tests.mutants import mutants
from tests.mutated_programs import PROGRAMS
from tests.mutation_testing import Examiner

COLUMNS = ("mutants", "change results", "proof catches", "execution catches", "harmless", "of these the proof rejects")


def proof_of(sequential: ModuleOp, program: Program) -> Proof:
    """Of a program of all devices, or of those of all ranks."""
    return prove(sequential, program) if isinstance(program, ModuleOp) else prove_ranks(sequential, list(program))


def cases(
    distributed: ModuleOp, count: int, seed: int, of_ranks: bool, kinds: Sequence[str] = ()
) -> Iterator[tuple[str, Program]]:
    """Mutants; those of ranks among the others' programs."""
    if not of_ranks:
        yield from mutants(distributed, count, seed, kinds)
        return
    number = machine_devices(distributed, entry_function(distributed))
    ranks = [project(distributed, rank) for rank in range(number)]
    for rank in range(number):
        for what, mutant in mutants(ranks[rank], -(-count // number), seed + rank, kinds):
            yield f"rank {rank}, {what}", [*ranks[:rank], mutant, *ranks[rank + 1 :]]


def count_of(name: str, folder: Path, options: argparse.Namespace) -> Counter[str]:
    """The row of one program."""
    sequential, distributed = PROGRAMS[name](folder)
    prepared = sequential.clone()
    prepare_like(prepared, distributed)
    right: Program = distributed
    if options.ranks:
        number = machine_devices(distributed, entry_function(distributed))
        right = [project(distributed, rank) for rank in range(number)]
    examiner = Examiner(sequential, right)
    assert proof_of(prepared, right), name
    assert not examiner.changes(right), name
    assert not examiner.caught(right), (name, examiner.why)
    found: Counter[str] = Counter()
    for what, mutant in cases(distributed, options.count, options.seed, options.ranks, options.kinds):
        proof = proof_of(prepared, mutant)
        found["mutants"] += 1
        verdict = examiner.verdict(mutant)
        executed = verdict == "caught"
        if verdict == "harmless":
            found["harmless"] += 1
            found["of these the proof rejects"] += not proof
            if not proof and options.harmless:
                print(f"harmless: {name}: {what} | {proof}", flush=True)
            continue
        found["change results"] += 1
        found["execution catches"] += executed
        found["proof catches"] += not proof
        if proof or not executed:
            missed = " and ".join(["the proof"] * bool(proof) + ["execution"] * (not executed))
            print(f"missed by {missed}: {name}: {what}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="faults in programs, and who catches them")
    parser.add_argument("--count", type=int, default=170, help="mutants of each program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=some_of(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument(
        "--kinds", type=lambda text: text.split(","), default=[], help="mutation operators, as in 'slice,left out'"
    )
    parser.add_argument("--ranks", action="store_true", help="mutants of single ranks' programs")
    parser.add_argument("--harmless", action="store_true", help="print harmless ones that the proof rejects")
    options = parser.parse_args()
    start, total = time.process_time(), Counter[str]()
    print(f"| program | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}", flush=True)
    with TemporaryDirectory() as folder:
        for name in options.programs:
            found = count_of(name, Path(folder), options)
            total += found
            print(f"| {name} | {' | '.join(str(found[c]) for c in COLUMNS)} |", flush=True)
    print(f"| all | {' | '.join(str(total[c]) for c in COLUMNS)} |")
    print(f"{time.process_time() - start:.0f} CPU seconds")


if __name__ == "__main__":
    main()
