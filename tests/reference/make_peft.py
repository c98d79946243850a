#!/usr/bin/env python3
"""Makes the stored references of adapters: LoRAs by peft on the tiny models of make_models.py, in f64.

    python3 tests/reference/make_peft.py [directory of this file] [names of cases]
    python3 tests/reference/make_peft.py --open BASE ADAPTER            # an adapter that zinc saved: peft opens it
    python3 tests/reference/make_peft.py --merged BASE ADAPTER MERGED   # a model that zinc merged: peft merges it

Needs torch, transformers, peft and safetensors; the results are kept in the repository. For each case it writes
peft/<case>/ with an adapter folder as peft saves it, and reference.safetensors with
    loss                [1]  f64: mean over the targets of micro-batch 0 of the base's reference.safetensors
    grad.<tensor>            f64: gradient of that mean, by the tensor's name in the adapter's file
    merged.<weight>          f32: of the last layer's adapted weights, as peft's merge_and_unload() makes them in f64
transformers computes norms and rotary angles in f32, so that all models but GPT-2 are written out in make_models.py.
Their gradients are those of the written-out model at peft's own merged weights, and are compared with peft's own.
All weights are exact in bf16. B, which starts at zero, is random here.
"""
import copy
import pathlib
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import Embedding
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import make_models

PREFIX = "base_model.model."

# Name -> base, what its LoraConfig says.
CASES = {
    "gpt2": ("gpt2", dict(r=3, lora_alpha=5, target_modules=["c_attn", "mlp.c_proj"], fan_in_fan_out=True)),
    "bloom": ("bloom", dict(r=2, lora_alpha=3, target_modules=["query_key_value", "dense"])),
    "gpt_neox": ("gpt_neox", dict(r=2, lora_alpha=3, use_rslora=True,
                                  target_modules=["query_key_value", "dense_4h_to_h"])),
    "embedding": ("llama", dict(r=2, lora_alpha=3, target_modules=["embed_tokens", "q_proj"])),
    "tied_embedding": ("gpt2", dict(r=2, lora_alpha=3, target_modules=["wte"], fan_in_fan_out=True)),
    "dora": ("llama", dict(r=2, lora_alpha=3, use_dora=True, target_modules=["q_proj", "v_proj", "down_proj"])),
    "dora_transposed": ("gpt2", dict(r=2, lora_alpha=3, use_dora=True, target_modules=["c_attn"],
                                     fan_in_fan_out=True)),
    "patterns": ("llama", dict(r=3, lora_alpha=5, target_modules=r".*\.(q_proj|mlp\.\w+_proj)",
                               exclude_modules=["layers.0.mlp.up_proj"],
                               rank_pattern={"down_proj": 2, r"layers\.1\.self_attn\.q_proj": 1},
                               alpha_pattern={"q_proj": 7})),
}


def stored_name(name):
    """As peft calls a parameter of its model in an adapter's file, without the prefix."""
    name = name.removeprefix(PREFIX).replace(".modules_to_save", "").replace(".default", "")
    return name.removesuffix(".weight") if name.endswith("lora_magnitude_vector.weight") else name


def open_adapter(base, adapter):
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    stored = load_file(pathlib.Path(adapter) / "adapter_model.safetensors")
    held = {PREFIX + stored_name(k): v for k, v in model.state_dict().items()}
    for name, values in stored.items():
        assert torch.equal(held[name].float(), values), name
    ours = [k for k in held if ".lora_" in k]
    assert sorted(ours) == sorted(k for k in stored if ".lora_" in k)
    print(f"peft opened {adapter}: {len(stored)} tensors")


def compare_merged(base, adapter, folder):
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64), adapter)
    wanted = model.double().merge_and_unload().state_dict()
    found = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    assert found.keys() == wanted.keys()
    eps = max(torch.finfo(v.dtype).eps for v in found.values())
    for name, values in found.items():
        difference = ((values.double() - wanted[name]).abs() / wanted[name].abs().clamp(min=1e-3)).max().item()
        assert difference <= eps, (name, difference)
    print(f"peft merges to the same values: {len(found)} tensors, to {eps:.1e}")


def merged_weight(layer):
    """Of a layer of peft, as a function of the adapter's parameters."""
    weight, scale = layer.get_base_layer().weight, layer.scaling["default"]
    if isinstance(layer, Embedding):
        return weight + scale * (layer.lora_embedding_B["default"] @ layer.lora_embedding_A["default"]).T
    assert not layer.fan_in_fan_out
    whole = weight + scale * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    if "default" not in layer.lora_magnitude_vector:
        return whole
    magnitude = layer.lora_magnitude_vector["default"].weight
    return (magnitude / whole.norm(dim=1).detach())[:, None] * whole


def loss_of(base, model, data):
    config = model.config
    ids, labels = data["input_ids"][0].long(), data["labels"][0]
    as_peft = make_models.mean_loss(model(input_ids=ids).logits, labels)
    if base == "gpt2":
        return as_peft
    weights = {}
    for name, parameter in model.named_parameters():
        weights[name.removeprefix(PREFIX).replace("base_layer.", "")] = parameter
    for name, layer in model.named_modules():
        if isinstance(layer, LoraLayer):
            weights[name.removeprefix(PREFIX) + ".weight"] = merged_weight(layer)
    loss = make_models.mean_loss(make_models.WRITTEN_OUT[config.model_type](weights, config, ids), labels)
    trained = [p for p in model.parameters() if p.requires_grad]
    for ours, theirs in zip(torch.autograd.grad(loss, trained, retain_graph=True),
                            torch.autograd.grad(as_peft, trained)):
        assert (ours - theirs).norm() <= 1e-5 * ours.norm(), ((ours - theirs).norm() / ours.norm(), ours.shape)
    return loss


def make(root, case):
    base, said = CASES[case]
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_pretrained(root / base, dtype=torch.float64, attn_implementation="eager")
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **said)).double()
    model.peft_config["default"].base_model_name_or_path = f"tests/reference/{base}"
    trained = {k: p for k, p in model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for name, parameter in trained.items():
            values = 0.2 * torch.randn(parameter.shape)
            if "magnitude" in name:
                values = parameter * (1 + values)
            parameter.copy_(values.bfloat16().double())
    model.eval()
    loss = loss_of(base, model, load_file(root / base / "reference.safetensors"))
    loss.backward()
    references = {"loss": loss.detach().reshape(1)}
    for name, parameter in trained.items():
        references["grad." + stored_name(name)] = parameter.grad.clone()
    adapted = [k.removeprefix(PREFIX) for k, m in model.named_modules() if isinstance(m, LoraLayer)]
    merged = copy.deepcopy(model).merge_and_unload().state_dict()
    for name in adapted:
        if ".0." not in name:
            references[f"merged.{name}.weight"] = merged[name + ".weight"].float().contiguous()
    out = root / "peft" / case
    model.float().save_pretrained(out)
    (out / "README.md").unlink(missing_ok=True)
    save_file({k: v.contiguous() for k, v in references.items()}, out / "reference.safetensors")
    print(f"{case}: loss {loss.item():.12f}, {len(trained)} trained tensors")


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    for case in CASES:
        if len(sys.argv) < 3 or case in sys.argv[2:]:
            make(root, case)


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--open":
        open_adapter(sys.argv[2], sys.argv[3])
    elif len(sys.argv) == 5 and sys.argv[1] == "--merged":
        compare_merged(*sys.argv[2:])
    else:
        main()
