#!/usr/bin/env python3
"""The kernels of a run of `zinc bench kernels --device cuda --json FILE` beside PyTorch's on the same shapes.

    python3 bench/compare/torch_kernels.py --zinc kernels.json --json out.json

Eager and torch.compile, timed by CUDA events over runs that go round several sets of arrays, as zinc's
are; so on the same machine, but not at the same moment. Ops that PyTorch has no like of are left out.
"""

import argparse
import json
import re
import statistics

import torch
from torch.nn import functional as F

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def numbers(shape):
    return {key: int(value) for key, value in re.findall(r"([A-Za-z]+)=(\d+)", shape)}


def tensor(shape, dtype, gradient=False):
    return torch.empty(shape, dtype=dtype, device="cuda").uniform_(-1, 1).requires_grad_(gradient)


def backward_of(forward, inputs, dy_like):
    """A graph kept alive, and one call of its backward."""
    y = forward(*inputs)
    dy = torch.rand_like(y) if dy_like is None else dy_like
    return lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True)


def make(row):
    """A function that makes (a call, what torch.compile may take), or None for ops that are not here."""
    op, back, dtype, n = row["op"], row["pass"] == "backward", DTYPES[row["dtype"]], numbers(row["shape"])
    plain = {
        "gelu": (lambda x: F.gelu(x), 1),
        "swiglu": (lambda gate, up: F.silu(gate) * up, 2),
        "rmsnorm": (lambda x, w: F.rms_norm(x, x.shape[-1:], w), 1),
        "layernorm": (lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), 1),
        "softmax": (lambda x: torch.softmax(x, -1), 1),
    }
    if op in plain and row["pass"] in ("forward", "backward") and "rows" in n:
        forward, wide = plain[op]
        shapes = [(n["rows"], n["cols"])] * wide
        shapes += [(n["cols"],)] * {"rmsnorm": 1, "layernorm": 2}.get(op, 0)

        def one():
            inputs = [tensor(shape, dtype, back) for shape in shapes]
            return (backward_of(forward, inputs, None), None) if back else (forward, inputs)

        return one
    if op == "gemm" and row["pass"] in ("forward", "backward-x", "backward-w") and "accumulate" not in row["shape"]:
        a_t, b_t = row["shape"].split(",")[3][:2]
        a = (n["K"], n["M"]) if a_t == "T" else (n["M"], n["K"])
        b = (n["N"], n["K"]) if b_t == "T" else (n["K"], n["N"])
        product = lambda x, y: (x.T if a_t == "T" else x) @ (y.T if b_t == "T" else y)
        return lambda: (product, [tensor(a, dtype), tensor(b, dtype)])
    if op == "attention" and row["pass"] in ("forward", "backward"):
        causal = "causal" in row["shape"]
        attend = lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=n["H"] != n["G"])

        def one():
            inputs = [tensor((n["B"], n["T"], heads, n["D"]), dtype).transpose(1, 2).requires_grad_(back)
                      for heads in (n["H"], n["G"], n["G"])]
            return (backward_of(attend, inputs, None), None) if back else (attend, inputs)

        return one
    return None


def seconds(calls, budget):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample(runs):
        begin.record()
        for i in range(runs):
            calls[i % len(calls)]()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / runs

    sample(len(calls))
    runs = max(1, min(64, int(5e-4 / sample(len(calls)))))
    times = []
    while len(times) < 5 or (sum(times) * runs < budget and len(times) < 1000):
        times.append(sample(runs))
    return statistics.median(times)


def measure(row, maker, compiled, budget):
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    sets = max(1, min(16, int(2 * l2 / row["bytes"] + 1)))
    calls = []
    compiler = torch.compile if compiled else lambda f: f
    function = None
    for _ in range(sets):
        call, inputs = maker()
        if inputs is None:
            if compiled:
                return None
            calls.append(call)
        else:
            function = function or compiler(call)
            calls.append(lambda inputs=inputs: function(*inputs))
    return seconds(calls, budget)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--zinc", required=True, help="JSON of zinc bench kernels --device cuda")
    parser.add_argument("--json")
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--modes", default="eager,compile")
    args = parser.parse_args()
    with open(args.zinc) as file:
        rows = json.load(file)["results"]
    found = []
    print(f"{'kernel':64s} {'zinc us':>9s} {'eager us':>9s} {'compile us':>10s}  zinc is")
    for row in rows:
        maker = make(row)
        if maker is None:
            continue
        times = {}
        for mode in args.modes.split(","):
            try:
                took = measure(row, maker, mode == "compile", args.seconds)
            except (RuntimeError, TypeError) as error:  # out of memory, an op this version lacks
                print(f"{row['op']} {row['pass']} {mode}: {str(error).splitlines()[0]}")
                took = None
            if took is not None:
                times[mode] = 1e6 * took
            torch.cuda.empty_cache()
        if not times:
            continue
        best = min(times.values())
        name = f"{row['op']} {row['pass']} {row['dtype']} {row['shape']}"
        show = [f"{times[mode]:.1f}" if mode in times else "-" for mode in ("eager", "compile")]
        print(f"{name:64s} {row['median_us']:9.1f} {show[0]:>9s} {show[1]:>10s}  {best / row['median_us']:.2f} x",
              flush=True)
        found.append({"kernel": name, "zinc_us": row["median_us"], "torch_us": times,
                      "zinc_speedup": best / row["median_us"]})
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"torch": torch.__version__, "gpu": torch.cuda.get_device_name(0), "kernels": found},
                      file, indent=1)


if __name__ == "__main__":
    main()
