"""Mutants are copies with one fault: they verify as IR, differ from the program, and come in the same order every time. Those that
compute something else are caught by `verify`."""

from collections import Counter
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from distir.interpreters.entry import entry_function, machine_devices
from distir.interpreters.proof import prove
from distir.passes.decompose import prepare_like
from distir.passes.project_to_rank import project
from tests.mutants import kind_of, mutants
from tests.mutated_programs import PROGRAMS
from tests.mutation_testing import Examiner
from tests.small_models import mlp


def pipeline() -> ModuleOp:
    return mlp(batch=8).distributed(dp=2, tp=2, pp=2, microbatches=2, schedule="1f1b")


def test_mutants_are_programs_with_one_fault():
    """Every operator that this program has a place for makes some; the program itself stays as it is."""
    program = pipeline()
    text = str(program)
    found = dict(mutants(program, count=27))
    assert len(found) == 27
    assert set(map(kind_of, found)) == {
        *("source", "part", "reorder", "drop", "attribute", "reduction", "swapped operands", "duplicate", "slice"),
        *("order of participants", "call's devices", "source device", "swapped results", "drop operand", "name"),
        *("exchanged values", "regrouped", "left out", "operator", "alone", "forgotten"),
        *("sibling", "stale", "not updated"),
    }
    texts = [str(mutant) for mutant in found.values()]
    assert str(program) == text
    assert text not in texts
    assert len(set(texts)) == 27
    assert list(found)[:4] == [description for description, _ in mutants(program, count=4)]


def test_mutants_of_one_ranks_program():
    kinds = Counter(kind_of(description) for description, _ in mutants(project(pipeline(), 1), count=30))
    assert {"source", "root", "group", "slice", "reorder", "drop"} <= set(kinds)


def measured(name: str, folder: Path, count: int, seed: int = 0) -> Counter[str]:
    """How many mutants of a program there are of each kind: harmless, caught, missed. Names those that are missed."""
    sequential, distributed = PROGRAMS[name](folder)
    examiner = Examiner(sequential, distributed)
    assert not examiner.changes(distributed)
    assert not examiner.caught(distributed), examiner.why
    found: Counter[str] = Counter()
    for description, mutant in mutants(distributed, count, seed):
        kind = examiner.verdict(mutant)
        found[kind] += 1
        if kind == "missed":
            print(f"missed: {description}")
    return found


def test_verify_catches_mutants(tmp_path: Path):
    found = measured("mlp-onnx", tmp_path, 25)
    assert found["missed"] == 0
    assert found["caught"] >= 10


def test_what_is_anothers_is_caught(tmp_path: Path):
    """A layer or microbatch that takes another's values, and a weight that stays as it was, by the proof and by execution."""
    sequential, distributed = PROGRAMS["mlp-onnx"](tmp_path)
    prepared = sequential.clone()
    prepare_like(prepared, distributed)
    examiner = Examiner(sequential, distributed)
    found = dict(mutants(distributed, 9, kinds=("sibling", "stale", "not updated")))
    assert set(map(kind_of, found)) == {"sibling", "stale", "not updated"}
    for description, mutant in found.items():
        assert examiner.verdict(mutant) == "caught", description
        assert not prove(prepared, mutant), description


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_verify_catches_mutants_of_all_programs(name: str, tmp_path: Path):
    """2,040 mutants in all."""
    found = measured(name, tmp_path, 170)
    print(name, dict(found))
    assert found["missed"] == 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["mlp-onnx", "mlp-adamw"])
def test_verify_catches_mutants_of_one_ranks_program(name: str, tmp_path: Path):
    """A fault in what one rank does, all ranks run together."""
    sequential, distributed = PROGRAMS[name](tmp_path)
    ranks = [project(distributed, rank) for rank in range(machine_devices(distributed, entry_function(distributed)))]
    examiner = Examiner(sequential, ranks)
    assert not examiner.caught(ranks), examiner.why
    found: Counter[str] = Counter()
    for number in range(0, len(ranks), 2):
        for description, mutant in mutants(ranks[number], 40):
            others = [*ranks[:number], mutant, *ranks[number + 1 :]]
            kind = examiner.verdict(others)
            found[kind] += 1
            if kind == "missed":
                print(f"missed: rank {number}, {description}")
    assert found["missed"] == 0
