#!/usr/bin/env python3
"""Makes adam8bit.safetensors, the stored reference of AdamW with moments in blocks of 8 bits.

    python3 tests/reference/optim/make_adam8bit.py                 (from the root of the tree)
    python3 tests/reference/optim/make_adam8bit.py --compare       beside bitsandbytes, if it is installed

Needs torch and safetensors. For a chunk of 1024 elements, of which the last 100 are padding, all f32: signed_map
and unsigned_map [256], weights [1024] at the start, and of 1, 20 and 200 steps weights.<steps>, exp_avg.<steps>
and exp_avg_sq.<steps> [1024], moments decoded. gradient() makes the gradients: the test computes them itself.

The definition: Dettmers et al., 8-bit Optimizers via Block-wise Quantization, ICLR 2022, with the dynamic maps of
bitsandbytes, and with the scale, ties and order of operations of core/block_format.h and kernels/update_table.h.
It differs from the CUDA kernels of bitsandbytes in two things. There a block whose largest value is negative has
no code for it, and the value shrinks by 0.7% at each step. And there a square below 1.6e-7 of the largest becomes 0,
so that its weight moves by lr exp_avg / eps; here it has the smallest code.
"""
import pathlib
import sys

import numpy as np
import torch

HERE = pathlib.Path(__file__).parent
N, PADDING, STEPS, BLOCK = 1024, 100, 200, 256
LR, BETA1, BETA2, EPS, DECAY = 1e-3, 0.9, 0.999, 1e-8, 0.1


def dynamic_map(signed):
    """Midpoints of parts of [0.1, 1] that double in number with each power of ten; 0; and 1."""
    values = [0.0, 1.0]
    for e in range(7):
        edges = torch.linspace(0.1, 1, 2 ** (e + (not signed)) + 1, dtype=torch.float32).numpy()
        middles = (edges[:-1] + edges[1:]) / np.float32(2)
        values += (np.float32(10.0 ** (e - 6)) * middles).tolist()
    if signed:
        values += [-value for value in values if 0 < value < 1]
    return np.array(sorted(values), dtype=np.float32)


def gradient(step):
    """Whole numbers from -1001 to 1001 times powers of two from 2^-10 down to 2^-22; padding has none."""
    i = np.arange(N, dtype=np.int64)
    whole = (step * 7919 + i * 104729 + step * i * 31) % 2003 - 1001
    values = whole.astype(np.float32) * np.float32(2.0) ** (-10 - i % 13).astype(np.float32)
    values[N - PADDING:] = 0
    return values.astype(np.float32)


def start():
    i = np.arange(N, dtype=np.int64)
    values = (((i * 7717) % 4001 - 2000) / np.float32(2048)).astype(np.float32)
    values[N - PADDING:] = 0
    return values


def fma(a, b, c):
    """The product is exact in f64, and the sum rounded once more there, which almost never matters."""
    return (np.asarray(a, np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64)).astype(np.float32)


def quantized(values, signed):
    """Encodes and decodes."""
    map_ = dynamic_map(signed)
    upper = map_[map_ >= 0]
    middles = (upper[:-1] + upper[1:]) / np.float32(2)
    back = np.empty_like(values)
    for begin in range(0, N, BLOCK):
        block = values[begin:begin + BLOCK]
        most, least = block.max(), block.min()
        scale = most if most >= -least else least
        if scale == 0:
            back[begin:begin + BLOCK] = 0
            continue
        quotient = block / scale
        code = np.searchsorted(middles, np.abs(quotient), side="left")
        code = np.where(quotient < 0, np.minimum(code, 127), code)
        if not signed:
            code = np.maximum(code, quotient > 0)
        back[begin:begin + BLOCK] = np.where(quotient < 0, -upper[code], upper[code]) * scale
    return back


def steps(dtype=np.float32, keep=quantized):
    weights, mean, square = start(), np.zeros(N, np.float32), np.zeros(N, np.float32)
    b1, c1, b2, c2 = (dtype(value) for value in (BETA1, 1 - BETA1, BETA2, 1 - BETA2))
    for step in range(1, STEPS + 1):
        g = gradient(step)
        a = dtype(-LR / (1 - BETA1**step))
        s = dtype(1 / np.sqrt(1 - BETA2**step))
        mean = fma(b1, mean, c1 * g)
        square = fma(b2, square, (c2 * g) * g)
        weights = fma(dtype(-LR * DECAY), weights, weights)
        weights = fma(a, mean / fma(np.sqrt(square), s, dtype(EPS)), weights)
        mean, square = keep(mean, True), keep(square, False)
        yield step, weights, mean, square


def compare():
    from bitsandbytes import functional
    from bitsandbytes.optim import AdamW8bit
    for signed in (True, False):
        assert (functional.create_dynamic_map(signed=signed).numpy() == dynamic_map(signed)).all()
    parameter = torch.nn.Parameter(torch.from_numpy(start()))
    optimizer = AdamW8bit([parameter], lr=LR, betas=(BETA1, BETA2), eps=EPS, weight_decay=DECAY, min_8bit_size=1)
    exact = list(steps(keep=lambda values, signed: values))
    for (step, weights, *_), (_, f32, *_) in zip(steps(), exact):
        parameter.grad = torch.from_numpy(gradient(step))
        optimizer.step()
        if step not in (1, 20, 200):
            continue
        theirs = parameter.detach().numpy()
        moved = np.linalg.norm(f32 - start())
        print(f"step {step}: of the way in f32, ours is {np.linalg.norm(weights - f32) / moved:.2e} apart, "
              f"bitsandbytes {np.linalg.norm(theirs - f32) / moved:.2e}, "
              f"ours from bitsandbytes {np.linalg.norm(weights - theirs) / moved:.2e}")


def main():
    from safetensors.numpy import save_file
    tensors = {"signed_map": dynamic_map(True), "unsigned_map": dynamic_map(False), "weights": start()}
    for step, weights, mean, square in steps():
        if step in (1, 20, 200):
            tensors |= {f"weights.{step}": weights, f"exp_avg.{step}": mean, f"exp_avg_sq.{step}": square}
    save_file(tensors, HERE / "adam8bit.safetensors")


if __name__ == "__main__":
    compare() if "--compare" in sys.argv else main()
