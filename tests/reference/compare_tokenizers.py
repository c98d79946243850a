"""Compares `zinc tokenize encode` with Hugging Face's tokenizers on many random texts, and measures
both.

Needs: tokenizers, sentencepiece. Run from the root of the tree:
  python tests/reference/compare_tokenizers.py ZINC TEXT COUNT [KIND...]
ZINC: the built command. TEXT: a file to train on and to draw from (.cache/kjv.txt). COUNT: random
texts for each kind. KIND: names of make_tokenizers.py (default: all). Exit status 1 where ids differ.

Speeds are of one thread on the lines of the text, by processor time, in turn, the best of five rounds of
each, every round with a tokenizer that has seen nothing. tests/reference/tokenizers_result.txt holds what was
printed.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import make_tokenizers  # noqa: E402
import tokenizers  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

BLOCKS = [(0x20, 0x7F), (0x20, 0x7F), (0, 0x250), (0x250, 0x600), (0x600, 0x1000), (0x1000, 0x2000),
          (0x2000, 0x2100), (0x3000, 0x3400), (0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0xF900, 0xFFFF),
          (0x10000, 0x20000), (0x20000, 0x30000), (0, 0x110000)]
SPACES = " \n\r\t\u00a0\u2003\u3000\u0085\x0b\x0c\u180e\u200b"
ODD = ["'s", "'S", "'re", "'LL", "'\u017f", "don't", "''", "12345", "\u0663\u0664", "a1b2", "\u0130i", "\ufb01",
       "e\u0301", "\u212b", "\u2581", "\u2581\u2581x", "\u00df", "\u2167", "\u00b2", "\u0345\u0301",
       "中文和 English 混合文本，大的。", "for (int i = 0; i < n; ++i) {\n    sum += x[i];\n}\n"]


def character(r):
    while True:
        first, last = r.choice(BLOCKS)
        c = r.randrange(first, last)
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def random_text(r, source, added):
    parts = []
    for _ in range(r.randrange(0, 8)):
        kind = r.random()
        if kind < 0.35:
            parts.append("".join(character(r) for _ in range(r.randrange(1, 8))))
        elif kind < 0.5:
            parts.append("".join(r.choice(SPACES) for _ in range(r.randrange(1, 5))))
        elif kind < 0.65:
            at = r.randrange(len(source) - 60)
            parts.append(source[at:at + r.randrange(1, 60)])
        elif kind < 0.75:
            parts.append(r.choice(ODD))
        elif kind < 0.9 and added:
            parts.append(r.choice(added))
        else:
            parts.append("".join(r.choice("abcdefghij  ") for _ in range(r.randrange(1, 12))))
    return "".join(parts)


def zinc_ids(zinc, path, texts, specials):
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".jsonl") as f:
        f.writelines(json.dumps(x, ensure_ascii=False) + "\n" for x in texts)
        f.flush()
        command = [zinc, "tokenize", "encode", "--tokenizer", path, "--json-lines", f.name]
        out = subprocess.check_output(command + (["--specials"] if specials else []), text=True)
    return [json.loads(line) for line in out.splitlines()]


def zinc_speed(zinc, path, text_path):
    """Bytes per second."""
    words = [zinc, "tokenize", "bench", "--tokenizer", path, text_path, "--lines", "--json"]
    return json.loads(subprocess.check_output(words, text=True))["bytes_per_second"]


def their_speed(path, source, lines):
    best = 0.0
    for _ in range(5):
        tokenizer = Tokenizer.from_file(path)
        start = time.process_time()
        tokenizer.encode_batch_fast(lines, add_special_tokens=False)
        best = max(best, len(source.encode()) / (time.process_time() - start))
    return best


def main():
    zinc, text_path, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    source = open(text_path, encoding="utf-8").read()
    make_tokenizers.SIZE = 8000
    kinds = [m for m in make_tokenizers.MAKERS if not sys.argv[4:] or m.__name__ in sys.argv[4:]]
    failed = False
    for make in kinds:
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/tokenizer.json"
            with open(path, "w", encoding="utf-8") as f:
                f.write(make([text_path]))
            t = Tokenizer.from_file(path)
            added = [token.content for token in t.get_added_tokens_decoder().values()]
            r = random.Random(20)
            differ, done = 0, 0
            while done < count:
                texts = [random_text(r, source, added) for _ in range(min(50_000, count - done))]
                if done == 0:
                    texts.append(source)
                specials = done % 100_000 == 0
                wanted = t.encode_batch_fast(texts, add_special_tokens=specials)
                for x, found, their in zip(texts, zinc_ids(zinc, path, texts, specials), wanted):
                    if found != their.ids:
                        differ += 1
                        if differ <= 3:
                            print("  %r\n    zinc         %s\n    Hugging Face %s" % (
                                x[:200], found[:50], their.ids[:50]))
                done += min(50_000, count - done)
            lines = source.split("\n")
            ours, theirs = [], []
            for _ in range(2):
                ours.append(zinc_speed(zinc, path, text_path))
                theirs.append(their_speed(path, source, lines))
            print("%-8s %d texts and the whole source: %d differ; zinc %.1f MB/s, tokenizers %s %.1f MB/s: "
                  "%.1f times" % (make.__name__, done, differ, max(ours) / 1e6, tokenizers.__version__,
                                  max(theirs) / 1e6, max(ours) / max(theirs)), flush=True)
            failed = failed or differ > 0
    sys.exit(1 if failed else 0)


main()
