"""`Scan` of opset 8, which runs over a batch: onnx's version converter does not know it. In goes a model of opset 8;
out comes one with two nested `Scan` of opset 9 for each.

Every operand has the batch as its first dim, and each of its items is scanned by itself along the next one. That is a
`Scan` of today over the batch, whose body is a `Scan` of today over the sequence. While the converter works on the
graphs inside, the operator hides in a domain that the converter leaves alone."""

from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from distir.dialects.errors import DistirError
from distir.frontends.onnx.validity import graphs_of, label

HIDDEN_DOMAIN = "distir.scan"


def scans_over_batches(model: ModelProto, where: str) -> None:
    """Replace each `Scan` of a model of opset 8 by two of opset 9, hidden in `HIDDEN_DOMAIN`.

    Raises DistirError where `sequence_lens` gives each item its own length, which no operator of today does."""
    for graph in list(graphs_of(model.graph)):
        for number, node in enumerate(graph.node):
            if node.op_type == "Scan" and not node.domain:
                if node.input[0]:
                    raise DistirError(
                        f"{where}: {label(node)} is a Scan with lengths ('{node.input[0]}'), which the operator of "
                        f"opset 9 and newer does not have: export the model for opset 9 or newer"
                    )
                graph.node[number].CopyFrom(_over_batch_and_sequence(node))
    if not any(opset.domain == HIDDEN_DOMAIN for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid(HIDDEN_DOMAIN, 1))


def restore_scans(model: ModelProto) -> None:
    """Bring the hidden operators back, after the conversion."""
    for graph in graphs_of(model.graph):
        for node in graph.node:
            if node.domain == HIDDEN_DOMAIN:
                node.domain = ""
    kept = [opset for opset in model.opset_import if opset.domain != HIDDEN_DOMAIN]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _over_batch_and_sequence(node: NodeProto) -> NodeProto:
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    body, count = attributes["body"], attributes["num_scan_inputs"]
    operands = list(node.input[1:])
    states = len(operands) - count
    prefix = node.name or node.output[0]
    items = [f"{prefix}_item_{i}" for i in range(len(operands))]
    results = [f"{prefix}_result_{i}" for i in range(len(node.output))]
    directions = {"scan_input_directions": attributes["directions"]} if "directions" in attributes else {}
    over_sequence = helper.make_node(
        "Scan", items, results, domain=HIDDEN_DOMAIN, body=body, num_scan_inputs=count, **directions
    )
    inputs = [_item(v, name, i >= states) for i, (v, name) in enumerate(zip(body.input, items, strict=True))]
    outputs = [_item(v, name, i >= states) for i, (v, name) in enumerate(zip(body.output, results, strict=False))]
    item = helper.make_graph([over_sequence], f"{prefix}_item", inputs, outputs)
    return helper.make_node(
        "Scan", operands, node.output, name=node.name, domain=HIDDEN_DOMAIN, body=item, num_scan_inputs=len(operands)
    )


def _item(value: ValueInfoProto, name: str, is_sequence: bool) -> ValueInfoProto:
    """What the body takes or gives, of a whole sequence if it is scanned."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return helper.make_tensor_value_info(name, tensor.elem_type, None)
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    return helper.make_tensor_value_info(name, tensor.elem_type, [None, *dims] if is_sequence else dims)
