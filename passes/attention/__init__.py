"""Attention that is spelled out: `layouts` follows dims through changes of shape, `softmaxes` and `spelled` find it, `masks` reads what hides scores,
`rewriting` finds its gradient and puts one operation in its place. And attention over a sequence that devices share: `sequence` pins it, `ring` passes
keys around."""
