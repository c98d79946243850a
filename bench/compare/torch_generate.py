#!/usr/bin/env python3
"""Reading prompts and writing texts beside PyTorch: zinc and transformers' generate() take turns.

    python3 bench/compare/torch_generate.py --zinc build/release/zinc --preset gpt2-124m --json out.json
    python3 bench/compare/torch_generate.py --preset llama-1b --prompt-tokens 256 --tokens 17

Same model with random weights, bf16 on both sides (PyTorch: weights in bf16, scaled_dot_product_attention),
the most likely token each time, keys and values kept. Prefill is the time to the first token, decode that
of the others. Batches of --batch texts take turns, and while one program works the other waits. Prints
medians, and ratios of paired rounds with the 95 % interval of the median (bootstrap); of zinc also what share
of the stream probe the weights are read at, and what a batch brings.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import torch
import transformers
from torch_train import FAMILIES, SIZES, config_of, interval_of_median, make_model


class FirstToken(transformers.StoppingCriteria):
    """Asked behind each token; keeps the time of the first."""

    def __init__(self):
        self.time = None

    def __call__(self, ids, scores, **_):
        if self.time is None:
            self.time = time.perf_counter()
        return torch.zeros(ids.shape[0], dtype=torch.bool)


class TorchWriter:
    def __init__(self, args):
        torch.manual_seed(7)
        self.args = args
        self.config = config_of(args.preset)
        self.model = make_model(self.config, torch.bfloat16).eval()

    def write(self, batch):
        """(prefill, decode) in seconds."""
        ids = torch.randint(self.config.vocab_size, (batch, self.args.prompt_tokens))
        first = FirstToken()
        begin = time.perf_counter()
        with torch.no_grad():
            self.model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=self.args.tokens,
                min_new_tokens=self.args.tokens, do_sample=False, use_cache=True, pad_token_id=0,
                stopping_criteria=transformers.StoppingCriteriaList([first]))
        return first.time - begin, time.perf_counter() - first.time


class ZincWriter:
    """`zinc bench generate --paced` says `zinc: ready` before a batch, and writes it when it reads a line."""

    def __init__(self, args):
        self.json = os.path.abspath("torch_generate_zinc.json")
        self.folder = tempfile.TemporaryDirectory()
        preset = args.preset
        if preset in FAMILIES:
            config_of(preset).save_pretrained(self.folder.name)
            preset = self.folder.name + "/config.json"
        command = [args.zinc, "bench", "generate", "--preset", preset, "--prompt-tokens",
                   str(args.prompt_tokens), "--tokens", str(args.tokens), "--batch",
                   ",".join(map(str, args.batch)), "--rounds", str(args.rounds), "--paced",
                   "--json", self.json]
        self.batches_left = (args.rounds + 1) * len(args.batch)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.read()

    def read(self):
        """Up to the next `ready`, or the last batch: (prefill, decode), none of the first round."""
        times = None
        for line in self.process.stdout:
            words = line.replace(",", "").split()
            if words[2:3] == ["prefill"] and words[4:5] == ["ms"]:
                times = float(words[3]) / 1e3, float(words[6]) / 1e3
                if self.batches_left == 0:
                    return times
            elif line.startswith("zinc: ready"):
                return times
        raise RuntimeError(f"zinc ended with status {self.process.wait()}")

    def write(self, _):
        self.batches_left -= 1
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.read()

    def result(self):
        self.process.stdin.close()
        for _ in self.process.stdout:
            pass
        self.process.wait()
        with open(self.json) as file:
            found = json.load(file)
        os.remove(self.json)
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--zinc", default="build/release/zinc")
    parser.add_argument("--preset", default="gpt2-124m", choices=[*SIZES, "llama-1b"])
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=33)
    parser.add_argument("--batch", type=lambda text: [int(n) for n in text.split(",")],
                        default=[1, 8])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    args = parser.parse_args()

    zinc, other = ZincWriter(args), TorchWriter(args)
    seconds = {batch: {"zinc": [], "torch": []} for batch in args.batch}
    for turn in range(args.rounds + 1):
        for batch in args.batch:
            theirs, ours = other.write(batch), zinc.write(batch)
            if turn == 0:
                continue
            seconds[batch]["torch"].append(theirs)
            seconds[batch]["zinc"].append(ours)
            print(f"round {turn} batch {batch}: prefill {1e3 * theirs[0]:9.1f} ms, zinc "
                  f"{1e3 * ours[0]:9.1f}; decode {1e3 * theirs[1]:9.1f} ms, zinc {1e3 * ours[1]:9.1f}",
                  flush=True)
    found = zinc.result()
    report = {"preset": args.preset, "prompt_tokens": args.prompt_tokens, "tokens": args.tokens,
              "torch": torch.__version__, "threads": torch.get_num_threads(), "zinc": found,
              "batches": {}}
    for batch in args.batch:
        own = next(one for one in found["batches"] if one["batch"] == batch)
        report["batches"][batch] = {"seconds": seconds[batch]}
        for part, name, count in ((0, "prefill", args.prompt_tokens), (1, "decode", args.tokens - 1)):
            theirs = [times[part] for times in seconds[batch]["torch"]]
            ours = [times[part] for times in seconds[batch]["zinc"]]
            ratios = [a / b for a, b in zip(theirs, ours)]
            low, high = interval_of_median(ratios)
            report["batches"][batch][name] = {"zinc_speedup": statistics.median(ratios),
                                              "zinc_speedup_interval": [low, high]}
            print(f"batch {batch} {name:7s}: torch {batch * count / statistics.median(theirs):9.1f} "
                  f"tokens/s, zinc {batch * count / statistics.median(ours):9.1f}: "
                  f"{statistics.median(ratios):.2f} x [{low:.2f}, {high:.2f}]")
        print(f"batch {batch}: weights are read at {100 * own['stream_share']:.0f} % of the stream")
    first, last = found["batches"][0], found["batches"][-1]
    print(f"decode of batch {last['batch']} is "
          f"{last['decode_tokens_per_second'] / first['decode_tokens_per_second']:.2f} x that of batch "
          f"{first['batch']}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
