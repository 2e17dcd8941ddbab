"""How operators of PyTorch are understood: types, arrays, exact scalars, gradients, work."""
