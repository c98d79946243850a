"""Writes tests/reference/torch/: files of torch.save itself, and what they hold.

Needs: torch (2.15 was used), safetensors. Run from the root of the tree:
python tests/reference/make_torch.py

values.pt       every kind of value that zinc reads, and tensors of every type and layout
protocol4.pt    the same containers as protocol 4 writes them
small.pt        two tensors, for tests that damage every byte
legacy.pt       the format from before PyTorch 1.6, which zinc refuses
gpt2/           a tiny GPT-2 as one pytorch_model.bin, as early Hugging Face folders have it
gpt2_shards/    the same in two files and their index, half of it in bf16
gpt2_expected/  the same as model.safetensors
tests/files/torch_file_test.cpp and weight_reader_test.cpp read them.
"""

import argparse
import collections
import json
import os
import shutil

import torch
from safetensors.torch import save_file

FOLDER = "tests/reference/torch"


def values():
    grid = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    state = collections.OrderedDict(a=torch.tensor([1.0, -2.5]), b=grid)
    state._metadata = {"": {"version": 2}}
    return {
        "none": None,
        "yes": True,
        "no": False,
        "small": 7,
        "word": 40_000,
        "negative": -5,
        "long": 2**40 + 1,
        "negative_long": -(2**62),
        "huge": 2**64,
        "float": 0.1,
        "text": "grüße",
        "bytes": b"\x00\xffab",
        "array": bytearray(b"xyz"),
        "list": [1, [2, 3], ()],
        "tuples": ((1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
        "set": {5},
        "size": torch.Size([2, 3]),
        "counter": collections.Counter("aab"),
        "default": collections.defaultdict(list, {"k": [1]}),
        "arguments": argparse.Namespace(lr=0.5, name="run"),
        "dtype": torch.bfloat16,
        "state": state,
        "shared": grid,
        "f64": torch.tensor([0.1, -1e300], dtype=torch.float64),
        "f16": torch.tensor([0.5, -65504.0], dtype=torch.float16),
        "bf16": torch.tensor([1.5, -3e38], dtype=torch.bfloat16),
        "i64": torch.tensor([[2**40, -1]]),
        "i32": torch.tensor([5, -6], dtype=torch.int32),
        "i16": torch.tensor([5, -6], dtype=torch.int16),
        "u8": torch.tensor([0, 255], dtype=torch.uint8),
        "flag": torch.tensor([True, False]),
        "u32": torch.tensor([1, 2**32 - 1], dtype=torch.uint32),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "columns": grid[:, 1:4],
        "rows": grid[::2],
        "last_rows": grid[2:],
        "transposed": grid.t(),
        "expanded": torch.tensor([[1.0, 2.0]]).expand(3, 2),
        "parameter": torch.nn.Parameter(torch.tensor([3.0, 4.0])),
    }


def gpt2():
    generator = torch.Generator().manual_seed(5)
    width, layers, vocabulary, positions = 8, 2, 20, 12
    shapes = {"wte.weight": (vocabulary, width), "wpe.weight": (positions, width)}
    for i in range(layers):
        shapes |= {
            f"h.{i}.ln_1.weight": (width,),
            f"h.{i}.ln_1.bias": (width,),
            f"h.{i}.attn.bias": (1, 1, positions, positions),
            f"h.{i}.attn.c_attn.weight": (width, 3 * width),
            f"h.{i}.attn.c_attn.bias": (3 * width,),
            f"h.{i}.attn.c_proj.weight": (width, width),
            f"h.{i}.attn.c_proj.bias": (width,),
            f"h.{i}.ln_2.weight": (width,),
            f"h.{i}.ln_2.bias": (width,),
            f"h.{i}.mlp.c_fc.weight": (width, 4 * width),
            f"h.{i}.mlp.c_fc.bias": (4 * width,),
            f"h.{i}.mlp.c_proj.weight": (4 * width, width),
            f"h.{i}.mlp.c_proj.bias": (width,),
        }
    shapes |= {"ln_f.weight": (width,), "ln_f.bias": (width,)}
    # Values that bf16 holds exactly.
    tensors = collections.OrderedDict()
    for name, shape in shapes.items():
        if name.endswith(".attn.bias"):
            tensors[name] = torch.ones(shape, dtype=torch.bool).tril()
        else:
            tensors[name] = torch.randint(-64, 65, shape, generator=generator) / 64.0
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": vocabulary,
        "n_positions": positions,
        "n_embd": width,
        "n_layer": layers,
        "n_head": 2,
        "activation_function": "gelu_new",
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
    }
    return tensors, config


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)  # make_llmc.py adds its files again
    os.makedirs(FOLDER)
    torch.save(values(), f"{FOLDER}/values.pt")
    plain = {k: v for k, v in values().items() if k not in ("huge", "state")}
    torch.save(plain, f"{FOLDER}/protocol4.pt", pickle_protocol=4)
    torch.save({"w": torch.tensor([1.0, 2.0]), "v": torch.arange(6).reshape(2, 3)[:, 1:], "n": 3},
               f"{FOLDER}/small.pt")
    torch.save({"w": torch.tensor([1.0])}, f"{FOLDER}/legacy.pt",
               _use_new_zipfile_serialization=False)

    tensors, config = gpt2()
    for name in ("gpt2", "gpt2_shards", "gpt2_expected"):
        os.makedirs(f"{FOLDER}/{name}")
        with open(f"{FOLDER}/{name}/config.json", "w") as file:
            json.dump(config, file, indent=2)
    torch.save(tensors, f"{FOLDER}/gpt2/pytorch_model.bin")
    save_file({k: v for k, v in tensors.items() if v.dtype != torch.bool},
              f"{FOLDER}/gpt2_expected/model.safetensors", metadata={"format": "pt"})
    shards = [collections.OrderedDict(), collections.OrderedDict()]
    weight_map = {}
    for i, (name, tensor) in enumerate(tensors.items()):
        half = 0 if i < len(tensors) // 2 else 1
        shards[half][name] = tensor.bfloat16() if half == 1 and tensor.is_floating_point() else tensor
        weight_map[name] = f"pytorch_model-{half + 1:05d}-of-00002.bin"
    for i, shard in enumerate(shards):
        torch.save(shard, f"{FOLDER}/gpt2_shards/pytorch_model-{i + 1:05d}-of-00002.bin")
    with open(f"{FOLDER}/gpt2_shards/pytorch_model.bin.index.json", "w") as file:
        json.dump({"metadata": {"total_size": 0}, "weight_map": weight_map}, file, indent=2)


if __name__ == "__main__":
    main()
