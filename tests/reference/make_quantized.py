"""Writes tests/reference/quantized/: what bitsandbytes makes of a weight in NF4 and in 8 bits.

Needs: torch, bitsandbytes (0.50.2 was used). Run from the root of the tree:
python tests/reference/make_quantized.py

Raw little-endian arrays. The rounding is that of the library's portable implementation, which its
CUDA kernels share: the nearest value, by the midpoints of the code. (Its own code for CPUs rounds
otherwise within 1e-5 of a midpoint.)

weight.bf16       [20000] bf16: 312 blocks of 64 and a half one; two outliers, and a block of zeros
nf4.f32           [16]  the values of NF4
dynamic.f32       [256] the dynamic 8-bit map
nf4_codes.u8      [10000] the first of two in the upper half
nf4_absmax.f32    [313] of each block
nf4_offset.f32    [1]   their mean
nf4_nested.u8     [313] absmax - offset in the dynamic map, blocks of 256
nf4_nested.f32    [2]   absmax of these
nf4.bf16          [20000] the weight as NF4 gives it back
int8_codes.u8     [20000] the dynamic map, blocks of 256
int8_absmax.f32   [79]
int8.bf16         [20000]
tests/kernels/encode_test.cpp reads them.
"""

import os

import bitsandbytes.functional as F
import torch

FOLDER = "tests/reference/quantized"
COUNT = 20000


def write(name, tensor):
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    tensor.contiguous().numpy().tofile(os.path.join(FOLDER, name))


def nearest(scaled, code):
    return torch.bucketize(scaled, (code[:-1] + code[1:]) / 2).to(torch.uint8)


def in_blocks(x, size):
    padded = torch.nn.functional.pad(x, (0, -x.numel() % size)).reshape(-1, size)
    absmax = padded.abs().amax(1)
    scaled = padded * (1 / absmax.clamp(min=1e-38))[:, None]
    return absmax, scaled.clamp(-1, 1).reshape(-1)[: x.numel()]


def main():
    os.makedirs(FOLDER, exist_ok=True)
    torch.manual_seed(20000)
    weight = torch.randn(COUNT) * 0.02
    weight[777], weight[9999] = 3.0, -1.5
    weight[640:704] = 0.0
    weight = weight.to(torch.bfloat16)
    dynamic = F.create_dynamic_map()
    nf4 = F.get_4bit_type("nf4", device="cpu")
    write("weight.bf16", weight)
    write("dynamic.f32", dynamic)
    write("nf4.f32", nf4)

    codes, state = F.quantize_4bit(weight, blocksize=64, quant_type="nf4")
    absmax, scaled = in_blocks(weight.float(), 64)
    assert torch.equal(absmax, state.absmax)
    mine = nearest(scaled, nf4)
    assert torch.equal(codes.flatten(), mine[::2] << 4 | mine[1::2])
    offset = absmax.mean()
    top, scaled = in_blocks(absmax - offset, 256)
    nested = nearest(scaled, dynamic)
    known, state2 = F.quantize_blockwise(absmax - offset, blocksize=256)
    assert torch.equal(top, state2.absmax)
    print("nested codes that the library's CPU code rounds otherwise:", (known != nested).sum())
    state = F.QuantState(absmax=nested, shape=weight.shape, dtype=weight.dtype, blocksize=64,
                         code=nf4, quant_type="nf4", offset=offset, state2=state2)
    write("nf4_codes.u8", codes)
    write("nf4_absmax.f32", absmax)
    write("nf4_offset.f32", offset.reshape(1))
    write("nf4_nested.u8", nested)
    write("nf4_nested.f32", top)
    write("nf4.bf16", F.dequantize_4bit(codes, state).flatten())

    absmax, scaled = in_blocks(weight.float(), 256)
    codes = nearest(scaled, dynamic)
    known, state = F.quantize_blockwise(weight, blocksize=256)
    assert torch.equal(absmax, state.absmax)
    print("8-bit codes that the library's CPU code rounds otherwise:", (known != codes).sum())
    write("int8_codes.u8", codes)
    write("int8_absmax.f32", absmax)
    write("int8.bf16", F.dequantize_blockwise(codes, state))


if __name__ == "__main__":
    main()
