"""Writes layouts.json: layouts of DeepSpeed's Sparse Attention for configurations without random blocks.

usage: make_layouts.py SPARSITY_CONFIG_PY > layouts.json
SPARSITY_CONFIG_PY: deepspeed/ops/sparse_attention/sparsity_config.py of DeepSpeed 0.15.4, which needs torch alone.
"""
import importlib.util
import itertools
import json
import sys

spec = importlib.util.spec_from_file_location("sparsity_config", sys.argv[1])
layouts = importlib.util.module_from_spec(spec)
spec.loader.exec_module(layouts)

CLASSES = {
    "dense": layouts.DenseSparsityConfig,
    "fixed": layouts.FixedSparsityConfig,
    "variable": layouts.VariableSparsityConfig,
    "bigbird": layouts.BigBirdSparsityConfig,
    "bslongformer": layouts.BSLongformerSparsityConfig,
    "local_sliding_window": layouts.LocalSlidingWindowSparsityConfig,
}
DIRECTIONS = ("unidirectional", "bidirectional")


def configurations():
    yield "dense", {}, 4
    yield "dense", {"different_layout_per_head": True}, 5
    for n, direction in itertools.product((4, 10, 13), DIRECTIONS):
        yield "fixed", {"attention": direction}, n
        yield "fixed", {"attention": direction, "num_local_blocks": 6, "num_global_blocks": 2}, n
        yield "fixed", {"attention": direction, "num_local_blocks": 4, "num_global_blocks": 1,
                        "different_layout_per_head": True, "num_different_global_patterns": 4}, n
    for n in (8, 11):
        yield "fixed", {"horizontal_global_attention": True}, n
        yield "fixed", {"horizontal_global_attention": True, "num_local_blocks": 4, "num_global_blocks": 2,
                        "different_layout_per_head": True, "num_different_global_patterns": 2, "block": 64}, n
    for n, direction in itertools.product((7, 12), DIRECTIONS):
        yield "variable", {"attention": direction}, n
        yield "variable", {"attention": direction, "local_window_blocks": [1, 3, 2]}, n
        yield "variable", {"attention": direction, "local_window_blocks": [2, 9],
                           "global_block_indices": [0, 5, 20]}, n
        yield "variable", {"attention": direction, "global_block_indices": [1, 6],
                           "global_block_end_indices": [3, 30]}, n
    yield "variable", {"horizontal_global_attention": True, "global_block_indices": [2, 7]}, 10
    yield "variable", {"horizontal_global_attention": True, "global_block_indices": [0, 7],
                       "global_block_end_indices": [2, 9], "different_layout_per_head": True}, 10
    for n, direction in itertools.product((6, 9), DIRECTIONS):
        yield "bigbird", {"attention": direction, "num_random_blocks": 0}, n
        yield "bigbird", {"attention": direction, "num_random_blocks": 0, "num_sliding_window_blocks": 5,
                          "num_global_blocks": 2}, n
    for n, direction in itertools.product((6, 9), DIRECTIONS):
        yield "bslongformer", {"attention": direction}, n
        yield "bslongformer", {"attention": direction, "num_sliding_window_blocks": 4,
                               "global_block_indices": [3, 8]}, n
        yield "bslongformer", {"attention": direction, "global_block_indices": [0, 4],
                               "global_block_end_indices": [2, 7]}, n
    yield "local_sliding_window", {}, 7
    yield "local_sliding_window", {"attention": "bidirectional"}, 7
    yield "local_sliding_window", {"num_sliding_window_blocks": 6, "block": 128}, 9
    yield "local_sliding_window", {"attention": "bidirectional", "num_sliding_window_blocks": 1}, 5


HEADS = 5
cases = []
for mode, options, n in configurations():
    config = CLASSES[mode](num_heads=HEADS, **options)
    layout = config.make_layout(n * config.block)
    rows = ["".join(str(value) for value in row) for head in layout.tolist() for row in head]
    if rows == rows[:n] * HEADS:
        rows = rows[:n]
    cases.append(json.dumps({"mode": mode, **options, "blocks": n, "rows": " ".join(rows)}))
print("[\n" + ",\n".join(cases) + "\n]")
