"""Operators that ONNX Runtime's optimizer and quantizer write into files. In goes a model with operators of `com.microsoft`; out comes the
same with standard operators in their place, as ONNX Runtime's documentation of contributed operators defines them.

Attributes and operands that are not written here are refused by name, and so are other operators of that domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper

from distir.dialects.errors import DistirError
from distir.frontends.onnx.validity import graphs_of, label

DOMAIN = "com.microsoft"


class Expansion:
    """Collects the nodes that stand for one."""

    def __init__(self, node: NodeProto, where: str, ranks: Mapping[str, int]) -> None:
        self.node, self.where, self.ranks = node, where, ranks
        self.nodes: list[NodeProto] = []
        self.attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}

    def refuse(self, what: str) -> DistirError:
        return DistirError(
            f"{self.where}: {self.node.op_type} of {DOMAIN} ({label(self.node)}): {what}: export standard operators"
        )

    def operand(self, index: int) -> str:
        """The name of an operand; empty for an absent one."""
        return self.node.input[index] if index < len(self.node.input) else ""

    def without(self, *indices: int) -> None:
        for index in indices:
            if self.operand(index):
                raise self.refuse(f"operand {index} is not supported")

    def take(self, name: str, default: Any) -> Any:
        value = self.attributes.pop(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def add(self, operator: str, *operands: str, result: int | None = None, results: int = 1, **attributes: Any) -> str:
        """A node; the name of its (first) result, which is that of the expanded node's `result`, if that has a name."""
        inputs = list(operands)
        while inputs and not inputs[-1]:
            inputs.pop()
        prefix = next(name for name in self.node.output if name)
        names = [f"{prefix}/{operator}{len(self.nodes)}.{i}" for i in range(results)]
        if result is not None and result < len(self.node.output) and self.node.output[result]:
            names[0] = self.node.output[result]
        self.nodes.append(helper.make_node(operator, inputs, names, name=self.node.name, **attributes))
        return names[0]

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        return self.add("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def sum(self, *operands: str, result: int | None = None) -> str:
        """The sum of the operands that are there."""
        given = [name for name in operands if name]
        if len(given) == 1:
            return given[0] if result is None else self.add("Identity", *given, result=result)
        total = given[0]
        for name in given[1:-1]:
            total = self.add("Add", total, name)
        return self.add("Add", total, given[-1], result=result)

    def dequantised(self, index: int) -> str:
        """A quantised operand, followed by its scale and zero point."""
        return self.add("DequantizeLinear", *(self.operand(index + i) for i in range(3)))

    def quantised(self, value: str, index: int) -> None:
        """The first result, by the scale and the zero point that are these operands."""
        self.add("QuantizeLinear", value, self.operand(index), self.operand(index + 1), result=0)

    def activated(self, value: str) -> None:
        """The first result: the value through the function that attributes name, if any."""
        name, parameters = self.take("activation", ""), self.take("activation_params", [])
        if not name:
            self.add("Identity", value, result=0)
        elif name == "Clip" and len(parameters) == 2:
            self.add("Clip", value, *(self.constant(bound, np.float32) for bound in parameters), result=0)
        elif name in ("LeakyRelu", "HardSigmoid"):
            self.add(name, value, result=0, **dict(zip(("alpha", "beta"), parameters, strict=False)))
        elif name in ("Relu", "Sigmoid", "Tanh"):
            self.add(name, value, result=0)
        else:
            raise self.refuse(f"activation {name} is not known")


def _gelu(e: Expansion, approximate: str = "none") -> None:
    e.add("Gelu", e.sum(e.operand(0), e.operand(1)), result=0, approximate=approximate)


def _quick_gelu(e: Expansion) -> None:
    scaled = e.add("Mul", e.operand(0), e.constant(e.take("alpha", 1.702), np.float32))
    e.add("Mul", e.operand(0), e.add("Sigmoid", scaled), result=0)


def _skip_norm(e: Expansion, is_simplified: bool) -> None:
    bias = e.operand(3 if is_simplified else 4)
    total = e.sum(e.operand(0), e.operand(1), bias, result=3)
    epsilon = e.take("epsilon", 1e-5 if is_simplified else 1e-12)
    if is_simplified:
        e.add("RMSNormalization", total, e.operand(2), result=0, axis=-1, epsilon=epsilon)
    else:
        e.add("LayerNormalization", total, e.operand(2), e.operand(3), result=0, axis=-1, epsilon=epsilon)


def _simplified_norm(e: Expansion) -> None:
    e.take("stash_type", 1)
    options = {"axis": e.take("axis", -1), "epsilon": e.take("epsilon", 1e-5)}
    e.add("RMSNormalization", e.operand(0), e.operand(1), result=0, **options)


def _embed_norm(e: Expansion) -> None:
    ids, segments, words, positions, kinds, gamma, beta, _, numbers = (e.operand(i) for i in range(9))
    if e.node.output[1:2] not in ([], [""]) and e.operand(7):
        raise e.refuse("lengths of masks are not supported")
    if not numbers:
        length = e.add("Gather", e.add("Shape", ids), e.constant(1))
        numbers = e.add("Range", e.constant(0), length, e.constant(1))
    rows = [e.add("Gather", words, ids), e.add("Gather", positions, numbers)]
    if segments:
        rows.append(e.add("Gather", kinds, segments))
    total = e.sum(*rows, result=2)
    e.add("LayerNormalization", total, gamma, beta, result=0, axis=-1, epsilon=e.take("epsilon", 1e-12))


def _fused_matmul(e: Expansion) -> None:
    left, right = (_matrices(e, i, side) for i, side in enumerate("AB"))
    product = e.add("MatMul", left, right, result=None if (alpha := e.take("alpha", 1.0)) != 1 else 0)
    if alpha != 1:
        e.add("Mul", product, e.constant(alpha, np.float32), result=0)


def _matrices(e: Expansion, index: int, side: str) -> str:
    """An operand as matrices: with `transBatch`, its first dim comes after those of the batch."""
    batch_first = "i...j" if e.take(f"transBatch{side}", 0) else "...ij"
    matrix = "...ji" if e.take(f"trans{side}", 0) else "...ij"
    operand = e.operand(index)
    return operand if batch_first == matrix else e.add("Einsum", operand, equation=f"{batch_first}->{matrix}")


def _fused_conv(e: Expansion) -> None:
    own = {name: e.attributes.pop(name) for name in list(e.attributes) if not name.startswith("activation")}
    e.activated(e.sum(e.add("Conv", e.operand(0), e.operand(1), e.operand(2), **own), e.operand(3)))


def _fused_gemm(e: Expansion) -> None:
    names = {name: e.attributes.pop(name) for name in ("alpha", "beta", "transA", "transB") if name in e.attributes}
    value = e.add("Gemm", e.operand(0), e.operand(1), e.operand(2), **names)
    given = [
        e.attributes.pop(f"activation_{name}") for name in ("alpha", "beta") if f"activation_{name}" in e.attributes
    ]
    e.attributes["activation_params"] = given
    e.activated(value)


def _attend(e: Expansion, q: str, k: str, v: str, mask: str, bias: str) -> None:
    """Attention of rows [batch, positions, hidden]. A mask has the number of positions that each of the batch sees, or a row of them, or a row for each
    of its positions."""
    heads, scale = e.take("num_heads", 1), e.take("scale", 0.0)
    e.take("mask_filter_value", -10000.0)
    if mask:
        if (rank := e.ranks.get(mask, 2)) == 1:
            positions = e.add("Range", e.constant(0), e.add("Gather", e.add("Shape", k), e.constant(1)), e.constant(1))
            seen = e.add(
                "Less", positions, e.add("Unsqueeze", e.add("Cast", mask, to=TensorProto.INT64), e.constant([1]))
            )
        else:
            seen = e.add("Cast", mask, to=TensorProto.BOOL)
        seen = e.add("Unsqueeze", seen, e.constant([1] if rank == 3 else [1, 2]))
        low = e.add("Where", seen, e.constant(0, np.float32), e.constant(-10000, np.float32))
        bias = e.sum(low, bias)
    options = {"scale": scale} if scale else {}
    causal = e.take("unidirectional", 0)
    e.add("Attention", q, k, v, bias, result=0, q_num_heads=heads, kv_num_heads=heads, is_causal=causal, **options)


def _attention(e: Expansion) -> None:
    e.without(4, 6)
    if e.node.output[1:2] not in ([], [""]):
        raise e.refuse("the keys and values as a result are not supported")
    rows = e.sum(e.add("MatMul", e.operand(0), e.operand(1)), e.operand(2))
    sizes = e.take("qkv_hidden_sizes", [])
    split = e.constant(sizes) if sizes else ""
    q = e.add("Split", rows, split, results=3, axis=-1, **({} if sizes else {"num_outputs": 3}))
    _attend(e, q, f"{q[:-1]}1", f"{q[:-1]}2", e.operand(3), e.operand(5))


def _multi_head_attention(e: Expansion) -> None:
    e.without(6, 7)
    if not (e.operand(1) and e.operand(2)):
        raise e.refuse("packed queries, keys and values are not supported")
    rows = [e.operand(i) for i in range(3)]
    if e.operand(3):
        bias = e.add("Split", e.operand(3), results=3, axis=0, num_outputs=3)
        rows = [e.add("Add", row, f"{bias[:-1]}{i}") for i, row in enumerate(rows)]
    q, k, v = rows
    _attend(e, q, k, v, e.operand(4), e.operand(5))


def _grouped_attention(e: Expansion) -> None:
    """Of rows that all have the whole past, to which the keys and values are appended."""
    e.without(11, 12, 13)
    for name in ("smooth_softmax", "qk_output", "kv_cache_bit_width"):
        if e.take(name, 0) > 0:
            raise e.refuse(f"attribute {name} is not supported")
    for name in ("k_quant_type", "v_quant_type"):
        if e.take(name, "NONE") != "NONE":
            raise e.refuse(f"attribute {name} is not supported")
    heads, groups, window = e.take("num_heads", 1), e.take("kv_num_heads", 1), e.take("local_window_size", -1)
    q, k, v = (e.operand(i) for i in range(3))
    batch, length, width = (e.add("Gather", e.add("Shape", q), e.constant([i])) for i in range(3))
    if not k:
        size = e.add("Div", width, e.constant([heads + 2 * groups]))
        q = e.add("Split", q, e.add("Mul", size, e.constant([heads, groups, groups])), results=3, axis=-1)
        k, v = f"{q[:-1]}1", f"{q[:-1]}2"

    def in_heads(value: str, count: int) -> str:
        return e.add("Transpose", e.add("Reshape", value, e.constant([0, 0, count, -1])), perm=[0, 2, 1, 3])

    q, k, v = in_heads(q, heads), in_heads(k, groups), in_heads(v, groups)
    past = e.add("Gather", e.add("Shape", e.operand(3)), e.constant([2])) if e.operand(3) else e.constant([0])
    zero, one = e.constant(0), e.constant(1)
    start, stop = e.add("Squeeze", past), e.add("Squeeze", e.add("Add", past, length))
    rows, columns = e.add("Range", start, stop, one), e.add("Range", zero, stop, one)
    interleaved = e.take("rotary_interleaved", 0)
    if e.take("do_rotary", 0):
        places = e.operand(9) or e.add("Expand", rows, e.add("Concat", batch, length, axis=0))
        q, k = (
            e.add("RotaryEmbedding", each, e.operand(7), e.operand(8), places, interleaved=interleaved)
            for each in (q, k)
        )
    if e.operand(3):
        k, v = (e.add("Concat", e.operand(2 + i), each, result=i, axis=2) for i, each in ((1, k), (2, v)))
    else:
        k, v = (e.add("Identity", each, result=i) for i, each in ((1, k), (2, v)))
    own = e.add("Unsqueeze", rows, one)
    seen = e.add("LessOrEqual", columns, own)
    if window > 0:
        seen = e.add("And", seen, e.add("Greater", columns, e.add("Sub", own, e.constant(window))))
    last = e.add("Unsqueeze", e.add("Cast", e.operand(5), to=TensorProto.INT64), e.constant([1, 2, 3]))
    mask = e.add("And", seen, e.add("LessOrEqual", columns, last))
    if e.operand(10):
        low = e.add("CastLike", e.constant(-10000, np.float32), e.operand(10))
        mask = e.add("Where", mask, e.operand(10), low)
    options = {name: value for name in ("scale", "softcap") if (value := e.take(name, 0.0))}
    rows = e.add("Transpose", e.add("Attention", q, k, v, mask, **options), perm=[0, 2, 1, 3])
    e.add("Reshape", rows, e.constant([0, 0, -1]), result=0)


def _rotary(e: Expansion) -> None:
    names = ("interleaved", "num_heads", "rotary_embedding_dim")
    given = {name: e.attributes.pop(name) for name in names if name in e.attributes}
    e.take("scale", 1.0)
    e.add("RotaryEmbedding", e.operand(0), e.operand(2), e.operand(3), e.operand(1), result=0, **given)


def _quantised_pair(operator: str) -> Callable[[Expansion], None]:
    return lambda e: e.quantised(e.add(operator, e.dequantised(0), e.dequantised(3)), 6)


def _quantised_single(operator: str, *names: str) -> Callable[[Expansion], None]:
    def expand(e: Expansion) -> None:
        if e.take("channels_last", 0):
            raise e.refuse("channels_last is not supported")
        given = {name: e.attributes.pop(name) for name in names if name in e.attributes}
        e.quantised(e.add(operator, e.dequantised(0), **given), 3)

    return expand


def _quantised_softmax(e: Expansion) -> None:
    if e.take("opset", 13) < 13:
        raise e.refuse("a softmax over several dims is not supported")
    e.quantised(e.add("Softmax", e.dequantised(0), axis=e.take("axis", -1)), 3)


def _quantised_concat(e: Expansion) -> None:
    parts = [e.dequantised(i) for i in range(2, len(e.node.input), 3)]
    e.quantised(e.add("Concat", *parts, axis=e.take("axis", 0)), 0)


def _quantised_gemm(e: Expansion) -> None:
    given = {name: e.attributes.pop(name) for name in ("alpha", "transA", "transB") if name in e.attributes}
    value = e.add("Gemm", e.dequantised(0), e.dequantised(3), **given)
    if bias := e.operand(6):  # its scale is the product of the two others
        whole = e.add("Mul", e.add("Cast", bias, to=TensorProto.FLOAT), e.add("Mul", e.operand(1), e.operand(4)))
        value = e.add("Add", value, whole)
    if e.operand(7):
        e.quantised(value, 7)
    else:
        e.add("Identity", value, result=0)


def _integer_matmul(
    e: Expansion, left: str, zero: str, scale: str, right_scale: str, right_zero: str, bias: str
) -> None:
    products = e.add("Cast", e.add("MatMulInteger", left, e.operand(1), zero, right_zero), to=TensorProto.FLOAT)
    scaled = e.add("Mul", products, e.add("Mul", scale, right_scale), result=None if bias else 0)
    if bias:
        e.add("Add", scaled, bias, result=0)


def _dynamic_matmul(e: Expansion) -> None:
    rows = e.add("DynamicQuantizeLinear", e.operand(0), results=3)
    _integer_matmul(e, rows, f"{rows[:-1]}2", f"{rows[:-1]}1", e.operand(2), e.operand(3), e.operand(4))


def _unpacked(e: Expansion, packed: str, bits: int) -> str:
    """Bytes of several numbers, the first one in the lowest bits, as numbers along a new last dim."""
    mask, last = e.constant(2**bits - 1, np.uint8), e.constant([-1])
    shifted = [
        e.add("BitShift", packed, e.constant(shift, np.uint8), direction="RIGHT") if shift else packed
        for shift in range(0, 8, bits)
    ]
    numbers = [e.add("Unsqueeze", e.add("BitwiseAnd", each, mask), last) for each in shifted]
    return e.add("Concat", *numbers, axis=-1)


def _blocked_matmul(e: Expansion) -> None:
    """Weights of few bits, [N, blocks, bytes], with a scale and a zero point for each block of a row."""
    e.without(4)
    bits, size, columns, rows = (
        e.take(name, default) for name, default in (("bits", 4), ("block_size", 32), ("K", 0), ("N", 0))
    )
    e.take("accuracy_level", 0)
    if bits not in (2, 4, 8):
        raise e.refuse(f"numbers of {bits} bits are not supported")
    blocks = -(-columns // size)
    scales = e.add("Reshape", e.operand(2), e.constant([rows, blocks, 1]))
    numbers = e.add("Reshape", _unpacked(e, e.operand(1), bits), e.constant([rows, blocks, size]))
    if e.operand(3):
        packed = e.add("Reshape", e.operand(3), e.constant([rows, -1]))
        zeros = e.add("Reshape", _unpacked(e, packed, bits), e.constant([rows, -1, 1]))
        zeros = e.add("Slice", zeros, e.constant([0]), e.constant([blocks]), e.constant([1]))
        zeros = e.add("CastLike", zeros, scales)
    else:
        zeros = e.add("CastLike", e.constant(2 ** (bits - 1), np.uint8), scales)
    whole = e.add("Mul", e.add("Sub", e.add("CastLike", numbers, scales), zeros), scales)
    whole = e.add("Reshape", whole, e.constant([rows, blocks * size]))
    if columns % size:
        whole = e.add("Slice", whole, e.constant([0]), e.constant([columns]), e.constant([1]))
    product = e.add("MatMul", e.operand(0), e.add("Transpose", whole, perm=[1, 0]), result=None if e.operand(5) else 0)
    if e.operand(5):
        e.add("Add", product, e.operand(5), result=0)


def _dynamic_lstm(e: Expansion) -> None:
    """Weights are stored transposed; activations, which are quantised step by step there, are not here."""
    weights: list[str] = []
    for index, scale in ((1, 8), (2, 10)):
        whole = e.add("Cast", e.operand(index), to=TensorProto.FLOAT)
        if zero := e.operand(scale + 1):
            whole = e.add("Sub", whole, _per_direction(e, e.add("Cast", zero, to=TensorProto.FLOAT)))
        whole = e.add("Mul", whole, _per_direction(e, e.operand(scale)))
        weights.append(e.add("Transpose", whole, perm=[0, 2, 1]))
    own = {name: e.attributes.pop(name) for name in list(e.attributes)}
    node = helper.make_node(
        "LSTM", [e.operand(0), *weights, *(e.operand(i) for i in range(3, 8))], e.node.output, e.node.name, **own
    )
    e.nodes.append(node)


def _per_direction(e: Expansion, value: str) -> str:
    """A number, or one for each column, of each direction."""
    return e.add(
        "Unsqueeze",
        e.add("Reshape", value, e.constant([2 if e.attributes.get("direction") == b"bidirectional" else 1, -1])),
        e.constant([1]),
    )


def _plain(operator: str) -> Callable[[Expansion], None]:
    """The standard operator means the same."""

    def expand(e: Expansion) -> None:
        e.nodes.append(helper.make_node(operator, e.node.input, e.node.output, e.node.name, **e.attributes))
        e.attributes.clear()

    return expand


EXPANSIONS: Mapping[str, Callable[[Expansion], None]] = {
    "Attention": _attention,
    "BiasGelu": _gelu,
    "DequantizeLinear": _plain("DequantizeLinear"),
    "DynamicQuantizeLSTM": _dynamic_lstm,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "EmbedLayerNormalization": _embed_norm,
    "FastGelu": lambda e: _gelu(e, "tanh"),
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "Gelu": _gelu,
    "MatMulIntegerToFloat": lambda e: _integer_matmul(e, e.operand(0), *(e.operand(i) for i in (4, 2, 3, 5, 6))),
    "MatMulNBits": _blocked_matmul,
    "GroupQueryAttention": _grouped_attention,
    "LayerNormalization": _plain("LayerNormalization"),
    "MultiHeadAttention": _multi_head_attention,
    "QGemm": _quantised_gemm,
    "QLinearAdd": _quantised_pair("Add"),
    "QLinearAveragePool": _quantised_single(
        "AveragePool", "auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides"
    ),
    "QLinearConcat": _quantised_concat,
    "QLinearGlobalAveragePool": _quantised_single("GlobalAveragePool"),
    "QLinearLeakyRelu": _quantised_single("LeakyRelu", "alpha"),
    "QLinearMul": _quantised_pair("Mul"),
    "QLinearSigmoid": _quantised_single("Sigmoid"),
    "QLinearSoftmax": _quantised_softmax,
    "QuantizeLinear": _plain("QuantizeLinear"),
    "QuickGelu": _quick_gelu,
    "RotaryEmbedding": _rotary,
    "SimplifiedLayerNormalization": _simplified_norm,
    "SkipLayerNormalization": lambda e: _skip_norm(e, False),
    "SkipSimplifiedLayerNormalization": lambda e: _skip_norm(e, True),
}


def is_contributed(node: NodeProto) -> bool:
    """Whether standard operators are put in the node's place."""
    return node.domain == DOMAIN and node.op_type in EXPANSIONS


def name_domains(model: ModelProto) -> None:
    """Give contributed operators their domain that ONNX Runtime wrote as if they were of ONNX: those that the model's opset does not have."""
    opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 1)
    nodes = [node for graph in graphs_of(model.graph) for node in graph.node]
    strays = [n for n in nodes if not n.domain and n.op_type in EXPANSIONS and not _has(opset, n.op_type)]
    for node in strays:
        node.domain = DOMAIN
    if strays and all(each.domain != DOMAIN for each in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))


def _has(opset: int, operator: str) -> bool:
    try:
        defs.get_schema(operator, opset, "")
    except defs.SchemaError:
        return False
    return True


def expand_contributed(model: ModelProto, where: str) -> None:
    """Put standard operators of the newest opset in place of contributed ones, in all graphs. Raises DistirError for what they have that
    is not known here."""
    for graph in list(graphs_of(model.graph)):
        if any(map(is_contributed, graph.node)):
            _expand(graph, where)


def _expand(graph: GraphProto, where: str) -> None:
    typed = [*graph.input, *graph.value_info]
    ranks = {
        each.name: len(each.type.tensor_type.shape.dim) for each in typed if each.type.tensor_type.HasField("shape")
    }
    nodes: list[NodeProto] = []
    for node in graph.node:
        if not is_contributed(node):
            nodes.append(NodeProto.FromString(node.SerializeToString()))
            continue
        expansion = Expansion(node, where, ranks)
        EXPANSIONS[node.op_type](expansion)
        if unknown := [name for name in expansion.attributes if not name.startswith("__")]:
            raise expansion.refuse(f"attribute {unknown[0]} is not supported")
        missing = set(node.output) - {""} - {name for new in expansion.nodes for name in new.output}
        if missing:
            raise expansion.refuse(f"result '{min(missing)}' is not supported")
        nodes += expansion.nodes
    del graph.node[:]
    graph.node.extend(nodes)
