#!/usr/bin/env python3
"""Training beside PyTorch: zinc, eager and torch.compile take turns, step by step.

    python3 bench/compare/torch_train.py --zinc build/release/zinc --preset gpt2-124m --json out.json
    python3 bench/compare/torch_train.py --preset roberta-base --batch 8 --seq 128
    python3 bench/compare/torch_train.py --preset llama-1b --lora q_proj,v_proj --batch 1 --seq 256

Same model, shapes, dtypes and optimizer on both sides: bf16 (PyTorch: autocast over f32 weights, its
documented way on a CPU; scaled_dot_product_attention; fused AdamW), the mean cross-entropy of all
tokens, clipping to a norm of 1, no dropout anywhere. T5 reads and answers texts of --seq tokens;
RoBERTa has a target at every token. GPT-2 is written here; the other models are transformers', with
random weights. With --lora adapters of rank 8 are trained, by peft over a base in bf16. All programs
stay loaded and each step runs while the others wait, so that a slow phase of the machine hits them
alike. Prints medians, and ratios of paired steps with the 95 % interval of the median (bootstrap).
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F

SIZES = {  # hidden size, layers, heads
    "gpt2-124m": (768, 12, 12),
    "gpt2-350m": (1024, 24, 16),
    "gpt2-774m": (1280, 36, 20),
    "gpt2-1.5b": (1600, 48, 25),
}
VOCABULARY = 50257
FAMILIES = ["t5-small", "roberta-base", "llama-1b"]
LORA = {"r": 8, "lora_alpha": 16, "lora_dropout": 0.0}


def config_of(preset):
    """transformers' config of a preset, without dropout."""
    import transformers
    if preset == "t5-small":
        return transformers.T5Config(dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0,
                                     architectures=["T5ForConditionalGeneration"])
    if preset == "roberta-base":
        return transformers.RobertaConfig(
            vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            architectures=["RobertaForMaskedLM"])
    if preset == "llama-1b":
        return transformers.LlamaConfig(
            vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
            num_attention_heads=32, num_key_value_heads=8, head_dim=64, rms_norm_eps=1e-5,
            max_position_embeddings=131072, rope_theta=500000.0, tie_word_embeddings=True,
            architectures=["LlamaForCausalLM"])
    size, layers, heads = SIZES[preset]
    return transformers.GPT2Config(
        n_embd=size, n_layer=layers, n_head=heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        architectures=["GPT2LMHeadModel"])


def make_model(config, dtype=torch.float32):
    """With random weights, as transformers makes them."""
    import transformers
    kind = getattr(transformers, config.architectures[0])
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return kind(config)
    finally:
        torch.set_default_dtype(before)


class OfFamily(nn.Module):
    """A model of transformers; its loss is the mean over `labels`."""

    def __init__(self, args):
        super().__init__()
        self.config = config_of(args.preset)
        self.model = make_model(self.config, torch.bfloat16 if args.lora else torch.float32)
        self.model.config.use_cache = False
        if args.lora:
            import peft
            self.model = peft.get_peft_model(
                self.model, peft.LoraConfig(target_modules=args.lora.split(","), **LORA))

    def forward(self, ids, labels):
        if self.config.model_type in ("gpt2", "llama"):  # the model shifts labels itself
            logits = self.model(input_ids=ids).logits
            return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
        return self.model(input_ids=ids, labels=labels).loss


class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.project = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x):
        batch, tokens, size = x.shape
        q, k, v = (
            part.view(batch, tokens, self.heads, size // self.heads).transpose(1, 2)
            for part in self.qkv(self.ln_1(x)).split(size, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, tokens, size))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, size, layers, heads, positions):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, size), nn.Embedding(positions, size)
        self.blocks = nn.ModuleList(Block(size, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(size)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


class TorchTrainer:
    def __init__(self, args, compiled):
        torch.manual_seed(7)
        self.device = args.device
        if args.preset in SIZES and not args.lora:
            self.model = Gpt2(*SIZES[args.preset], max(1024, args.seq))
            vocabulary = VOCABULARY
        else:
            self.model = OfFamily(args)
            vocabulary = self.model.config.vocab_size
        self.model.to(self.device)
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        decay = [p for p in self.trained if p.dim() >= 2]
        rest = [p for p in self.trained if p.dim() < 2]
        groups = [{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3, fused=True)
        self.loss = torch.compile(self.model) if compiled else self.model
        ids = torch.randint(vocabulary, (args.batch, args.seq + 1), device=self.device)
        self.ids, self.labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def step(self):
        begin = time.perf_counter()
        with torch.autocast(self.device, dtype=torch.bfloat16):
            loss = self.loss(self.ids, self.labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss.item()
        return time.perf_counter() - begin


class ZincTrainer:
    """`zinc bench train --paced` says `zinc: ready` before a step and runs it when it reads a line."""

    def __init__(self, args):
        self.json = os.path.abspath("torch_train_zinc.json")
        self.steps_left = args.warmup + args.steps  # the first is untimed and prints no time
        self.folder = tempfile.TemporaryDirectory()
        preset = args.preset
        if preset in FAMILIES:
            config_of(preset).save_pretrained(self.folder.name)
            preset = self.folder.name + "/config.json"
        command = [args.zinc, "bench", "train", "--preset", preset, "--dtype", "bf16",
                   "--device", args.device, "--batch", str(args.batch), "--seq", str(args.seq),
                   "--steps", str(self.steps_left - 1), "--paced", "--json", self.json]
        if args.lora:
            command += ["--lora", f"r={LORA['r']},alpha={LORA['lora_alpha']},targets={args.lora}"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.wait_until_ready()

    def wait_until_ready(self):
        """Reads up to the next `ready`, or up to the time of the last step; returns the seconds."""
        seconds = None
        for line in self.process.stdout:
            words = line.split()
            if words[:1] == ["stage"] and words[2] == "step":
                seconds = float(words[3]) / 1e3
                if self.steps_left == 0:
                    return seconds
            elif line.startswith("zinc: ready"):
                return seconds
        raise RuntimeError(f"zinc ended with status {self.process.wait()}")

    def step(self):
        self.steps_left -= 1
        begin = time.perf_counter()
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        seconds = self.wait_until_ready()
        return time.perf_counter() - begin if seconds is None else seconds

    def result(self):
        self.process.stdin.close()
        for _ in self.process.stdout:
            pass
        self.process.wait()
        with open(self.json) as file:
            found = json.load(file)
        os.remove(self.json)
        return found


def interval_of_median(values, runs=2000):
    draw = random.Random(7)
    medians = sorted(
        statistics.median(draw.choices(values, k=len(values))) for _ in range(runs)
    )
    return medians[int(0.025 * runs)], medians[int(0.975 * runs)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--zinc", default="build/release/zinc")
    parser.add_argument("--preset", default="gpt2-124m", choices=[*SIZES, *FAMILIES])
    parser.add_argument("--lora", help="modules that get adapters, as in q_proj,v_proj")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--modes", default="eager,compile")
    parser.add_argument("--json")
    args = parser.parse_args()

    runners = {mode: TorchTrainer(args, compiled=mode == "compile") for mode in args.modes.split(",")}
    runners["zinc"] = ZincTrainer(args)  # last: it measures its ceiling after its last step
    seconds = {name: [] for name in runners}
    for turn in range(args.warmup + args.steps):
        for name, runner in runners.items():
            took = runner.step()
            if turn >= args.warmup:
                seconds[name].append(took)
            print(f"turn {turn:2d} {name:8s} {1e3 * took:9.1f} ms", flush=True)

    tokens = args.batch * args.seq
    report = {"preset": args.preset, "lora": args.lora, "device": args.device, "batch": args.batch, "seq": args.seq,
              "torch": torch.__version__, "threads": torch.get_num_threads(),
              "zinc": runners["zinc"].result(), "programs": {}}
    for name, values in seconds.items():
        median = statistics.median(values)
        ratios = [other / own for other, own in zip(values, seconds["zinc"])]
        low, high = interval_of_median(ratios)
        report["programs"][name] = {
            "step_seconds": values, "tokens_per_second": tokens / median,
            "zinc_speedup": statistics.median(ratios), "zinc_speedup_interval": [low, high]}
        print(f"{name:8s} {tokens / median:9.1f} tokens/s   zinc is {statistics.median(ratios):.2f} x "
              f"[{low:.2f}, {high:.2f}]")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
