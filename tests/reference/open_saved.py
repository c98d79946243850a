#!/usr/bin/env python3
"""transformers opens what zinc saved, and computes the same with it.

    python3 tests/reference/open_saved.py --zinc build/release/zinc [names of models]

Of each tiny model of this folder zinc trains two steps and saves. transformers then loads the folder, which must
have every weight and no other, and its mean loss over the same tokens must be the one that `zinc evaluate` finds, to
1e-5. Without a name all models that zinc trains on records. Needs torch and transformers; no result is kept.
"""
import argparse
import json
import pathlib
import random
import subprocess
import tempfile

import torch
import transformers

ROOT = pathlib.Path(__file__).parent
DECODERS = ["gpt2", "llama", "mistral", "qwen2", "qwen3", "gpt_neox", "gpt_neox_serial", "bloom"]
ANSWERS = ["t5", "t5_v1_1"]
TEXTS = ["bert_texts", "roberta_texts"]
CONFIG = {"train_micro_batch_size_per_gpu": 2,
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
TOLERANCE = 1e-5


def records(name, config):
    draw = random.Random(name)
    ids = lambda count: [draw.randrange(3, config.vocab_size) for _ in range(count)]
    for _ in range(8):
        record = {"input_ids": ids(draw.randrange(4, 12))}
        if name in ANSWERS:
            record["labels"] = ids(draw.randrange(2, 6))
        if name in TEXTS:
            record["labels"] = draw.randrange(config.num_labels)
        yield record


def loss_of(model, record, name):
    """(sum, targets) of a record."""
    ids = torch.tensor([record["input_ids"]])
    with torch.no_grad():
        if name in DECODERS:
            logits, labels = model(input_ids=ids).logits[0, :-1], ids[0, 1:]
        elif name in ANSWERS:
            labels = torch.tensor([record["labels"]])
            logits, labels = model(input_ids=ids, labels=labels).logits[0], labels[0]
        else:
            logits, labels = model(input_ids=ids).logits, torch.tensor([record["labels"]])
    return torch.nn.functional.cross_entropy(logits.double(), labels, reduction="sum"), len(labels)


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def check(name, zinc):
    config = transformers.AutoConfig.from_pretrained(ROOT / name)
    kind = getattr(transformers, config.architectures[0])
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "ds.json").write_text(json.dumps(CONFIG))
        data = list(records(name, config))
        (folder / "data.jsonl").write_text("".join(json.dumps(record) + "\n" for record in data))
        run(zinc, "train", "--config", folder / "ds.json", "--init", ROOT / name, "--data",
            folder / "data.jsonl", "--validation", folder / "data.jsonl", "--seq", 16, "--steps", 2,
            "--out", folder / "run", "--threads", 1)
        saved = folder / "run" / "final"
        found = json.loads(run(zinc, "evaluate", "--model", saved, "--data", folder / "data.jsonl",
                               "--metric", "perplexity", "--seq", 16, "--threads", 1, "--json"))
        model, info = kind.from_pretrained(saved, output_loading_info=True,
                                           attn_implementation="eager")
        wrong = {key: value for key, value in info.items() if value}
        assert not wrong, (name, wrong)
        before = kind.from_pretrained(ROOT / name).state_dict()
        moved = [key for key, value in model.state_dict().items() if not torch.equal(value, before[key])]
        assert moved, (name, "nothing was trained")
        sums = [loss_of(model.eval(), record, name) for record in data]
        loss = (sum(one for one, _ in sums) / sum(count for _, count in sums)).item()
    difference = abs(loss - found["loss"])
    print(f"{name:16s} transformers {loss:.7f}, zinc {found['loss']:.7f}, {len(moved)} weights trained")
    assert difference <= TOLERANCE, (name, difference)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--zinc", default="build/release/zinc")
    parser.add_argument("models", nargs="*", default=[])
    args = parser.parse_args()
    for name in args.models or DECODERS + ANSWERS + TEXTS:
        check(name, args.zinc)


if __name__ == "__main__":
    main()
