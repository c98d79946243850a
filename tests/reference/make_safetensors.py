"""Writes tests/reference/reference.safetensors with the reference implementation.

Needs: numpy, safetensors. Run from the root of the tree: python tests/reference/make_safetensors.py
The C++ writer has to give the same bytes for the same tensors, and the reader the same values:
tests/files/safetensors_test.cpp.
"""

import numpy as np
from safetensors.numpy import save

tensors = {
    "b.f32": np.array([[0.0, -1.5, 3.25], [1e-30, 1e30, -0.0]], dtype=np.float32),
    "a.f32": np.array([7.0], dtype=np.float32),
    "half": np.array([1.0, 65504.0, -6.103515625e-05], dtype=np.float16),
    "double": np.array([0.1, -0.2], dtype=np.float64),
    "ids": np.array([[1, -2], [3, 2**40]], dtype=np.int64),
    "small": np.array([1, -2, 3], dtype=np.int32),
    "bytes": np.array([0, 127, 255], dtype=np.uint8),
    "scalar": np.array(2.5, dtype=np.float32),
    "empty": np.zeros((0, 4), dtype=np.float32),
}

with open("tests/reference/reference.safetensors", "wb") as f:
    f.write(save(tensors, metadata={"format": "pt"}))
