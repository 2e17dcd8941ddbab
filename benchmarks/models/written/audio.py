"""Training steps as people write them by hand: audio."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.models.plain import BATCH, Then
from benchmarks.models.written.table import adam, rows, written
from distir.frontends.pytorch import WrittenStep, written_step


@written
def speech_with_ctc() -> WrittenStep:
    model = nn.Sequential(
        nn.Conv1d(8, 32, 3, padding=1),
        nn.GELU(),
        nn.Conv1d(32, 32, 3, stride=2, padding=1),
        nn.GELU(),
        nn.Conv1d(32, 12, 1),
    )
    optimizer = adam(model)

    def step(x: Tensor, target: Tensor, lengths: Tensor) -> Tensor:
        found = model(x).permute(2, 0, 1).log_softmax(-1)
        whole = torch.full((x.shape[0],), found.shape[0], dtype=torch.long)
        loss = F.ctc_loss(found, target, whole, lengths, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    args = rows(8, 24), torch.randint(1, 12, (BATCH, 4)), torch.tensor([4, 3, 2, 4])
    return written_step(step, model, optimizer, example_args=args)


@written
def spectral_loss() -> WrittenStep:
    """Waveforms compared by magnitudes of short-time spectra at two resolutions."""
    model = nn.Sequential(nn.Conv1d(1, 16, 9, padding=4), nn.Tanh(), nn.Conv1d(16, 1, 9, padding=4))
    optimizer = adam(model)
    windows = {n: torch.hann_window(n) for n in (16, 32)}

    def magnitude(x: Tensor, n: int) -> Tensor:
        s = torch.stft(x, n, n // 4, window=windows[n], return_complex=True)
        return (s.real**2 + s.imag**2 + 1e-7).sqrt()

    def step(x: Tensor, clean: Tensor) -> Tensor:
        y = model(x[:, None])[:, 0]
        loss = x.new_zeros(())
        for n in windows:
            a, b = magnitude(y, n), magnitude(clean, n)
            loss = loss + F.l1_loss(a.log(), b.log()) + (a - b).norm() / b.norm()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(128), rows(128)))


@written
def fourier_operator() -> WrittenStep:
    """Complex weights on the lowest modes."""
    weight = nn.Parameter(torch.randn(8, 8, 5, dtype=torch.cfloat) * 0.1)
    model = Then(lambda m, x: x, lift=nn.Linear(1, 8), mix=nn.Conv1d(8, 8, 1), drop=nn.Linear(8, 1), weight=weight)
    optimizer = adam(model)

    def step(x: Tensor, y: Tensor) -> Tensor:
        h = model.lift(x[..., None]).transpose(1, 2)
        modes = torch.einsum("bix,iox->box", torch.fft.rfft(h)[..., :5], model.weight)
        h = F.gelu(torch.fft.irfft(modes, n=h.shape[-1]) + model.mix(h))
        loss = F.mse_loss(model.drop(h.transpose(1, 2))[..., 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(16), rows(16)))
