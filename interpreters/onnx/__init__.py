"""How operators of ONNX are understood: types, arrays, exact scalars, kernels, and the bodies that some stand for."""
