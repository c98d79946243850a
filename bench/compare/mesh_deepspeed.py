#!/usr/bin/env python3
"""DeepSpeed's data, pipeline and tensor ranks on the CPU: two processes, GPT-2, ZeRO stage 1, bf16.

    python3 bench/compare/mesh_deepspeed.py --ranks pipe --model gpt2 --steps 7

A step trains --sequences random sequences in micro-batches of one: half of them on each of two data
ranks, all of them through the two stages of a PipelineModule (tied embeddings, the first --split
blocks in the first stage) or on two AutoTP ranks (which cut blocks and vocabulary). Each process
has one thread; the backend is gloo. Prints the median step after --warmup steps, and of each rank
the peak resident memory and the processor time of such a step (a rank that waits uses none).
"""

import argparse
import functools
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

MODELS = {"tiny": (64, 4, 4, 512), "gpt2": (768, 12, 12, 50257)}  # size, blocks, heads, vocabulary


def configuration(args):
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": args.sequences // (2 if args.ranks == "data" else 1),
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.01}},
        "zero_optimization": {"stage": args.stage},
    }
    if args.grad_dtype:
        config["data_types"] = {"grad_accum_dtype": args.grad_dtype}
    if args.ranks == "tensor":
        cuts = [{"patterns": [r".*\.up\.weight$"], "partition_type": "column"},
                {"patterns": [r".*\.(project|down)\.weight$"], "partition_type": "row"},
                {"patterns": [r".*\.qkv\.weight$"], "partition_type": "column",
                 "shape": [3, -1], "partition_dim": 0}]  # the rows of q, of k, of v
        config["tensor_parallel"] = {
            "autotp_size": 2, "vocab_parallel_lm_head": not args.whole_vocabulary,
            "partition_config": {"use_default_specs": False, "layer_specs": cuts}}
    return config


def train(args):
    """One of the two processes, started by torch.distributed.run."""
    import deepspeed
    import torch
    from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
    from torch import nn
    from torch.nn import functional as F

    size, blocks, heads, vocabulary = MODELS[args.model]

    class Table(nn.Embedding):
        def reset_parameters(self):
            nn.init.normal_(self.weight, std=0.02)

    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.wpe = Table(1024, size)

        def forward(self, x):
            return x + self.wpe(torch.arange(x.shape[1]))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(size), nn.LayerNorm(size)
            self.qkv, self.project = nn.Linear(size, 3 * size), nn.Linear(size, size)
            self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

        def forward(self, x):
            parts = self.qkv(self.ln_1(x)).unflatten(2, (3, -1, size // heads))
            q, k, v = parts.permute(2, 0, 3, 1, 4)  # as many heads as AutoTP left here
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.project(mixed.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))

    class Chunk(nn.Sequential):
        def __init__(self, *parts):
            super().__init__(*(part() for part in parts))

    def last_norm():
        return nn.LayerNorm(size)

    def loss_of(logits, shift_labels):
        return F.cross_entropy(logits.float().flatten(0, 1), shift_labels.flatten())

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = Table(vocabulary, size)
            self.body = Chunk(Positions, *[Block] * blocks, last_norm)
            self.lm_head = nn.Linear(size, vocabulary, bias=False)
            self.lm_head.weight = self.wte.weight
            self.loss_function = loss_of  # AutoTP puts its own here when it cuts the vocabulary

        def forward(self, ids, labels):
            logits = self.lm_head(self.body(self.wte(ids)))
            return self.loss_function(logits, shift_labels=labels)

    def pipeline():
        split = blocks // 2 if args.split is None else args.split
        table = functools.partial(TiedLayerSpec, "wte", Table, vocabulary, size)
        return PipelineModule(
            [table(), LayerSpec(Chunk, Positions, *[Block] * split),
             LayerSpec(Chunk, *[Block] * (blocks - split), last_norm),
             table(forward_fn=lambda table, x: F.linear(x, table.weight))],
            num_stages=2, loss_fn=loss_of, partition_method="uniform")  # two layers each

    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(7)
    model = pipeline() if args.ranks == "pipe" else Gpt2()
    engine = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=configuration(args))[0]
    number = int(os.environ["RANK"])
    torch.manual_seed(11 + (number if args.ranks == "data" else 0))
    seconds, processor = [], []
    for _ in range(args.steps):
        batches = []
        for _ in range(engine.gradient_accumulation_steps()):
            ids = torch.randint(vocabulary, (1, args.seq + 1))
            batches.append((ids[:, :-1].contiguous(), ids[:, 1:].contiguous()))
        torch.distributed.barrier()
        begin, used = time.perf_counter(), time.process_time()
        if args.ranks == "pipe":
            loss = engine.train_batch(iter(batches))
        else:
            for ids, labels in batches:
                loss = engine(ids, labels)
                engine.backward(loss)
                engine.step()
        loss = loss.item()
        processor.append(time.process_time() - used)
        torch.distributed.barrier()
        seconds.append(time.perf_counter() - begin)
    with open(f"{args.result}.{number}", "w") as file:
        json.dump({"seconds": seconds, "processor": processor, "loss": loss,
                   "weights": sum(weight.numel() for weight in engine.module.parameters()),
                   "rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                   "deepspeed": deepspeed.__version__, "torch": torch.__version__}, file)


def start(args, folder):
    """Trains in two processes; what each of them found."""
    result = os.path.join(folder, "rank")
    environment = dict(os.environ, DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
               "--master-port", str(random.randint(20000, 40000)), os.path.abspath(__file__),
               *sys.argv[1:], "--result", result]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError("DeepSpeed failed:\n" + done.stdout[-6000:])
    ranks = []
    for number in range(2):
        with open(f"{result}.{number}") as file:
            ranks.append(json.load(file))
    return ranks


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", choices=["data", "pipe", "tensor"], required=True)
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=2, help="steps that do not count")
    parser.add_argument("--sequences", type=int, default=8, help="of a step, on all ranks")
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--stage", type=int, default=1, help="of ZeRO")
    parser.add_argument("--split", type=int, help="blocks in the first of two stages (half of all)")
    parser.add_argument("--grad-dtype", help="DeepSpeed's data_types.grad_accum_dtype (bf16)")
    parser.add_argument("--whole-vocabulary", action="store_true", help="AutoTP leaves it uncut")
    parser.add_argument("--json")
    parser.add_argument("--result", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.result:
        train(args)
        return
    if args.steps <= args.warmup:
        parser.error("--steps must be more than --warmup")

    def median(rank, what):
        return 1e3 * statistics.median(rank[what][args.warmup:])

    with tempfile.TemporaryDirectory() as folder:
        ranks = start(args, folder)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"arguments": vars(args), "ranks": ranks}, file, indent=1)
    first = ranks[0]
    print("{} ranks: {:.0f} ms a step ({}), loss {:.3f}; DeepSpeed {}, PyTorch {}".format(
        args.ranks, median(first, "seconds"), " ".join(f"{1e3 * s:.0f}" for s in first["seconds"]),
        first["loss"], first["deepspeed"], first["torch"]))
    for number, rank in enumerate(ranks):
        print("  rank {}: peak {:.0f} MiB, {:.1f} M weights, processor {:.0f} ms a step".format(
            number, rank["rss_kib"] / 1024, rank["weights"] / 1e6, median(rank, "processor")))


if __name__ == "__main__":
    main()
