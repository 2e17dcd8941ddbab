"""Inputs of a model that always have one value. In go a model and numbers by name; out comes the model without these
inputs, with tensors of their values instead. A condition on one (`sr == 16000`) is known then."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper

from distir.dialects.errors import DistirError


def parse_value(text: str) -> tuple[str, float]:
    """`sr=16000` as ("sr", 16000)."""
    name, equals, number = text.rpartition("=")
    known = {"true": 1.0, "false": 0.0}
    try:
        value = known[number.lower()] if number.lower() in known else float(number)
    except ValueError:
        name, value = "", 0.0
    if not name or not equals:
        raise DistirError(f"--value {text}: expected INPUT=NUMBER, as in sr=16000, or INPUT=true")
    return name, value


def fix_inputs(model: ModelProto, values: Mapping[str, float], where: str) -> None:
    """Give these inputs their values, every element the same. Raises DistirError for a name that is no input, for an input with an open
    dimension, and for a number that its type does not hold."""
    graph = model.graph
    held = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in held}
    for name, number in values.items():
        if (value := inputs.get(name)) is None:
            near = get_close_matches(name, inputs, 1)
            hint = f"; did you mean '{near[0]}'?" if near else f"; the inputs are {', '.join(inputs)}"
            raise DistirError(f"{where}: --value {name}: no input of this name{hint}")
        tensor = value.type.tensor_type
        if any(not dim.HasField("dim_value") or dim.dim_value < 0 for dim in tensor.shape.dim):
            raise DistirError(
                f"{where}: --value {name}: the input has an open dimension, so that its size is not known"
            )
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        with np.errstate(all="ignore"):
            array = np.full([dim.dim_value for dim in tensor.shape.dim], number).astype(dtype)
        if dtype.kind in "iub" and array.size and float(array.flat[0]) != number:
            raise DistirError(f"{where}: --value {name}: {number:g} is not a number of type {dtype}")
        graph.initializer.append(numpy_helper.from_array(array, name))
    kept = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in graph.input if v.name not in values]
    del graph.input[:]
    graph.input.extend(kept)
