#!/usr/bin/env python3
"""Makes the stored reference of adapters: a LoRA by peft on the tiny GPT-2 of make_models.py, in f64.

    python3 tests/reference/make_peft.py [directory of this file]
    python3 tests/reference/make_peft.py --open BASE ADAPTER    # an adapter that zinc saved: peft opens it

Needs torch, transformers, peft and safetensors; the results are kept in the repository. It writes peft/ with an
adapter folder as peft saves it, and reference.safetensors with
    loss                [1]  f64: mean over the targets of micro-batch 0 of gpt2/reference.safetensors
    grad.<parameter>         f64: gradient of that mean, by zinc's name of the parameter
All weights are exact in bf16. B, which starts at zero, is random here.
"""
import pathlib
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

PREFIX = "base_model.model."


def open_adapter(base, adapter):
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    stored = load_file(pathlib.Path(adapter) / "adapter_model.safetensors")
    held = {k.replace(".default", ""): v for k, v in model.state_dict().items()}
    for name, values in stored.items():
        assert torch.equal(held[name].float(), values), name
    ours = [k for k in held if ".lora_" in k]
    assert sorted(ours) == sorted(k for k in stored if ".lora_" in k)
    print(f"peft opened {adapter}: {len(stored)} tensors")


def main(folder):
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_pretrained(folder / "gpt2", torch_dtype=torch.float64)
    config = LoraConfig(r=3, lora_alpha=5, target_modules=["c_attn", "mlp.c_proj"], fan_in_fan_out=True,
                        task_type="CAUSAL_LM")
    model = get_peft_model(model, config).double()
    model.peft_config["default"].base_model_name_or_path = "tests/reference/gpt2"
    trained = {k: p for k, p in model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for parameter in trained.values():
            parameter.copy_((0.2 * torch.randn(parameter.shape)).bfloat16().double())
    model.eval()
    data = load_file(folder / "gpt2" / "reference.safetensors")
    logits = model(input_ids=data["input_ids"][0].long()).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), data["labels"][0].flatten().long(),
                                             ignore_index=-100)
    loss.backward()
    references = {"loss": loss.detach().reshape(1)}
    for name, parameter in trained.items():
        ours = name.removeprefix(PREFIX).replace(".default", "")
        references["grad." + ours] = parameter.grad.clone()
    out = folder / "peft"
    model.float().save_pretrained(out)
    (out / "README.md").unlink(missing_ok=True)
    save_file(references, out / "reference.safetensors")
    print(f"loss {loss.item():.12f}, {len(trained)} trained tensors")


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--open":
        open_adapter(sys.argv[2], sys.argv[3])
    else:
        main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent))
