# Read by gpu-check and gpu-bench: finds a GPU, and the libraries of CUDA, cuDNN and NCCL that the
# programs in $bin need, in the toolkit's folder or in those of Python packages. Sets
# LD_LIBRARY_PATH; ends with 69 and says what is missing and where it comes from. cuDNN and NCCL may
# be missing: what needs them is skipped, and named.

say() { printf '%s\n' "$name: $*" >&2; }
fail() {
  status=$1
  shift
  say "$@"
  exit "$status"
}

need_gpu() {
  if ! command -v nvidia-smi >/dev/null 2>&1 || ! nvidia-smi -L 2>/dev/null | grep -q '^GPU 0'; then
    fail 69 "needs an NVIDIA GPU, and none is visible (nvidia-smi -L lists none)"
  fi
}

python_of_packages() {
  for python in python3 python; do
    if command -v "$python" >/dev/null 2>&1; then echo "$python" && return; fi
  done
}

cuda_folders() { # one a line, the most likely first
  if [ -n "${ZINC_CUDA_LIBRARIES:-}" ]; then echo "$ZINC_CUDA_LIBRARIES" | tr ':' '\n'; fi
  for root in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr/local/cuda-*; do
    [ -z "$root" ] || printf '%s\n' "$root/lib64" "$root/lib" "$root/targets/x86_64-linux/lib"
  done
  nvcc=$(command -v nvcc 2>/dev/null || true)
  [ -z "$nvcc" ] || echo "$(dirname "$(readlink -f "$nvcc")")/../lib64"
  python=$(python_of_packages)
  [ -z "$python" ] || "$python" - 2>/dev/null <<'END' || true
import glob, os, site, sys
for folder in dict.fromkeys(sys.path + site.getsitepackages() + [site.getusersitepackages()]):
    for found in sorted(glob.glob(os.path.join(folder, "nvidia", "*", "lib"))):
        print(found)
END
}

# Folders only where a library of ours is: others would change what else a program loads. nvrtc is
# cuDNN's, which compiles its attention with it.
use_cuda_libraries() {
  folders=$(cuda_folders | while read -r folder; do
    for library in libcudart.so libcublasLt.so libcudnn.so libnccl.so libnvrtc.so; do
      if ls "$folder/$library".* >/dev/null 2>&1; then readlink -f "$folder" && break; fi
    done
  done | awk '!seen[$0]++' | tr '\n' ':')
  LD_LIBRARY_PATH="$folders${LD_LIBRARY_PATH:-}"
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH%:}
  export LD_LIBRARY_PATH
  for program in "$@"; do
    missing=$(ldd "$program" 2>&1 | awk '/not found/ { print $1 }' | sort -u | tr '\n' ' ')
    if [ -n "$missing" ]; then
      fail 69 "$(basename "$program") needs $missing: install the CUDA toolkit (libcudart, libcublasLt)" \
        "of CUDA 13, as a toolkit or as the Python packages nvidia-cuda-runtime and nvidia-cublas," \
        "or name their folders, joined by ':', in ZINC_CUDA_LIBRARIES"
    fi
  done
  "$bin/zinc" report 2>/dev/null | grep -A 1 -E '^  -- +(NCCL|attention) library' >&2 || true
}
