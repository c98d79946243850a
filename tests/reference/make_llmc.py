"""Writes tests/reference/torch/gpt2_f32_llmc.bin and gpt2_bf16_llmc.bin: llm.c's layout of the model
of tests/reference/torch/gpt2_expected, made from its description alone (hub/llmc_file.h).

Needs: torch, safetensors. Run from the root of the tree after make_torch.py:
python tests/reference/make_llmc.py
tests/hub/llmc_file_test.cpp reads them, and writes the same bytes.
"""

import json

import torch
from safetensors.torch import load_file

FOLDER = "tests/reference/torch"
STACKED = [
    "ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight",
    "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias",
    "mlp.c_proj.weight", "mlp.c_proj.bias",
]


def main():
    weights = load_file(f"{FOLDER}/gpt2_expected/model.safetensors")
    with open(f"{FOLDER}/gpt2_expected/config.json") as file:
        config = json.load(file)
    vocabulary = config["vocab_size"]
    padded = -(-vocabulary // 128) * 128
    table = torch.zeros(padded, config["n_embd"])
    table[:vocabulary] = weights["wte.weight"]
    parts = [table, weights["wpe.weight"]]
    for name in STACKED:
        for layer in range(config["n_layer"]):
            part = weights[f"h.{layer}.{name}"]
            parts.append(part.t() if part.dim() == 2 else part)
    parts += [weights["ln_f.weight"], weights["ln_f.bias"]]
    row = torch.cat([part.reshape(-1) for part in parts])
    for version, dtype, name in ((3, torch.float32, "f32"), (5, torch.bfloat16, "bf16")):
        header = torch.zeros(256, dtype=torch.int32)
        header[:8] = torch.tensor([20240326, version, config["n_positions"], vocabulary,
                                   config["n_layer"], config["n_head"], config["n_embd"], padded])
        values = row.to(dtype).contiguous()
        with open(f"{FOLDER}/gpt2_{name}_llmc.bin", "wb") as file:
            file.write(header.numpy().tobytes())
            file.write(values.view(torch.uint8).numpy().tobytes())


if __name__ == "__main__":
    main()
