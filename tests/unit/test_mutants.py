"""Mutants are copies with one fault: they verify as IR, differ from the program, and come in the same order every time."""

from collections import Counter

from xdsl.dialects.builtin import ModuleOp

from distir.passes.project_to_rank import project
from tests.mutants import kind_of, mutants
from tests.small_models import mlp


def pipeline() -> ModuleOp:
    return mlp(batch=8).distributed(dp=2, tp=2, pp=2, microbatches=2, schedule="1f1b")


def test_mutants_are_programs_with_one_fault():
    """Every operator that this program has a place for makes some; the program itself stays as it is."""
    program = pipeline()
    text = str(program)
    found = dict(mutants(program, count=40))
    assert len(found) == 40
    assert set(map(kind_of, found)) == {
        *("source", "part", "reorder", "drop", "attribute", "reduction", "swapped operands", "duplicate", "slice"),
        *("order of participants", "call's devices", "source device", "swapped results", "drop operand", "callee"),
    }
    texts = [str(mutant) for mutant in found.values()]
    assert str(program) == text
    assert text not in texts
    assert len(set(texts)) == 40
    assert list(found) == [description for description, _ in mutants(program, count=40)]


def test_mutants_of_one_ranks_program():
    kinds = Counter(kind_of(description) for description, _ in mutants(project(pipeline(), 1), count=60))
    assert {"source", "root", "group", "slice", "reorder", "drop"} <= set(kinds)
