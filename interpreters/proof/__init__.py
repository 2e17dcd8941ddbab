"""A static proof that a distributed program computes what the sequential one does. In: both modules. Out: whether every result and update
is the part that it claims to be, the first operation where that breaks, and the rules that it rests on.

An abstract interpretation: a value of the distributed program is some slices, or an addend, of a value of the sequential program, which is
a symbol. An operator acts by its rule, communication by its meaning. Nothing is executed but constants."""

from __future__ import annotations

from distir.interpreters.proof.claims import Proof, RuleUse, prove, prove_ranks

__all__ = ["Proof", "RuleUse", "prove", "prove_ranks"]
