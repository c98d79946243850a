#!/usr/bin/env python3
"""Makes schedule_free.safetensors, the stored references of ScheduleFreeAdamW (tests/parity).

    python3 tests/reference/optim/make_schedule_free.py     (from the root of the tree)

Needs torch, safetensors and schedulefree 1.4; the results are kept in the repository, all f64.
start [N]; gradients [7, N]: update t, from 0, has gradient t % 7 times 1 + t % 5, and in a case that falls half of the
rate from t = 100 on. For every case below, behind 200 updates of AdamWScheduleFree: <case>.y, .z and .exp_avg_sq [N],
.x [N] as its eval() gives it, .weight_sum and .lr_max [1]; and <case>.y_at [3, N], y behind the updates 1, 2 and 100.
"""
import pathlib

import torch
from safetensors.torch import save_file
from schedulefree import AdamWScheduleFree

HERE = pathlib.Path(__file__).parent
N, STEPS = 33, 200

# Whether the rate falls, and what the optimizer is made with.
CASES = {
    "defaults": (False, {}),
    "decay": (False, {"weight_decay": 0.1, "betas": (0.95, 0.99), "eps": 1e-6}),
    "warmup": (True, {"lr": 0.01, "warmup_steps": 20, "r": 0.5, "weight_decay": 0.1}),
    "power": (True, {"lr": 0.01, "warmup_steps": 150, "weight_lr_power": 1.0}),
}


def main():
    generator = torch.Generator().manual_seed(11)
    start = torch.randn(N, dtype=torch.float64, generator=generator)
    # Magnitudes from 1e-6 to 10, and exact zeros, so that eps matters for some elements.
    scale = 10.0 ** torch.linspace(-6, 1, N, dtype=torch.float64)
    gradients = torch.randn(7, N, dtype=torch.float64, generator=generator) * scale
    gradients[:, 5] = 0.0
    # Exact in f32, so that one reference serves both precisions.
    start, gradients = start.float().double(), gradients.float().double()
    tensors = {"start": start, "gradients": gradients}
    for name, (falls, settings) in CASES.items():
        weights = torch.nn.Parameter(start.clone())
        optimizer = AdamWScheduleFree([weights], foreach=False, **settings)
        group = optimizer.param_groups[0]
        rate = group["lr"]
        optimizer.train()
        y_at = []
        for t in range(STEPS):
            group["lr"] = rate * (0.5 if falls and t >= 100 else 1.0)
            weights.grad = gradients[t % 7] * (1 + t % 5)
            optimizer.step()
            if t + 1 in (1, 2, 100):
                y_at.append(weights.detach().clone())
        state = optimizer.state[weights]
        tensors[name + ".y"] = weights.detach().clone()
        tensors[name + ".y_at"] = torch.stack(y_at)
        tensors[name + ".z"] = state["z"].clone()
        tensors[name + ".exp_avg_sq"] = state["exp_avg_sq"].clone()
        tensors[name + ".weight_sum"] = torch.tensor([group["weight_sum"]], dtype=torch.float64)
        tensors[name + ".lr_max"] = torch.tensor([group["lr_max"]], dtype=torch.float64)
        optimizer.eval()
        tensors[name + ".x"] = weights.detach().clone()
    save_file(tensors, HERE / "schedule_free.safetensors")


if __name__ == "__main__":
    main()
