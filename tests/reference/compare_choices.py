#!/usr/bin/env python3
"""Scores questions with choices by EleutherAI's lm-evaluation-harness and by `zinc evaluate --metric
choice`, and compares the figures.

    python3 -m venv /tmp/lmeval && /tmp/lmeval/bin/pip install lm-eval tokenizers safetensors
    zinc train ... --tokenizer tests/reference/tokenizers/gpt2.json --out run   # a GPT-2
    /tmp/lmeval/bin/python tests/reference/compare_choices.py build/release/zinc run/final

The harness cuts, normalises and counts; the model behind it is a GPT-2 in f64 by numpy, written
here. Tokens of a text are those of the folder's tokenizer.json. The questions are made of random
words, and of letters of one to three bytes, so that lengths in characters and in bytes choose
differently: 300 of them with two to five choices. Prints a line for each figure and ends with 1 where
two differ. tests/reference/choices_result.txt holds what it printed.
"""

import json
import os
import random
import subprocess
import sys
import tempfile

import lm_eval
import numpy as np
from lm_eval.api.model import TemplateLM
from safetensors.numpy import load_file
from tokenizers import Tokenizer

FIGURES = ["acc", "acc_norm", "acc_bytes"]


class NumpyGpt2(TemplateLM):
    def __init__(self, folder):
        super().__init__()
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            self.config = json.load(file)
        weights = load_file(os.path.join(folder, "model.safetensors"))
        self.weights = {k.removeprefix("transformer."): v.astype(np.float64) for k, v in weights.items()}
        self.tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))

    @property
    def eot_token_id(self):
        return self.tokenizer.token_to_id("<|endoftext|>")

    def tok_encode(self, string, add_special_tokens=None, **_):
        return self.tokenizer.encode(string).ids

    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.config["layer_norm_epsilon"])
        return x * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def log_probabilities(self, tokens):
        heads, length = self.config["n_head"], len(tokens)
        x = self.weights["wte.weight"][tokens] + self.weights["wpe.weight"][:length]
        hidden = np.triu(np.full((length, length), -np.inf), 1)
        for layer in range(self.config["n_layer"]):
            at = f"h.{layer}."
            q, k, v = np.split(self.linear(self.norm(x, at + "ln_1"), at + "attn.c_attn"), 3, -1)
            q, k, v = (t.reshape(length, heads, -1).transpose(1, 0, 2) for t in (q, k, v))
            scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]) + hidden
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            mixed = (scores / scores.sum(-1, keepdims=True)) @ v
            x = x + self.linear(mixed.transpose(1, 0, 2).reshape(length, -1), at + "attn.c_proj")
            h = self.linear(self.norm(x, at + "ln_2"), at + "mlp.c_fc")
            h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
            x = x + self.linear(h, at + "mlp.c_proj")
        logits = self.norm(x, "ln_f") @ self.weights["wte.weight"].T
        logits = logits - logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def _loglikelihood_tokens(self, requests, **_):
        results = []
        for _, context, continuation in requests:
            tokens = (context + continuation)[-(self.config["n_positions"] + 1):]
            rows = self.log_probabilities(tokens[:-1])[-len(continuation):]
            sums = float(rows[np.arange(len(continuation)), continuation].sum())
            results.append((sums, bool((rows.argmax(-1) == continuation).all())))
        return results

    def loglikelihood_rolling(self, requests, **_):
        raise NotImplementedError

    def generate_until(self, requests, **_):
        raise NotImplementedError


def questions():
    words = "the of and to in that he shall unto for I his a LORD they be is him not them it with".split()
    letters = "qxzkvwjéüñßøåæ起初神创"
    choose = random.Random(7)
    made = []
    for _ in range(300):
        choices = []
        while len(choices) < choose.randint(2, 5):
            if choose.random() < 0.7:
                text = "".join(choose.choice(letters) for _ in range(choose.randint(1, 6)))
            else:
                text = " ".join(choose.choice(words) for _ in range(choose.randint(1, 6)))
            if text not in choices:
                choices.append(text)
        query = " ".join(choose.choice(words) for _ in range(choose.randint(1, 9)))
        made.append({"query": query + choose.choice(["", " ", "?"]), "choices": choices,
                     "gold": choose.randrange(len(choices))})
    return made


def harness(folder, path):
    task = {"task": "choices", "dataset_path": "json", "test_split": "test",
            "dataset_kwargs": {"data_files": {"test": path}}, "output_type": "multiple_choice",
            "doc_to_text": "{{query}}", "doc_to_choice": "{{choices}}", "doc_to_target": "{{gold}}",
            "metric_list": [{"metric": name, "aggregation": "mean", "higher_is_better": True}
                            for name in FIGURES]}
    done = lm_eval.simple_evaluate(model=NumpyGpt2(folder), tasks=[task], bootstrap_iters=0)
    return done["results"]["choices"]


def main():
    program, folder = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "choices.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            for question in questions():
                file.write(json.dumps(question, ensure_ascii=False) + "\n")
        done = subprocess.run([program, "evaluate", "--model", folder, "--data", path, "--metric",
                               "choice", "--json"], capture_output=True, text=True, check=True)
        ours, theirs = json.loads(done.stdout), harness(folder, path)
    differs = False
    print(f"lm-eval {lm_eval.__version__}, {ours['examples']} questions:")
    for name in FIGURES:
        their = theirs[name + ",none"]
        differs |= abs(ours[name] - their) > 1e-12
        print(f"  {name:9} zinc {ours[name]:.12f}  harness {their:.12f}")
    sys.exit(1 if differs else 0)


if __name__ == "__main__":
    main()
