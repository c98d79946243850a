#!/usr/bin/env python3
"""Makes the stored references of the optimizer and schedule tests (tests/parity).

    python3 tests/reference/optim/make_vectors.py     (from the root of the tree)

Needs torch, safetensors and deepspeed 0.19; the results are kept in the repository.
- optimizers.safetensors, all f64: weights [N], gradients [STEPS, N], and for every case below
  <case>.weights [STEPS, N] after each update of torch.optim (Lion: below), and <case>.state.<name> [N] at the end.
  For each of MUON_SHAPES muon.<rows>x<columns>.start [rows, columns] and .gradients [7, rows, columns]; update t, from 0, has
  gradient t % 7 times 1 + t % 5. <case>.<rows>x<columns>.weights [3, rows, columns] after the updates MUON_UPDATES of
  torch.optim.Muon whose iteration is in f64; .bf16 as torch has it, in bf16.
- schedules.json: for every case a scheduler block as DeepSpeed's configuration has it, the optimizer's
  lr, and the lr (OneCycle: beta1 and beta2 too) with which update 0, 1, 2, ... runs. DeepSpeed's kinds
  come from its own classes, stepped once after each update as its engine does; StepLR is torch's; linear,
  cosine and constant are zinc's own and are written out here.
"""
import inspect
import json
import math
import pathlib

import torch
from deepspeed.runtime.lr_schedules import (LRRangeTest, OneCycle, WarmupCosineLR, WarmupDecayLR,
                                            WarmupLR)
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
N, STEPS = 33, 12

ADAM = {"lr": 2e-3, "betas": (0.9, 0.95), "eps": 1e-8}


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of Chen et al., NeurIPS 2023 (arXiv:2302.06675), which torch does not have."""

    def __init__(self, params, lr, betas, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for weights in group["params"]:
                state = self.state[weights]
                mean = state.setdefault("exp_avg", torch.zeros_like(weights))
                direction = torch.sign(beta1 * mean + (1 - beta1) * weights.grad)
                weights -= group["lr"] * (direction + group["weight_decay"] * weights)
                state["exp_avg"] = beta2 * mean + (1 - beta2) * weights.grad


OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, {**ADAM, "weight_decay": 0.1}),
    "adamw_no_decay": (torch.optim.AdamW, {**ADAM, "weight_decay": 0.0}),
    "adamw_large_eps": (torch.optim.AdamW, {**ADAM, "eps": 1e-2, "weight_decay": 0.1}),
    "adam_l2": (torch.optim.Adam, {**ADAM, "weight_decay": 0.1}),
    "amsgrad": (torch.optim.AdamW, {**ADAM, "weight_decay": 0.1, "amsgrad": True}),
    "amsgrad_l2": (torch.optim.Adam, {**ADAM, "weight_decay": 0.1, "amsgrad": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.02}),
    "adagrad_decay": (torch.optim.Adagrad, {"lr": 0.02, "lr_decay": 0.1, "weight_decay": 0.1}),
    "lion": (Lion, {"lr": 2e-3, "betas": (0.9, 0.99)}),
    "lion_decay": (Lion, {"lr": 2e-3, "betas": (0.95, 0.98), "weight_decay": 0.1}),
    "sgd": (torch.optim.SGD, {"lr": 0.05, "weight_decay": 0.1}),
    "sgd_momentum": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}),
    "sgd_dampening": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "dampening": 0.3}),
    "sgd_nesterov": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1,
                                       "nesterov": True}),
}


def optimizers():
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(N, dtype=torch.float64, generator=generator)
    # Magnitudes from 1e-6 to 10, and exact zeros, so that eps matters for some elements.
    scale = 10.0 ** torch.linspace(-6, 1, N, dtype=torch.float64)
    gradients = torch.randn(STEPS, N, dtype=torch.float64, generator=generator) * scale
    gradients[:, 5] = 0.0
    # Exact in f32, so that one reference serves both precisions.
    start, gradients = start.float().double(), gradients.float().double()
    tensors = {"weights": start, "gradients": gradients}
    for name, (kind, settings) in OPTIMIZERS.items():
        weights = torch.nn.Parameter(start.clone())
        optimizer = kind([weights], **settings)
        after = []
        for gradient in gradients:
            weights.grad = gradient.clone()
            optimizer.step()
            after.append(weights.detach().clone())
        tensors[f"{name}.weights"] = torch.stack(after)
        for key, value in optimizer.state[weights].items():
            if key != "step" and value is not None:
                tensors[f"{name}.state.{key}"] = value.clone()
    save_file(tensors | muon(), HERE / "optimizers.safetensors")


MUON_SHAPES = [(6, 10), (10, 6)]
MUON_UPDATES = [1, 100, 200]
MUON = {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.95}
MUONS = {
    "muon": {**MUON, "adjust_lr_fn": "original"},
    "muon_match_rms": {**MUON, "adjust_lr_fn": "match_rms_adamw"},
    "muon_plain": {**MUON, "nesterov": False},
}


def muon():
    module = torch.optim._muon
    in_bf16 = module._zeropower_via_newtonschulz
    names = dict(vars(module))
    exec(inspect.getsource(in_bf16).replace("torch.bfloat16", "torch.float64"), names)
    iterations = {"weights": names[in_bf16.__name__], "bf16": in_bf16}
    generator = torch.Generator().manual_seed(5)
    tensors = {}
    for rows, columns in MUON_SHAPES:
        shape = f"{rows}x{columns}"
        start = torch.randn(rows, columns, generator=generator).double()
        # Eight bits, so that their products with small numbers are exact in f32.
        gradients = torch.randn(7, rows, columns, generator=generator).bfloat16().double()
        tensors |= {f"muon.{shape}.start": start, f"muon.{shape}.gradients": gradients}
        for name, settings in MUONS.items():
            for kind, iteration in iterations.items():
                module._zeropower_via_newtonschulz = iteration
                weights = torch.nn.Parameter(start.clone())
                optimizer = torch.optim.Muon([weights], **settings)
                after = []
                for t in range(MUON_UPDATES[-1]):
                    weights.grad = gradients[t % 7] * (1 + t % 5)
                    optimizer.step()
                    if t + 1 in MUON_UPDATES:
                        after.append(weights.detach().clone())
                tensors[f"{name}.{shape}.{kind}"] = torch.stack(after)
    module._zeropower_via_newtonschulz = in_bf16
    return tensors


DEEPSPEED = {c.__name__: c for c in (LRRangeTest, OneCycle, WarmupCosineLR, WarmupDecayLR, WarmupLR)}

# (type, params, the optimizer's lr, updates)
SCHEDULES = [
    ("WarmupLR", {"warmup_num_steps": 10, "warmup_max_lr": 3e-4}, 1e-3, 16),
    ("WarmupLR", {"warmup_num_steps": 10, "warmup_type": "linear"}, 1e-3, 16),
    ("WarmupLR", {"warmup_num_steps": 7, "warmup_min_lr": 1e-5, "warmup_max_lr": 2e-3}, 1e-3, 12),
    ("WarmupLR", {"warmup_num_steps": 1, "warmup_min_lr": 1e-5}, 1e-3, 6),
    ("WarmupLR", {}, 1e-3, 1010),
    ("WarmupDecayLR", {"warmup_num_steps": 5, "total_num_steps": 20, "warmup_max_lr": 3e-4}, 1e-3, 30),
    ("WarmupDecayLR", {"warmup_num_steps": 5, "total_num_steps": 20, "warmup_type": "linear",
                       "warmup_min_lr": 1e-4}, 5e-3, 30),
    ("WarmupDecayLR", {"warmup_num_steps": 12, "total_num_steps": 8}, 1e-3, 20),
    ("WarmupCosineLR", {"warmup_num_steps": 5, "total_num_steps": 25}, 1e-3, 40),
    ("WarmupCosineLR", {"warmup_num_steps": 6, "total_num_steps": 20, "warmup_min_ratio": 0.1,
                        "cos_min_ratio": 0.05, "warmup_type": "linear"}, 2e-3, 30),
    ("OneCycle", {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "cycle_first_step_size": 6}, 1e-3, 24),
    ("OneCycle", {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "cycle_first_step_size": 6,
                  "cycle_second_step_size": 9, "decay_step_size": 4, "decay_lr_rate": 0.5,
                  "decay_mom_rate": 0.01}, 1e-3, 32),
    ("OneCycle", {"cycle_min_lr": 0.0, "cycle_max_lr": 1e-3, "cycle_first_step_size": 8,
                  "cycle_first_stair_count": 4, "cycle_second_stair_count": 3,
                  "cycle_second_step_size": 9, "cycle_min_mom": 0.85, "cycle_max_mom": 0.99},
     1e-3, 28),
    ("OneCycle", {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "cycle_first_step_size": 5,
                  "cycle_momentum": False, "decay_step_size": 2, "decay_lr_rate": 1.0}, 1e-3, 20),
    ("LRRangeTest", {"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 5,
                     "lr_range_test_step_rate": 2.0}, 1e-3, 20),
    ("LRRangeTest", {"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 5,
                     "lr_range_test_step_rate": 2.0, "lr_range_test_staircase": True}, 1e-3, 20),
    ("LRRangeTest", {}, 1e-3, 5),
    ("StepLR", {"step_size": 4, "gamma": 0.5}, 1e-3, 20),
    ("linear", {"warmup_steps": 4, "total_steps": 16, "min_lr": 1e-5}, 1e-3, 22),
    ("linear", {"warmup_steps": 0, "total_steps": 10}, 1e-3, 14),
    ("cosine", {"warmup_steps": 4, "total_steps": 16, "min_lr": 1e-5}, 1e-3, 22),
    ("constant", {}, 7e-4, 5),
]


def own(kind, params, lr0, n):
    """zinc's kinds: a linear warm-up whose first update is not wasted, then the shape."""
    warmup = params.get("warmup_steps", 0)
    if n < warmup:
        return lr0 * (n + 1) / warmup
    if kind == "constant":
        return lr0
    share = min(1.0, (n - warmup) / (params["total_steps"] - warmup))
    left = 1.0 - share if kind == "linear" else (1.0 + math.cos(math.pi * share)) / 2.0
    low = params.get("min_lr", 0.0)
    return low + (lr0 - low) * left


def run(kind, params, lr0, updates):
    case = {"scheduler": {"type": kind, "params": params}, "lr": lr0}
    if kind in ("linear", "cosine", "constant"):
        case["lrs"] = [own(kind, params, lr0, n) for n in range(updates)]
        return case
    weights = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([weights], lr=lr0, betas=(0.9, 0.999))
    maker = DEEPSPEED.get(kind) or torch.optim.lr_scheduler.StepLR
    given = dict(params)
    if kind == "StepLR":
        optimizer.step()  # torch warns otherwise
    schedule = maker(optimizer, **given)
    lrs, betas = [], []
    for _ in range(updates):
        group = optimizer.param_groups[0]
        lrs.append(float(group["lr"]))
        betas.append([float(beta) for beta in group["betas"]])
        schedule.step()
    case["lrs"] = lrs
    if any(pair != [0.9, 0.999] for pair in betas):
        case["beta1"] = [pair[0] for pair in betas]
        case["beta2"] = [pair[1] for pair in betas]
    return case


def schedules():
    cases = [run(*entry) for entry in SCHEDULES]
    lines = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "schedules.json").write_text("[\n" + lines + "\n]\n")


if __name__ == "__main__":
    optimizers()
    schedules()
