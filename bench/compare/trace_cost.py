#!/usr/bin/env python3
"""What a trace costs: `zinc bench train` with and without --trace, step by step in turn.

    bench/compare/trace_cost.py --zinc build/release/zinc --preset gpt2-124m --batch 1 --seq 256

The figure is the median over pairs of neighbouring steps. A pair is measured in both orders in turn,
so that what drifts in the machine falls out.
"""
import argparse
import re
import statistics
import subprocess
import tempfile


class Process:
    """One bench; runs a step whenever it is told to."""

    def __init__(self, words):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read_until_ready(self):
        seconds = None
        for line in self.process.stdout:
            if line.startswith("zinc: ready"):
                return seconds
            found = re.match(r"stage \d+ step\s+([0-9.]+) ms", line)
            if found:
                seconds = float(found.group(1)) / 1e3
        return seconds

    def step(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.read_until_ready()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zinc", default="build/release/zinc")
    parser.add_argument("--preset", default="gpt2-124m")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--stage", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        words = [args.zinc, "bench", "train", "--paced", "--preset", args.preset, "--batch", str(args.batch),
                 "--seq", str(args.seq), "--stages", str(args.stage), "--steps", str(args.steps)]
        plain = Process(words)
        traced = Process(words + ["--trace", folder + "/trace.json"])
        for process in (plain, traced):
            process.read_until_ready()
            process.step()  # warms up
        ratios = []
        for number in range(args.steps):
            order = (plain, traced) if number % 2 == 0 else (traced, plain)
            seconds = {process: process.step() for process in order}
            ratios.append(seconds[traced] / seconds[plain])
            print(f"without {seconds[plain]:.3f} s, with a trace {seconds[traced]:.3f} s", flush=True)
        for process in (plain, traced):
            process.process.stdin.close()
            process.process.wait()
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"with a trace: {middle:.4f} x (quartiles {low:.4f} to {high:.4f}, {len(ratios)} pairs)")


if __name__ == "__main__":
    main()
