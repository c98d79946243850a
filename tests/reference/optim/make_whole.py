#!/usr/bin/env python3
"""Makes whole.safetensors, the stored references of update rules that see whole parameters (tests/parity).

    python3 tests/reference/optim/make_whole.py     (from the root of the tree)

Needs torch, safetensors and transformers 4; the result is kept in the repository. All f64: for each of SHAPES
<shape>.start [shape] and .gradients [7, shape]; update t, from 0, has gradient t % 7 times 1 + t % 5.
<case>.<shape> [3, shape] holds the weights after the updates UPDATES of the cases below: transformers' Adafactor, and
LAMB as DeepSpeed's kernel csrc/lamb/fused_lamb_cuda_kernel.cu computes it, which needs a GPU.
"""
import math
import pathlib

import torch
from safetensors.torch import save_file
from transformers.optimization import Adafactor

HERE = pathlib.Path(__file__).parent
SHAPES = [(6, 10), (10, 6), (7,), (2, 3, 4)]
UPDATES = [1, 100, 200]


class Lamb(torch.optim.Optimizer):
    """Algorithm 2 of You et al., ICLR 2020, with DeepSpeed's bounds of the ratio and its correction of the step."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, bias_correction=True,
                 min_coeff=0.01, max_coeff=10.0):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                                  "bias_correction": bias_correction, "bounds": (min_coeff, max_coeff)})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for weights in group["params"]:
                state = self.state[weights]
                t = state["step"] = state.get("step", 0) + 1
                mean = state.setdefault("exp_avg", torch.zeros_like(weights))
                square = state.setdefault("exp_avg_sq", torch.zeros_like(weights))
                mean.mul_(beta1).add_((1 - beta1) * weights.grad)
                square.mul_(beta2).add_((1 - beta2) * weights.grad**2)
                direction = mean / (square.sqrt() + group["eps"]) + group["weight_decay"] * weights
                norms = weights.norm().item(), direction.norm().item()
                ratio = 1.0
                if norms[0] != 0 and norms[1] != 0:
                    ratio = min(max(norms[0] / norms[1], group["bounds"][0]), group["bounds"][1])
                rate = group["lr"]
                if group["bias_correction"]:
                    rate *= math.sqrt(1 - beta2**t) / (1 - beta1**t)
                weights -= rate * ratio * direction


CASES = {
    "lamb": (Lamb, {"lr": 0.01, "weight_decay": 0.1}),
    "lamb_bounded": (Lamb, {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-3, "bias_correction": False,
                            "min_coeff": 0.3, "max_coeff": 0.9}),
    "adafactor": (Adafactor, {}),
    "adafactor_warmup": (Adafactor, {"warmup_init": True, "weight_decay": 0.1}),
    "adafactor_rate": (Adafactor, {"lr": 0.02, "scale_parameter": False, "relative_step": False,
                                   "clip_threshold": 0.5, "decay_rate": -0.6, "weight_decay": 0.1}),
}


def main():
    generator = torch.Generator().manual_seed(11)
    tensors = {}
    for shape in SHAPES:
        name = "x".join(map(str, shape))
        start = torch.randn(shape, generator=generator).double()
        # Eight bits, so that their products with small numbers are exact in f32.
        gradients = torch.randn((7, *shape), generator=generator).bfloat16().double()
        tensors |= {f"{name}.start": start, f"{name}.gradients": gradients}
        for case, (kind, settings) in CASES.items():
            weights = torch.nn.Parameter(start.clone())
            optimizer = kind([weights], **settings)
            after = []
            for t in range(UPDATES[-1]):
                weights.grad = gradients[t % 7] * (1 + t % 5)
                optimizer.step()
                if t + 1 in UPDATES:
                    after.append(weights.detach().clone())
            tensors[f"{case}.{name}"] = torch.stack(after)
    save_file(tensors, HERE / "whole.safetensors")


if __name__ == "__main__":
    main()
