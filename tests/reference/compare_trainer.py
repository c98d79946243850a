"""Learns byte-level BPE vocabularies of a text by `zinc tokenize train` and by Hugging Face's trainer,
and compares merges and ids.

Needs: tokenizers. Run from the root of the tree:
  python tests/reference/compare_trainer.py ZINC TEXT
ZINC: the built command. TEXT: a file to learn from (.cache/kjv.txt). Exit status 1 where anything
differs. tests/reference/tokenizers_result.txt holds what it printed.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import make_tokenizers  # noqa: E402
import tokenizers  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # noqa: E402

PATTERNS = {"gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
            "llama3": make_tokenizers.split(make_tokenizers.LLAMA3),
            "qwen2": make_tokenizers.split(make_tokenizers.QWEN2)}


def learned_by_zinc(zinc, text, pattern, size):
    with tempfile.TemporaryDirectory() as folder:
        start = time.time()
        subprocess.check_call([zinc, "tokenize", "train", text, "--out", folder, "--pattern", pattern,
                               "--vocabulary", str(size)], stdout=subprocess.DEVNULL)
        seconds = time.time() - start
        with open(folder + "/tokenizer.json", encoding="utf-8") as f:
            return json.load(f)["model"], seconds


def learned_by_hugging_face(text, pre_tokenizer, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    start = time.time()
    tokenizer.train([text], trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return json.loads(tokenizer.to_str())["model"], time.time() - start


def main():
    zinc, text = sys.argv[1], sys.argv[2]
    failed = False
    for pattern, pre_tokenizer in PATTERNS.items():
        for size in (1000, 8000, 30000):
            ours, our_seconds = learned_by_zinc(zinc, text, pattern, size)
            theirs, their_seconds = learned_by_hugging_face(text, pre_tokenizer, size)
            equal = all([ours["merges"] == theirs["merges"], ours["vocab"] == theirs["vocab"]])
            print("%-6s %5d tokens, %5d merges: %s; zinc %.1f s, tokenizers %s %.1f s" % (
                pattern, size, len(theirs["merges"]), "equal" if equal else "DIFFERENT", our_seconds,
                tokenizers.__version__, their_seconds), flush=True)
            failed = failed or not equal
    sys.exit(1 if failed else 0)


main()
