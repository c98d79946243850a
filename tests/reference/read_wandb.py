#!/usr/bin/env python3
"""Reads an offline run that zinc wrote with the real package of Weights & Biases.

    python3 -m venv /tmp/wandb && /tmp/wandb/bin/pip install wandb==0.19.11
    zinc train --config ds.json ... --out run       # with "wandb": {"enabled": true}
    /tmp/wandb/bin/python tests/reference/read_wandb.py run

The package's own reader of the file (wandb.sdk.internal.datastore.DataStore, which checks every CRC)
and its own messages (wandb.proto.wandb_internal_pb2) do the work. What they give is compared with
the run's metrics.jsonl: every step, every curve, and the summary. Prints a line for each file and
ends with 1 where something differs. 0.19.11 is the last series whose reader is written in Python;
later ones keep the format. tests/reference/wandb_result.txt holds what it printed.
"""

import glob
import json
import math
import os
import sys

import wandb
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal import datastore

CURVES = {
    "Train/Samples/train_loss": "loss",
    "Train/Samples/lr": "lr",
    "Train/Samples/loss_scale": "loss_scale",
    "Train/Samples/grad_norm": "grad_norm",
    "Train/Samples/tokens_per_second": "tokens_per_second",
    "Validation/Samples/val_loss": "val_loss",
}


def records_of(path):
    store = datastore.DataStore()
    store.open_for_scan(path)
    while True:
        data = store.scan_data()
        if data is None:
            return
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        yield record


def values_of(items):
    return {item.key: json.loads(item.value_json) for item in items}


def same(read, written):
    if written is None:  # no number: null in metrics.jsonl
        return not math.isfinite(read)
    return read == written


def check(path, run):
    records = list(records_of(path))
    kinds = [record.WhichOneof("record_type") for record in records]
    assert [record.num for record in records] == list(range(len(records))), "numbers of records"
    assert kinds[0] == "header" and kinds[1] == "run" and kinds[-1] == "exit", kinds
    history = [values_of(r.history.item) for r in records if r.WhichOneof("record_type") == "history"]
    summaries = [values_of(r.summary.update) for r in records if r.WhichOneof("record_type") == "summary"]
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    assert len(lines) == len(history), (len(lines), len(history))
    for line, step in zip(lines, history):
        for curve, key in CURVES.items():
            assert (curve in step) == (key in line), curve
            if curve in step:
                assert same(step[curve], line[key]), (line["step"], curve, step[curve], line[key])
    last = {key: value for step in history for key, value in step.items()}
    assert summaries and summaries[-1] == last, "summary"
    with open(os.path.join(run, "config.resolved.json"), encoding="utf-8") as file:
        configuration = json.load(file)
    assert values_of(records[1].run.config.update) == configuration, "configuration"
    about = records[1].run
    print(f"wandb {wandb.__version__}: {len(records)} records, {len(history)} steps, project "
          f"'{about.project}', exit code {records[-1].exit.exit_code}: equal to metrics.jsonl")


def main():
    run = sys.argv[1]
    paths = glob.glob(os.path.join(run, "wandb", "offline-run-*", "run-*.wandb"))
    assert paths, f"{run} has no wandb/offline-run-*/run-*.wandb"
    for path in paths:
        check(path, run)


if __name__ == "__main__":
    main()
