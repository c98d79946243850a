#!/usr/bin/env python3
"""Reads the event files of a run with the real package of TensorBoard.

    python3 -m venv /tmp/tb && /tmp/tb/bin/pip install tensorboard==2.21.0 numpy
    zinc train --config ds.json ... --histogram-every 20 --export-every 20 --out run
    /tmp/tb/bin/python tests/reference/read_tensorboard.py run

The package's own loader (which checks every CRC) and the conversion that its server makes of old
kinds of events do the work. Curves are compared with the run's metrics.jsonl, texts with its
configuration and samples.txt, histograms with the weights that it saved after the same step. Prints
a line for each and ends with 1 where something differs. tests/reference/tensorboard_result.txt
holds what it printed.
"""

import json
import os
import re
import struct
import sys

import numpy as np
import tensorboard
from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.util import tensor_util

CURVES = {
    "Train/Samples/train_loss": "loss",
    "Train/Samples/lr": "lr",
    "Train/Samples/loss_scale": "loss_scale",
    "Train/Samples/grad_norm": "grad_norm",
    "Train/Samples/tokens_per_second": "tokens_per_second",
    "Validation/Samples/val_loss": "val_loss",
}


def safetensors(path):
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        data = file.read()
    header.pop("__metadata__", None)
    assert all(about["dtype"] == "F32" for about in header.values()), "saved weights are not f32"
    return {name: np.frombuffer(data[about["data_offsets"][0]:about["data_offsets"][1]], np.float32)
            for name, about in header.items()}


def check_curves(values_of, lines):
    for tag, key in CURVES.items():
        wanted = [line[key] for line in lines if key in line]
        if not wanted:
            continue
        read = [float(value) for _, value in values_of(tag)]
        assert len(read) == len(wanted), tag
        for a, b in zip(read, wanted):
            assert a == np.float32(b) if b is not None else not np.isfinite(a), (tag, a, b)
    print(f"  curves: {len(lines)} steps are those of metrics.jsonl")


def check_texts(values_of, run):
    text = lambda value: value[0].decode()
    indented = lambda body: "    " + body.replace("\n", "\n    ")
    with open(os.path.join(run, "config.resolved.json"), encoding="utf-8") as file:
        configuration = file.read()
    (_, shown), = values_of("configuration")
    assert text(shown).strip() == indented(configuration).strip(), "configuration"
    with open(os.path.join(run, "samples.txt"), encoding="utf-8") as file:
        samples = [part for part in re.split(r"^--- step \d+\n", file.read(), flags=re.M)[1:]]
    shown = [text(value) for _, value in values_of("samples/1")]
    assert shown == [indented(sample[:-1]) for sample in samples], "samples"
    print(f"  texts: the configuration and {len(samples)} samples")


def check_histograms(tags, values_of, run, samples_per_step):
    count = 0
    for tag in tags:
        if not tag.startswith("weights/"):
            continue
        name = tag[len("weights/"):]
        for samples, buckets in values_of(tag):
            step = samples // samples_per_step
            folder = os.path.join(run, "step-%06d" % step)
            if not os.path.exists(folder):
                folder = os.path.join(run, "final")
            weights = safetensors(os.path.join(folder, "model.safetensors"))[name]
            assert buckets[:, 2].sum() == weights.size, (name, step)
            least, most = buckets[0, 0], buckets[-1, 1]
            assert least <= weights.min() and most >= weights.max(), (name, step)
            for left, right, inside in buckets[1:-1]:
                # Of both ends, the one away from zero is outside.
                wanted = ((weights >= left if left >= 0 else weights > left) &
                          (weights <= right if right < 0 else weights < right)).sum()
                assert wanted == inside, (name, step, left, right, wanted, inside)
            count += 1
    assert count > 0, "no histograms: --histogram-every"
    print(f"  histograms: {count} hold the weights that were saved")


def main():
    run = sys.argv[1]
    events = plugin_event_accumulator.EventAccumulator(
        run, size_guidance={"tensors": 0}, tensor_size_guidance=dict.fromkeys(
            ["scalars", "histograms", "text"], 0))
    events.Reload()
    tags = events.Tags()["tensors"]
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]

    def values_of(tag):
        return [(event.step, tensor_util.make_ndarray(event.tensor_proto))
                for event in events.Tensors(tag)]

    print(f"tensorboard {tensorboard.__version__}: {len(tags)} tags")
    check_curves(values_of, lines)
    check_texts(values_of, run)
    first, = [samples for samples, _ in values_of("Train/Samples/lr")][:1]
    check_histograms(tags, values_of, run, first)


if __name__ == "__main__":
    main()
