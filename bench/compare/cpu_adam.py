#!/usr/bin/env python3
"""One AdamW step on the CPU: zinc, DeepSpeed's CPUAdam and torch.optim.AdamW take turns.

    python3 bench/compare/cpu_adam.py --zinc build/release/zinc --threads 2 --json out.json

One flat f32 array of 2^25 weights with f32 gradients and moments, weight decay 0.1, no low-precision
copy: the f32 entry of `zinc bench kernels --filter adamw`, which also measures a stream probe that
reads one array and updates three, as the step does. In every round each program steps for a while
as the others wait; prints medians of the rounds' times, and ratios of paired rounds with the 95 %
interval of their median (bootstrap). DeepSpeed is left out where it is not installed.
"""

import argparse
import json
import random
import statistics
import subprocess
import tempfile
import time

import torch

ELEMENTS = 1 << 25


def zinc_round(args):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [args.zinc, "bench", "kernels", "--filter", "^adamw forward f32", "--json", file.name]
        command += ["--threads", str(args.threads)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(file.name, encoding="utf-8") as text:
            row = json.load(text)["results"][0]
    if not row["verified"] or f"n={ELEMENTS}" not in row["shape"]:
        raise SystemExit(f"zinc benched something else: {row}")
    return row["median_us"] * 1e-6, row["percent_of_ceiling"]


class Stepper:
    def __init__(self, make):
        generator = torch.Generator().manual_seed(1)
        self.weights = torch.nn.Parameter(torch.rand(ELEMENTS, generator=generator) - 0.5)
        self.weights.grad = torch.rand(ELEMENTS, generator=generator) - 0.5
        self.optimizer = make([self.weights])
        self.optimizer.step()

    def round(self, seconds):
        times = []
        while sum(times) < seconds or len(times) < 3:
            start = time.perf_counter()
            self.optimizer.step()
            times.append(time.perf_counter() - start)
        return statistics.median(times)


def steppers():
    options = {"lr": 1e-3, "weight_decay": 0.1}
    made = {
        "torch foreach=False": Stepper(lambda p: torch.optim.AdamW(p, foreach=False, fused=False, **options)),
        "torch fused": Stepper(lambda p: torch.optim.AdamW(p, fused=True, **options)),
    }
    try:
        from deepspeed.ops.adam import DeepSpeedCPUAdam  # pylint: disable=import-outside-toplevel
    except ImportError:
        return made
    made["DeepSpeed CPUAdam"] = Stepper(lambda p: DeepSpeedCPUAdam(p, adamw_mode=True, **options))
    return made


def interval(values):
    source = random.Random(1)
    medians = sorted(
        statistics.median(source.choices(values, k=len(values))) for _ in range(2000)
    )
    return medians[50], medians[1949]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zinc", default="build/release/zinc")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.3, help="of stepping per program and round")
    parser.add_argument("--json")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    others = steppers()
    times = {"zinc": []} | {name: [] for name in others}
    percents = []
    for _ in range(args.rounds):
        seconds, percent = zinc_round(args)
        times["zinc"].append(seconds)
        percents.append(percent)
        for name, stepper in others.items():
            times[name].append(stepper.round(args.seconds))
    report = {"elements": ELEMENTS, "threads": args.threads, "zinc_percent_of_stream": statistics.median(percents)}
    print(f"{'':22} ms a step   zinc is faster by [95 %]")
    for name, values in times.items():
        ratios = [other / mine for other, mine in zip(values, times["zinc"])]
        low, high = interval(ratios)
        entry = {"ms": statistics.median(values) * 1e3, "ratio": statistics.median(ratios), "low": low, "high": high}
        report[name] = entry
        print(f"{name:22} {entry['ms']:9.2f}   {entry['ratio']:.2f} [{low:.2f}, {high:.2f}]")
    print(f"zinc reaches {report['zinc_percent_of_stream']:.0f} % of a stream probe with the same arrays")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=2)


if __name__ == "__main__":
    main()
