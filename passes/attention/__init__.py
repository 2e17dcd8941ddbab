"""Attention. In go operations of a module; out come `attention` operations in their place, or pins on them.

`layouts` follows dims through changes of shape. `softmaxes` and `spelled` match a spelled-out attention, `masks` and
`dropout` its mask and dropout. `rewriting` writes the attention operation and its gradient in its place, `repeats`
merges repeated keys. Over a sequence that devices share, `sequence` pins attention and `ring` passes keys and values
around."""
