#!/usr/bin/env python3
"""ZeRO stage by stage beside DeepSpeed on one CPU machine: two ranks, the same model, the same JSON.

    python3 bench/compare/deepspeed_cpu.py --zinc build/release/zinc --json out.json

For every stage both programs train GPT-2 on random tokens with one configuration file: `mpirun -n 2
zinc train` and two processes under torch's launcher with DeepSpeed's CPU accelerator (gloo). They take
turns, stage by stage. Reported: tokens/s of the median step after the warm-up, and the peak resident
memory of a rank. Fewer blocks (--layers) than GPT-2's twelve keep the run short.
"""

import argparse
import json
import os
import random
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
VOCABULARY, SIZE, HEADS = 50257, 768, 12


def configuration(stage, batch):
    return {
        "train_micro_batch_size_per_gpu": batch,
        "gradient_accumulation_steps": 1,
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.01}},
        "zero_optimization": {"stage": stage},
    }


def deepspeed_rank(args):
    """One rank of the DeepSpeed side, started by torch.distributed.run."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    import torch

    from torch_train import Gpt2

    torch.set_num_threads(max(1, os.cpu_count() // 2))
    deepspeed.init_distributed(dist_backend="gloo")
    with open(args.config) as file:
        config = json.load(file)
    torch.manual_seed(7)
    model = Gpt2(SIZE, args.layers, HEADS, 1024)
    engine, _, _, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config)
    seconds = []
    for step in range(args.steps):
        ids = torch.randint(VOCABULARY, (args.batch, args.seq + 1))
        begin = time.perf_counter()
        loss = engine(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        engine.backward(loss)
        engine.step()
        loss.item()
        seconds.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if int(os.environ["RANK"]) == 0:
        with open(args.result, "w") as file:
            json.dump({"seconds": seconds, "rss_kib": peak, "deepspeed": deepspeed.__version__}, file)


def run_deepspeed(args, folder, config):
    result = os.path.join(folder, "deepspeed.json")
    environment = dict(os.environ, DS_ACCELERATOR="cpu", OMP_NUM_THREADS=str(max(1, os.cpu_count() // 2)))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
               "--master-port", str(random.randint(20000, 40000)), os.path.abspath(__file__),
               "--rank", "--config", config, "--result", result, "--steps", str(args.steps),
               "--batch", str(args.batch), "--seq", str(args.seq), "--layers", str(args.layers)]
    with open(os.path.join(folder, "deepspeed.log"), "w") as log:
        done = subprocess.run(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        with open(os.path.join(folder, "deepspeed.log")) as log:
            raise RuntimeError("DeepSpeed failed:\n" + log.read()[-3000:])
    with open(result) as file:
        return json.load(file)


def run_zinc(args, folder, config):
    out = os.path.join(folder, "zinc-run")
    model = os.path.join(folder, "model.json")
    with open(model, "w") as file:
        json.dump({"model_type": "gpt2", "vocab_size": VOCABULARY, "n_positions": 1024, "n_embd": SIZE,
                   "n_layer": args.layers, "n_head": HEADS, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
                   "attn_pdrop": 0.0}, file)
    data = os.path.join(folder, "tokens.bin")  # llm.c's format: 256 words of header, 16-bit tokens
    if not os.path.exists(data):
        count = 400_000
        draw = random.Random(7)
        with open(data, "wb") as file:
            file.write(struct.pack("<256i", 20240520, 1, count, *([0] * 253)))
            file.write(struct.pack(f"<{count}H", *(draw.randrange(VOCABULARY) for _ in range(count))))
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    peaks = [os.path.join(folder, f"rss.{rank}") for rank in range(2)]
    timed = 'exec /usr/bin/time -f %M -o "$0.$OMPI_COMM_WORLD_RANK" "$@"'
    command = ["mpirun", "--oversubscribe", "-n", "2", "sh", "-c", timed, os.path.join(folder, "rss"), args.zinc, "train",
               "--config", config, "--model", model, "--data", data, "--seq", str(args.seq),
               "--steps", str(args.steps), "--out", out, "--force"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError("zinc failed:\n" + done.stderr[-3000:])
    with open(os.path.join(out, "metrics.jsonl")) as file:
        seconds = [json.loads(line)["seconds"] for line in file]
    return {"seconds": seconds, "rss_kib": max(int(open(peak).read()) for peak in peaks)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--zinc", default="build/release/zinc")
    parser.add_argument("--stages", default="0,1,2,3")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--warmup", type=int, default=3, help="steps that do not count")
    parser.add_argument("--json")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--config", help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        deepspeed_rank(args)
        return
    if args.steps <= args.warmup:
        parser.error("--steps must be more than --warmup")

    report = {"batch": args.batch, "seq": args.seq, "layers": args.layers, "ranks": 2, "stages": []}
    tokens = 2 * args.batch * args.seq
    with tempfile.TemporaryDirectory() as folder:
        for stage in map(int, args.stages.split(",")):
            config = os.path.join(folder, f"stage{stage}.json")
            with open(config, "w") as file:
                json.dump(configuration(stage, args.batch), file)
            row = {"stage": stage}
            for name, run in (("zinc", run_zinc), ("deepspeed", run_deepspeed)):
                found = run(args, folder, config)
                row[name] = {"seconds": found["seconds"],
                             "tokens_per_second": tokens / statistics.median(found["seconds"][args.warmup:]),
                             "peak_rss_mib": found["rss_kib"] / 1024}
                report.setdefault("deepspeed", found.get("deepspeed"))
            row["speedup"] = row["zinc"]["tokens_per_second"] / row["deepspeed"]["tokens_per_second"]
            report["stages"].append(row)
            print("stage {}: zinc {:.1f} tokens/s, {:.0f} MiB; deepspeed {:.1f} tokens/s, {:.0f} MiB; "
                  "{:.2f} x".format(stage, row["zinc"]["tokens_per_second"], row["zinc"]["peak_rss_mib"],
                                    row["deepspeed"]["tokens_per_second"],
                                    row["deepspeed"]["peak_rss_mib"], row["speedup"]), flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
