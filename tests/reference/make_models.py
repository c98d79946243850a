#!/usr/bin/env python3
"""Makes the stored references of the parity tests: a tiny GPT-2 and a tiny Llama, in f64.

    python3 tests/reference/make_models.py [directory of this file]

Needs torch, transformers and safetensors; the results are kept in the repository, so that neither
building nor testing zinc needs Python. For each model it writes a Hugging Face folder
(config.json, model.safetensors) and reference.safetensors with
    input_ids, labels   [S, B, T]  i32: S micro-batches; some labels are -100
    loss                [1]        f64: mean over the targets of micro-batch 0
    grad.<weight>                  f64: gradient of that mean
    losses              [steps]    f64: before each AdamW step; step i uses micro-batch i % S
transformers' Llama computes norms, rotary angles and softmax in f32 whatever the model's dtype, so the
Llama here is written out in f64 and only compared with transformers' (to 1e-5). All weights are exact in bf16, so that one reference serves f32 and bf16.
AdamW: lr 1e-3, betas (0.9, 0.95), eps 1e-8, decay 0.1 on weights with two dimensions, global norm
clipped at 1.
"""
import math
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

BATCHES, B, T, STEPS = 4, 3, 21, 100
VOCAB = 67


def configs():
    gpt2 = GPT2Config(vocab_size=VOCAB, n_positions=32, n_embd=48, n_layer=2, n_head=4,
                      embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, bos_token_id=None,
                      eos_token_id=None)
    llama = LlamaConfig(vocab_size=VOCAB, hidden_size=48, intermediate_size=80,
                        num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
                        max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=False,
                        rope_theta=10000.0, bos_token_id=None, eos_token_id=None,
                        rope_scaling={"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                                      "high_freq_factor": 4.0,
                                      "original_max_position_embeddings": 16})
    return {"gpt2": (GPT2LMHeadModel, gpt2), "llama": (LlamaForCausalLM, llama)}


def batches():
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(0, VOCAB, (BATCHES, B, T), generator=generator)
    labels = torch.randint(0, VOCAB, (BATCHES, B, T), generator=generator)
    labels[:, 1, 17:] = -100
    labels[2, 0, :5] = -100
    return ids, labels


def mean_loss(model, ids, labels):
    logits = model(input_ids=ids).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten().long(),
                                             ignore_index=-100)


def llama_frequencies(config):
    """Rotary frequencies with Llama 3 scaling, in f64."""
    rope = getattr(config, "rope_parameters", None) or config.rope_scaling
    theta = rope.get("rope_theta", getattr(config, "rope_theta", 10000.0))
    dims = config.head_dim
    frequency = theta ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)
    wavelength = 2 * math.pi / frequency
    length = rope["original_max_position_embeddings"]
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    ramp = ((length / wavelength - low) / (high - low)).clamp(0, 1)
    return (1 - ramp) * frequency / factor + ramp * frequency


def llama_loss(weights, config, ids, labels):
    def rms(x, gamma):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + config.rms_norm_eps) * gamma

    def heads(x, count):
        return x.reshape(*x.shape[:-1], count, config.head_dim).transpose(1, 2)

    length = ids.shape[1]
    angle = torch.arange(length, dtype=torch.float64)[:, None] * llama_frequencies(config)
    cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)

    def rotate(x):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    hidden = weights["model.embed_tokens.weight"][ids.long()]
    mask = torch.full((length, length), -math.inf, dtype=torch.float64).triu(1)
    for i in range(config.num_hidden_layers):
        w = {k.split(f"layers.{i}.")[1]: v for k, v in weights.items() if f"layers.{i}." in k}
        x = rms(hidden, w["input_layernorm.weight"])
        q = rotate(heads(x @ w["self_attn.q_proj.weight"].T, config.num_attention_heads))
        k = rotate(heads(x @ w["self_attn.k_proj.weight"].T, config.num_key_value_heads))
        v = heads(x @ w["self_attn.v_proj.weight"].T, config.num_key_value_heads)
        repeat = config.num_attention_heads // config.num_key_value_heads
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(config.head_dim) + mask
        out = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        hidden = hidden + out @ w["self_attn.o_proj.weight"].T
        x = rms(hidden, w["post_attention_layernorm.weight"])
        gate = torch.nn.functional.silu(x @ w["mlp.gate_proj.weight"].T)
        hidden = hidden + (gate * (x @ w["mlp.up_proj.weight"].T)) @ w["mlp.down_proj.weight"].T
    logits = rms(hidden, weights["model.norm.weight"]) @ weights["lm_head.weight"].T
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten().long(),
                                             ignore_index=-100)


def make(name, kind, config, folder):
    torch.manual_seed(11)
    model = kind(config)
    with torch.no_grad():
        for key, value in model.named_parameters():
            # Away from the initial zeros and ones, so that every term of every formula counts.
            value.add_(0.05 * torch.randn_like(value)).copy_(value.bfloat16().float())
    folder.mkdir(parents=True, exist_ok=True)
    tied = config.tie_word_embeddings
    weights = {k: v.detach().clone().contiguous() for k, v in model.state_dict().items()
               if not (tied and k == "lm_head.weight") and ".attn.bias" not in k}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config.architectures = [kind.__name__]
    (folder / "config.json").write_text(config.to_json_string())

    ids, labels = batches()
    model.config._attn_implementation = "eager"
    as_published = mean_loss(model, ids[0], labels[0]).item()
    model = model.double()

    def loss_of(ids, labels):
        if name == "llama":
            return llama_loss(dict(model.named_parameters()), config, ids, labels)
        return mean_loss(model, ids, labels)

    loss = loss_of(ids[0], labels[0])
    assert abs(loss.item() - as_published) < 1e-5, (loss.item(), as_published)
    loss.backward()
    out = {"input_ids": ids.int(), "labels": labels.int(), "loss": loss.detach().reshape(1)}
    for key, value in model.named_parameters():
        out["grad." + key] = value.grad.clone()

    decayed = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                                   {"params": plain, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(ids[step % BATCHES], labels[step % BATCHES])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        losses.append(loss.item())
        optimizer.step()
    out["losses"] = torch.tensor(losses, dtype=torch.float64)
    save_file({k: v.contiguous() for k, v in out.items()}, folder / "reference.safetensors")
    print(name, "loss", losses[0], "->", losses[-1], "parameters",
          sum(p.numel() for p in model.parameters()))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    for name, (kind, config) in configs().items():
        make(name, kind, config, root / name)


if __name__ == "__main__":
    main()
