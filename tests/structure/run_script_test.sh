#!/bin/sh
# What ./run says and returns for verbs that it has and has not.
set -u
cd "$(dirname "$0")/../.." || exit 1
failed=0

expect() { # expect STATUS PATTERN VERB
  output=$(./run "$3" 2>&1 </dev/null)
  status=$?
  if [ "$status" -ne "$1" ] || ! printf '%s\n' "$output" | grep -q "$2"; then
    printf './run %s: status %s, expected %s and "%s"; it said:\n%s\n' "$3" "$status" "$1" "$2" "$output"
    failed=1
  fi
}

expect 64 "did you mean 'train'" tran
expect 64 "did you mean 'test'" tset
expect 64 "did you mean 'build'" biuld
expect 64 "did you mean 'bench'" bnch
expect 64 "did you mean 'soak'" soka
expect 64 "did you mean 'bundle'" bundel
expect 0 "usage: ./run VERB" help
expect 0 "usage: ./run VERB" --help
command -v nvidia-smi >/dev/null 2>&1 || expect 69 "needs an NVIDIA GPU, and none is visible" gpu-check
command -v nvidia-smi >/dev/null 2>&1 || expect 69 "needs an NVIDIA GPU, and none is visible" gpu-bench
for verb in train test soak build bench gpu-check gpu-bench bundle; do expect 0 "^  $verb" help; done
exit "$failed"
