"""Prices ONNX operators without flops of their own. In goes an operation; out comes whether a flop for each element
that it reads or writes is about right. Flops of contractions are in `interpreters/work`."""

from __future__ import annotations

from xdsl.ir import Operation

NOT_LOOPS = frozenset(
    """
    CausalConvWithState Col2Im DFT Det DictVectorizer Gradient If ImageDecoder LRN LinearAttention
    LinearClassifier LinearRegressor Loop MaxRoiPool MelWeightMatrix NonMaxSuppression RegexFullMatch RoiAlign
    STFT SVMClassifier SVMRegressor Scan SequenceMap StringNormalizer StringSplit TfIdfVectorizer TreeEnsemble
    TreeEnsembleClassifier TreeEnsembleRegressor Unique
    """.split()
)
"""Operators that do more, or how much depends on values."""


def is_loops(op: Operation) -> bool:
    """Whether an operator that is no contraction does a few flops for each element."""
    return op.name.rpartition(".")[2] not in NOT_LOOPS
