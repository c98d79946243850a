#!/bin/sh
# usage: wgmma_instructions.sh OBJECT...: whether the compiler left the products of
# kernels/cuda/attention_wgmma_forward.cu and gemm_wgmma.cu, compiled for compute capability 9.0a, beside
# the threads. Of each of their kernels it counts the products and the waits for them: a compiler that cannot
# follow the sums waits behind every product, and says so in a note that a build does not stop for.
# Exit status 0; 1 where a count is another; 77 without cuobjdump and nvdisasm (of the CUDA toolkit, or
# the Python packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm; or name the first in CUOBJDUMP).
set -eu
[ $# -ge 1 ] || { sed -n '2p' "$0" >&2 && exit 64; }
cuobjdump=${CUOBJDUMP:-$(command -v cuobjdump || ls /usr/local/cuda/bin/cuobjdump 2>/dev/null || true)}
if [ -z "$cuobjdump" ] || ! command -v nvdisasm >/dev/null; then
  echo "wgmma_instructions: skipped: cuobjdump or nvdisasm is missing: install the packages" \
    "nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm" >&2
  exit 77
fi
for object; do "$cuobjdump" -sass "$object"; done | awk '
  /Function :/ { name = $NF; kernels++ }
  / HGMMA\.64x/ { products[name]++ }
  / WARPGROUP\.DEPBAR/ { waits[name]++ }
  END {
    for (name in products) {
      if (name ~ /wgmma_gemm/) {
        # Two halves of a tile, 64 / 16 deep.
        expected = 8
        expected_waits = 2
        gemms++
      } else {
        # Scores: head size / 16, at the first tile and at each of the others. Values: 128 keys / 16, twice.
        expected = 2 * (name ~ /Li128E/ ? 128 : 64) / 16 + 2 * 8
        expected_waits = 4
        attentions++
      }
      if (products[name] == expected && waits[name] == expected_waits) continue
      printf "wgmma_instructions: %s: %d products and %d waits, %d and %d expected\n", name,
        products[name], waits[name], expected, expected_waits
      bad = 1
    }
    if (attentions != 4 || gemms != 12) {
      printf "wgmma_instructions: products of a warpgroup in %d kernels of attention and %d of gemm, 4 and 12 expected\n",
        attentions, gemms
      bad = 1
    }
    exit bad
  }'
