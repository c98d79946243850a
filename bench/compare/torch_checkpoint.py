"""Saves a GPT-2 124M's weights and Adam states with PyTorch, as `zinc bench checkpoint` does with zinc.

    python bench/compare/torch_checkpoint.py --path DIR [--rounds 5]

Times, each the median: torch.save to one file, synced; torch.distributed.checkpoint, which syncs
its files; how long async_save keeps the caller; and a plain copy of as many bytes.
"""
import argparse
import os
import shutil
import statistics
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

WIDTH, LAYERS, VOCABULARY, POSITIONS = 768, 12, 50257, 1024


def shapes():
    yield "wte", (VOCABULARY, WIDTH)
    yield "wpe", (POSITIONS, WIDTH)
    for layer in range(LAYERS):
        for name, shape in [
            ("ln_1.weight", (WIDTH,)), ("ln_1.bias", (WIDTH,)),
            ("attn.c_attn.weight", (WIDTH, 3 * WIDTH)), ("attn.c_attn.bias", (3 * WIDTH,)),
            ("attn.c_proj.weight", (WIDTH, WIDTH)), ("attn.c_proj.bias", (WIDTH,)),
            ("ln_2.weight", (WIDTH,)), ("ln_2.bias", (WIDTH,)),
            ("mlp.c_fc.weight", (WIDTH, 4 * WIDTH)), ("mlp.c_fc.bias", (4 * WIDTH,)),
            ("mlp.c_proj.weight", (4 * WIDTH, WIDTH)), ("mlp.c_proj.bias", (WIDTH,)),
        ]:
            yield f"h.{layer}.{name}", shape
    yield "ln_f.weight", (WIDTH,)
    yield "ln_f.bias", (WIDTH,)


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def save_file(state, path):
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    folder = os.path.join(arguments.path, "torch-bench-checkpoint")
    state = {f"{kind}.{name}": torch.full(shape, 0.5)
             for kind in ("weights", "exp_avg", "exp_avg_sq") for name, shape in shapes()}
    size = sum(tensor.numel() * 4 for tensor in state.values())
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29511", rank=0, world_size=1)
    source, copy = torch.ones(size // 4), torch.ones(size // 4)
    times = {"copy": [], "torch.save": [], "dcp.save": [], "dcp.async_save, stall": [],
             "dcp.async_save, to its end": []}
    for _ in range(arguments.rounds + 1):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        os.sync()
        times["copy"].append(timed(lambda: copy.copy_(source))[0])
        times["torch.save"].append(timed(lambda: save_file(state, folder + "/state.pt"))[0])
        times["dcp.save"].append(timed(lambda: dcp.save(state, checkpoint_id=folder + "/dcp"))[0])
        stall, future = timed(lambda: dcp.async_save(state, checkpoint_id=folder + "/async"))
        times["dcp.async_save, stall"].append(stall)
        times["dcp.async_save, to its end"].append(stall + timed(future.result)[0])
    shutil.rmtree(folder, ignore_errors=True)
    dist.destroy_process_group()
    print(f"torch {torch.__version__}, {size / 2**20:.1f} MiB")
    for name, seconds in times.items():
        print(f"{name:28} {1e3 * statistics.median(seconds[1:]):8.1f} ms")


if __name__ == "__main__":
    main()
