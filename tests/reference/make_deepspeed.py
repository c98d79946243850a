"""Writes tests/reference/deepspeed/: checkpoints of DeepSpeed itself, and what they hold.

Needs: torch, deepspeed (0.19.8 was used), safetensors, a C++ compiler; no GPU. Run from the root of
the tree: DS_ACCELERATOR=cpu python tests/reference/make_deepspeed.py

Two ranks train a small model for three steps under ZeRO 0 to 3 and save. Sizes are odd, so that
partitions are padded and parameters cross ranks; there are two groups, a tied head, a frozen
parameter and a buffer. What each parameter's weights and moments are is asked of the live engine
(deepspeed.utils.safe_get_full_*), not of the files: <case>/expected.safetensors. A universal
checkpoint is made of the first by DeepSpeed's own converter.
tests/files/deepspeed_checkpoint_test.cpp reads the checkpoints.
"""

import argparse
import os
import shutil
import subprocess
import sys

FOLDER = "tests/reference/deepspeed"
CASES = {
    "stage0": {"zero_optimization": {"stage": 0}},
    "stage1": {"zero_optimization": {"stage": 1}, "bf16": {"enabled": True}},
    "bf16_optimizer": {
        "zero_optimization": {"stage": 1},
        "bf16": {"enabled": True},
        "data_types": {"grad_accum_dtype": "fp32"},
    },
    "stage2": {"zero_optimization": {"stage": 2, "round_robin_gradients": True}},
    "stage3": {
        "zero_optimization": {
            "stage": 3,
            "sub_group_size": 40,
            "stage3_param_persistence_threshold": 0,
        },
        "bf16": {"enabled": True},
    },
}


def train(case):
    import deepspeed
    import torch
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    from safetensors.torch import save_file

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(11, 6)
            self.norm = torch.nn.LayerNorm(6)
            self.up = torch.nn.Linear(6, 7)
            self.down = torch.nn.Linear(7, 6, bias=False)
            self.gain = torch.nn.Parameter(torch.linspace(0.5, 1.5, 5), requires_grad=False)
            self.head = torch.nn.Linear(6, 11, bias=False)
            self.head.weight = self.embed.weight
            self.register_buffer("scale", torch.tensor([1.5, 2.5]))

        def forward(self, ids):
            x = self.embed(ids) * self.gain.reshape(1, 5, 1).to(self.embed.weight.dtype)
            x = x + self.down(torch.tanh(self.up(self.norm(x))))
            return self.head(x)

    torch.manual_seed(3)
    deepspeed.init_distributed(dist_backend="gloo")
    rank = torch.distributed.get_rank()
    model = Net()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in trained if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0},
        ],
        lr=1e-2,
    )
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_clipping": 1.0,
        "zero_allow_untested_optimizer": True,
        "scheduler": {
            "type": "WarmupLR",
            "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-2, "warmup_num_steps": 5},
        },
        **CASES[case],
    }
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for step in range(3):
        generator = torch.Generator().manual_seed(100 * step + rank)
        ids = torch.randint(0, 11, (2, 5), generator=generator)
        logits = engine(ids).float().view(-1, 11)
        loss = torch.nn.functional.cross_entropy(logits, ids.roll(1, 1).view(-1))
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint(
        f"{FOLDER}/{case}", client_state={"note": "mine", "args": argparse.Namespace(epochs=2)}
    )
    stage = CASES[case]["zero_optimization"]["stage"]
    if stage in (1, 2):
        # The first step links parameters to states that do not exist yet.
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    expected = {}
    for name, parameter in engine.module.named_parameters():
        if not parameter.requires_grad:
            continue
        if stage == 0:  # its files do not name the moments
            expected[f"weights/{name}"] = parameter
            continue
        expected[f"weights/{name}"] = safe_get_full_fp32_param(parameter)
        for moment in ("exp_avg", "exp_avg_sq"):
            expected[f"{moment}/{name}"] = safe_get_full_optimizer_state(parameter, moment)
    if rank == 0:
        expected = {key: value.detach().float().clone() for key, value in expected.items()}
        save_file(expected, f"{FOLDER}/{case}/expected.safetensors")


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    for case in CASES:
        subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", __file__, case],
            check=True,
        )
        for script in ("zero_to_fp32.py", "zero_to_torch.py"):
            if os.path.exists(f"{FOLDER}/{case}/{script}"):
                os.remove(f"{FOLDER}/{case}/{script}")
    subprocess.run(
        [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder",
         f"{FOLDER}/stage1/global_step3", "--output_folder", f"{FOLDER}/universal/global_step3",
         "--inject_missing_state", "--num_extract_workers", "1", "--num_merge_workers", "1"],
        check=True,
    )


if __name__ == "__main__":
    train(sys.argv[1]) if len(sys.argv) > 1 else main()
