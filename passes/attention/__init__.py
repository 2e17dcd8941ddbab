"""Attention that is spelled out: `layouts` follows dims through changes of shape, `spelled` finds it, `gradients` finds its gradient."""
