#!/bin/sh
# usage: wgmma_instructions.sh OBJECT: whether the compiler left the products of
# kernels/cuda/attention_wgmma_forward.cu, compiled for compute capability 9.0a, beside the threads. Of
# each of its kernels it counts the products of a warpgroup and the waits for them: a compiler that cannot
# follow the sums waits behind every product, and says so in a note that a build does not stop for.
# Exit status 0; 1 where a count is another; 77 without cuobjdump and nvdisasm (of the CUDA toolkit, or
# the Python packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm; or name the first in CUOBJDUMP).
set -eu
[ $# -eq 1 ] || { sed -n '2p' "$0" >&2 && exit 64; }
cuobjdump=${CUOBJDUMP:-$(command -v cuobjdump || ls /usr/local/cuda/bin/cuobjdump 2>/dev/null || true)}
if [ -z "$cuobjdump" ] || ! command -v nvdisasm >/dev/null; then
  echo "wgmma_instructions: skipped: cuobjdump or nvdisasm is missing: install the packages" \
    "nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm" >&2
  exit 77
fi
"$cuobjdump" -sass "$1" | awk '
  /Function :/ { name = $NF; kernels++ }
  / HGMMA\.64x/ { products[name]++ }
  / WARPGROUP\.DEPBAR/ { waits[name]++ }
  END {
    # Scores: head size / 16, at the first tile and at each of the others. Values: 128 keys / 16, twice.
    for (name in products) {
      size = name ~ /Li128E/ ? 128 : 64
      if (products[name] != 2 * size / 16 + 2 * 8 || waits[name] != 4) {
        printf "wgmma_instructions: %s: %d products and %d waits, %d and 4 expected\n", name,
          products[name], waits[name], 2 * size / 16 + 2 * 8
        bad = 1
      }
      seen++
    }
    if (seen != 4) { printf "wgmma_instructions: %d kernels with products of a warpgroup, 4 expected\n", seen; bad = 1 }
    exit bad
  }'
