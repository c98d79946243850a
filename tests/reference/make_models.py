#!/usr/bin/env python3
"""Makes the stored references of the parity tests: one tiny model of each decoder family, in f64.

    python3 tests/reference/make_models.py [directory of this file] [names of models]

Needs torch, transformers and safetensors; the results are kept in the repository, so that neither
building nor testing zinc needs Python. For each model it writes a Hugging Face folder
(config.json, model.safetensors) and reference.safetensors with
    input_ids, labels   [S, B, T]  i32: S micro-batches; some labels are -100
    loss                [1]        f64: mean over the targets of micro-batch 0
    logits              [B, V]     f64: of the last position of each row of micro-batch 0
    grad.<weight>                  f64: gradient of that mean
    off_bf16.<weight>   [1]        f64: how far PyTorch's own gradient in bf16 is off, relative,
                                   where that is more than the tests allow
    losses              [steps]    f64: before each AdamW step; step i uses micro-batch i % S
transformers computes norms, rotary angles and softmax in f32 whatever the model's dtype, so that all
but GPT-2 are written out in f64 here and only compared with transformers' (to 1e-5). All weights are
exact in bf16, so that one reference serves f32 and bf16.
AdamW: lr 1e-3, betas (0.9, 0.95), eps 1e-8, decay 0.1 on weights with two dimensions, global norm
clipped at 1.
"""
import copy
import math
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

BATCHES, B, T = 4, 3, 21
VOCAB = 67


class ChatGlmConfig(transformers.PretrainedConfig):
    """transformers has no ChatGLM: the keys of its published config.json."""
    model_type = "chatglm"


class ChatGLMForConditionalGeneration(torch.nn.Module):
    """Weights by their published names. What it computes is what transformers' GLM-4 does, which has
    the same layers under other names."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        head = config.hidden_size // config.num_attention_heads
        qkv = (config.num_attention_heads + 2 * config.multi_query_group_num) * head
        C, F = config.hidden_size, config.ffn_hidden_size
        shapes = {"embedding.word_embeddings.weight": (config.padded_vocab_size, C),
                  "encoder.final_layernorm.weight": (C,),
                  "output_layer.weight": (config.padded_vocab_size, C)}
        for i in range(config.num_layers):
            for name, shape in {"input_layernorm.weight": (C,),
                                "self_attention.query_key_value.weight": (qkv, C),
                                "self_attention.query_key_value.bias": (qkv,),
                                "self_attention.dense.weight": (C, C),
                                "post_attention_layernorm.weight": (C,),
                                "mlp.dense_h_to_4h.weight": (2 * F, C),
                                "mlp.dense_4h_to_h.weight": (C, F)}.items():
                shapes[f"encoder.layers.{i}.{name}"] = shape
        self.transformer = torch.nn.Module()
        for name, shape in shapes.items():
            *path, last = name.split(".")
            module = self.transformer
            for part in path:
                if not hasattr(module, part):
                    module.add_module(part, torch.nn.Module())
                module = getattr(module, part)
            ones = len(shape) == 1 and last == "weight"
            value = torch.ones(shape) if ones else 0.02 * torch.randn(shape)
            module.register_parameter(last, torch.nn.Parameter(value))

    def as_glm(self):
        c, head = self.config, self.config.hidden_size // self.config.num_attention_heads
        model = transformers.GlmForCausalLM(transformers.GlmConfig(
            vocab_size=c.padded_vocab_size, hidden_size=c.hidden_size,
            intermediate_size=c.ffn_hidden_size, num_hidden_layers=c.num_layers,
            num_attention_heads=c.num_attention_heads, num_key_value_heads=c.multi_query_group_num,
            head_dim=head, partial_rotary_factor=0.5, rms_norm_eps=c.layernorm_epsilon,
            rope_theta=10000.0 * c.rope_ratio, attention_bias=c.add_qkv_bias, pad_token_id=None,
            tie_word_embeddings=False))
        names = {"model.embed_tokens": "embedding.word_embeddings", "lm_head": "output_layer",
                 "model.norm": "encoder.final_layernorm"}
        ours, theirs = self.transformer.state_dict(), {}
        for new, old in names.items():
            theirs[new + ".weight"] = ours[old + ".weight"]
        widths = [c.num_attention_heads * head] + 2 * [c.multi_query_group_num * head]
        for i in range(c.num_layers):
            w, to = layer(ours, f"encoder.layers.{i}."), f"model.layers.{i}."
            for kind in ("weight", "bias"):
                parts = w[f"self_attention.query_key_value.{kind}"].split(widths)
                for p, part in zip("qkv", parts):
                    theirs[f"{to}self_attn.{p}_proj.{kind}"] = part
            for new, old in {"self_attn.o_proj": "self_attention.dense",
                             "mlp.gate_up_proj": "mlp.dense_h_to_4h",
                             "mlp.down_proj": "mlp.dense_4h_to_h",
                             "input_layernorm": "input_layernorm",
                             "post_attention_layernorm": "post_attention_layernorm"}.items():
                theirs[f"{to}{new}.weight"] = w[old + ".weight"]
        model.load_state_dict(theirs)
        return model

    def forward(self, input_ids):
        return self.as_glm()(input_ids=input_ids)


def configs():
    """Name -> class of the model, its config, AdamW steps."""
    none = dict(bos_token_id=None, eos_token_id=None)
    llama3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    small = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                 num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, **none)
    fused = dict(vocab_size=VOCAB, hidden_size=48, **none)
    t = transformers
    return {
        "gpt2": (t.GPT2LMHeadModel, t.GPT2Config(
            vocab_size=VOCAB, n_positions=32, n_embd=48, n_layer=2, n_head=4, embd_pdrop=0.0,
            attn_pdrop=0.0, resid_pdrop=0.0, **none), 100),
        "llama": (t.LlamaForCausalLM, t.LlamaConfig(
            vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
            num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=64,
            rms_norm_eps=1e-5, tie_word_embeddings=False, rope_theta=10000.0, rope_scaling=llama3,
            **none), 100),
        "mistral": (t.MistralForCausalLM, t.MistralConfig(**small, sliding_window=5), 3),
        # The second layer alone has a window. A bias of keys has a gradient only as far as pairs turn:
        # with a large theta little is left of sums that cancel.
        "qwen2": (t.Qwen2ForCausalLM, t.Qwen2Config(
            **small, tie_word_embeddings=True, use_sliding_window=True, sliding_window=6,
            max_window_layers=1, rope_theta=500.0), 3),
        "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config(**small, head_dim=12, attention_bias=True), 3),
        "gpt_neox": (t.GPTNeoXForCausalLM, t.GPTNeoXConfig(
            **fused, intermediate_size=80, num_hidden_layers=2, num_attention_heads=3,
            max_position_embeddings=64, rotary_pct=0.25), 3),
        "gpt_neox_serial": (t.GPTNeoXForCausalLM, t.GPTNeoXConfig(
            **fused, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
            max_position_embeddings=64, rotary_pct=0.5, use_parallel_residual=False,
            attention_bias=False, hidden_act="gelu_new"), 3),
        # Three heads: no power of two.
        "bloom": (t.BloomForCausalLM, t.BloomConfig(**fused, n_layer=2, n_head=3), 3),
        "chatglm": (ChatGLMForConditionalGeneration, ChatGlmConfig(
            padded_vocab_size=VOCAB, hidden_size=48, ffn_hidden_size=40, num_layers=2,
            num_attention_heads=6, multi_query_attention=True, multi_query_group_num=2, kv_channels=8,
            seq_length=64, rope_ratio=0.5, add_qkv_bias=True, add_bias_linear=False, rmsnorm=True,
            post_layer_norm=True, layernorm_epsilon=1e-5, hidden_dropout=0.0, attention_dropout=0.0,
            tie_word_embeddings=False, bos_token_id=None, eos_token_id=2, pad_token_id=0), 3),
    }


def batches():
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(0, VOCAB, (BATCHES, B, T), generator=generator)
    labels = torch.randint(0, VOCAB, (BATCHES, B, T), generator=generator)
    labels[:, 1, 17:] = -100
    labels[2, 0, :5] = -100
    return ids, labels


def mean_loss(logits, labels):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten().long(),
                                             ignore_index=-100)


def layer(weights, prefix):
    return {k[len(prefix):]: v for k, v in weights.items() if k.startswith(prefix)}


def linear(x, w, name):
    y = x @ w[name + ".weight"].T
    return y + w[name + ".bias"] if name + ".bias" in w else y


def frequencies(config, dims):
    """Rotary frequencies, with Llama 3 scaling where there is any, in f64."""
    rope = getattr(config, "rope_parameters", None) or config.rope_scaling or {}
    theta = rope.get("rope_theta", getattr(config, "rope_theta", 10000.0))
    frequency = theta ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)
    if rope.get("rope_type", "default") == "default":
        return frequency
    wavelength = 2 * math.pi / frequency
    length = rope["original_max_position_embeddings"]
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    ramp = ((length / wavelength - low) / (high - low)).clamp(0, 1)
    return (1 - ramp) * frequency / factor + ramp * frequency


def rotate(x, config, dims):
    """The first `dims` of each head of x [B, H, T, D]."""
    angle = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * frequencies(config, dims)
    cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
    turned, rest = x[..., :dims], x[..., dims:]
    first, second = turned.chunk(2, -1)
    return torch.cat([turned * cos + torch.cat([-second, first], -1) * sin, rest], -1)


def attend(q, k, v, window=None, bias=None):
    """Causal attention of [B, H, T, D]; the result is [B, T, H * D]."""
    length = q.shape[2]
    distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
    hidden = (distance < 0) | (distance >= (window or length))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    scores = scores.masked_fill(hidden, -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def llama_logits(weights, config, ids):
    """Llama, Mistral, Qwen2 and Qwen3."""
    dims = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

    def rms(x, gamma):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + config.rms_norm_eps) * gamma

    def heads(x):
        return x.reshape(*x.shape[:-1], -1, dims).transpose(1, 2)

    def window(i):
        types = getattr(config, "layer_types", None)
        full = types is not None and types[i] == "full_attention"
        return None if full else getattr(config, "sliding_window", None)

    hidden = weights["model.embed_tokens.weight"][ids.long()]
    for i in range(config.num_hidden_layers):
        w = layer(weights, f"model.layers.{i}.")
        x = rms(hidden, w["input_layernorm.weight"])
        q, k, v = (heads(linear(x, w, f"self_attn.{p}_proj")) for p in "qkv")
        if "self_attn.q_norm.weight" in w:
            q, k = rms(q, w["self_attn.q_norm.weight"]), rms(k, w["self_attn.k_norm.weight"])
        q, k = rotate(q, config, dims), rotate(k, config, dims)
        repeat = config.num_attention_heads // config.num_key_value_heads
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        hidden = hidden + linear(attend(q, k, v, window(i)), w, "self_attn.o_proj")
        x = rms(hidden, w["post_attention_layernorm.weight"])
        gate = torch.nn.functional.silu(linear(x, w, "mlp.gate_proj"))
        hidden = hidden + linear(gate * linear(x, w, "mlp.up_proj"), w, "mlp.down_proj")
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return rms(hidden, weights["model.norm.weight"]) @ head.T


def norm(x, w, name, eps):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"],
                                          eps)


def fused_heads(qkv, count):
    """[B, T, 3 C] whose rows are [heads, 3, D]: q, k and v [B, H, T, D]."""
    return qkv.reshape(*qkv.shape[:-1], count, 3, -1).permute(3, 0, 2, 1, 4)


def gelu(x, name):
    return torch.nn.functional.gelu(x, approximate="none" if name == "gelu" else "tanh")


def neox_logits(weights, config, ids):
    eps, count = config.layer_norm_eps, config.num_attention_heads
    dims = int(config.hidden_size // count * config.rope_parameters["partial_rotary_factor"])
    x = weights["gpt_neox.embed_in.weight"][ids.long()]
    for i in range(config.num_hidden_layers):
        w = layer(weights, f"gpt_neox.layers.{i}.")
        qkv = linear(norm(x, w, "input_layernorm", eps), w, "attention.query_key_value")
        q, k, v = fused_heads(qkv, count)
        q, k = rotate(q, config, dims), rotate(k, config, dims)
        middle = x + linear(attend(q, k, v), w, "attention.dense")
        of = x if config.use_parallel_residual else middle
        inner = linear(norm(of, w, "post_attention_layernorm", eps), w, "mlp.dense_h_to_4h")
        x = middle + linear(gelu(inner, config.hidden_act), w, "mlp.dense_4h_to_h")
    return norm(x, weights, "gpt_neox.final_layer_norm", eps) @ weights["lm_head.weight"].T


def turn_neighbours(x, config, dims):
    """Of the first `dims` of each head of x [B, H, T, D] the pairs (2 j, 2 j + 1)."""
    theta = 10000.0 * config.rope_ratio
    frequency = theta ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)
    angle = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * frequency
    u, v = x[..., 0:dims:2], x[..., 1:dims:2]
    turned = torch.stack([u * angle.cos() - v * angle.sin(), u * angle.sin() + v * angle.cos()], -1)
    return torch.cat([turned.flatten(-2), x[..., dims:]], -1)


def chatglm_logits(weights, config, ids):
    count, groups = config.num_attention_heads, config.multi_query_group_num
    head, C = config.hidden_size // count, config.hidden_size

    def rms(x, gamma):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + config.layernorm_epsilon) * gamma

    def heads(x):
        return x.reshape(*x.shape[:-1], -1, head).transpose(1, 2)

    x = weights["transformer.embedding.word_embeddings.weight"][ids.long()]
    for i in range(config.num_layers):
        w = layer(weights, f"transformer.encoder.layers.{i}.")
        qkv = linear(rms(x, w["input_layernorm.weight"]), w, "self_attention.query_key_value")
        q, k, v = (heads(part) for part in qkv.split([C, groups * head, groups * head], -1))
        q, k = turn_neighbours(q, config, head // 2), turn_neighbours(k, config, head // 2)
        k, v = k.repeat_interleave(count // groups, 1), v.repeat_interleave(count // groups, 1)
        x = x + linear(attend(q, k, v), w, "self_attention.dense")
        inner = linear(rms(x, w["post_attention_layernorm.weight"]), w, "mlp.dense_h_to_4h")
        gate, up = inner.chunk(2, -1)
        x = x + linear(torch.nn.functional.silu(gate) * up, w, "mlp.dense_4h_to_h")
    x = rms(x, weights["transformer.encoder.final_layernorm.weight"])
    return x @ weights["transformer.output_layer.weight"].T


def alibi_slopes(count):
    power = 2 ** math.floor(math.log2(count))
    first = [2.0 ** (-8.0 * (h + 1) / power) for h in range(power)]
    more = [2.0 ** (-4.0 * (h + 1) / power) for h in range(0, 2 * power, 2)]
    return torch.tensor((first + more)[:count], dtype=torch.float64)


def bloom_logits(weights, config, ids):
    eps = config.layer_norm_epsilon
    slopes = alibi_slopes(config.n_head)
    bias = slopes[:, None, None] * torch.arange(ids.shape[1], dtype=torch.float64)
    table = weights["transformer.word_embeddings.weight"]
    x = norm(table[ids.long()], weights, "transformer.word_embeddings_layernorm", eps)
    for i in range(config.n_layer):
        w = layer(weights, f"transformer.h.{i}.")
        qkv = linear(norm(x, w, "input_layernorm", eps), w, "self_attention.query_key_value")
        q, k, v = fused_heads(qkv, config.n_head)
        x = x + linear(attend(q, k, v, bias=bias), w, "self_attention.dense")
        inner = linear(norm(x, w, "post_attention_layernorm", eps), w, "mlp.dense_h_to_4h")
        x = x + linear(gelu(inner, "tanh"), w, "mlp.dense_4h_to_h")
    return norm(x, weights, "transformer.ln_f", eps) @ table.T


WRITTEN_OUT = {"llama": llama_logits, "mistral": llama_logits, "qwen2": llama_logits,
               "qwen3": llama_logits, "gpt_neox": neox_logits, "bloom": bloom_logits,
               "chatglm": chatglm_logits}


def stored(name, config):
    """As transformers' save_pretrained() and published files call a weight."""
    renamed = config.model_type == "gpt_neox" and name == "lm_head.weight"
    return "embed_out.weight" if renamed else name


def make(name, kind, config, steps, folder):
    torch.manual_seed(11)
    model = kind(config)
    with torch.no_grad():
        for key, value in model.named_parameters():
            # Away from the initial zeros and ones, so that every term of every formula counts.
            value.add_(0.05 * torch.randn_like(value)).copy_(value.bfloat16().float())
    folder.mkdir(parents=True, exist_ok=True)
    tied = config.tie_word_embeddings
    weights = {stored(k, config): v.detach().clone().contiguous()
               for k, v in model.state_dict().items()
               if not (tied and k == "lm_head.weight") and ".attn.bias" not in k}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config.architectures = [kind.__name__]
    (folder / "config.json").write_text(config.to_json_string())

    ids, labels = batches()
    model.config._attn_implementation = "eager"
    as_published = mean_loss(model(input_ids=ids[0]).logits, labels[0]).item()
    rounded = copy.deepcopy(model).bfloat16()
    mean_loss(rounded(input_ids=ids[0]).logits.float(), labels[0]).backward()
    model = model.double()

    def logits_of(ids):
        if config.model_type not in WRITTEN_OUT:
            return model(input_ids=ids).logits
        return WRITTEN_OUT[config.model_type](dict(model.named_parameters()), config, ids)

    def loss_of(ids, labels):
        return mean_loss(logits_of(ids), labels)

    loss = loss_of(ids[0], labels[0])
    assert abs(loss.item() - as_published) < 1e-5, (loss.item(), as_published)
    loss.backward()
    out = {"input_ids": ids.int(), "labels": labels.int(), "loss": loss.detach().reshape(1),
           "logits": logits_of(ids[0])[:, -1].detach().clone()}
    for key, value in model.named_parameters():
        out["grad." + stored(key, config)] = value.grad.clone()
    for key, value in rounded.named_parameters():
        exact = out["grad." + stored(key, config)]
        off = (value.grad.double() - exact).norm() / exact.norm()
        if off > 2e-2:
            out["off_bf16." + stored(key, config)] = off.reshape(1)

    decayed = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                                   {"params": plain, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(steps):
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
    for name, (kind, config, steps) in configs().items():
        if len(sys.argv) < 3 or name in sys.argv[2:]:
            make(name, kind, config, steps, root / name)


if __name__ == "__main__":
    main()
