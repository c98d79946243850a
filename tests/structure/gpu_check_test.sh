#!/bin/sh
# usage: gpu_check_test.sh SOURCE_DIR: what gpu-check makes of tests that pass, fail, are skipped,
# crash, take longer than the budget and are killed, and gpu-bench of parts that do; on programs that
# stand in for nvidia-smi, compute-sanitizer, nsys, zinc and zinc_gpu_tests.
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"

program() { # program FILE: its text is the standard input
  cat >"$work/$1"
  chmod +x "$work/$1"
}
program bin/nvidia-smi <<'END'
#!/bin/sh
echo "GPU 0: none"
END
# Ops `fill` and `scale` are right, `crash` brings its process down; the collectives take long.
program zinc <<'END'
#!/bin/sh
json="" filter=""
for word in "$@"; do
  case $before in --json) json=$word ;; --filter) filter=$word ;; esac
  before=$word
done
case "$*" in
  report*) ;;
  "bench kernels list"*) printf 'fill forward bf16 n=1\ncrash forward bf16 n=1\nscale forward bf16 n=1\nscale forward bf16 n=2\n' ;;
  "bench kernels"*)
    echo "op heading"
    op=$(echo "$filter" | tr -d '^ ')
    echo "$op forward bf16"
    [ "$op" != crash ] || exit 134
    printf '{\n "cpu": "none",\n "results": [\n  {\n   "op": "%s"\n  }\n ]\n}\n' "$op" >"$json"
    ;;
  "bench comm"*)
    echo "collectives begin"
    [ -z "${SLOW_COMM:-}" ] || sleep 100
    ;;
  *--kernel-times*) printf 'Total Time (ns),Instances,Name\n1000,3,"by events"\n' >"${*##* }" ;;
  "bench train"*) echo "tokens per second" && echo '{}' >"${json:-/dev/null}" ;;
  *) echo "did $*" ;;
esac
END
program bin/nsys <<'END'
#!/bin/sh
[ -z "${NSYS_FAILS:-}" ] || exit 1
case "$*" in
  profile*) echo "profiled" ;;
  stats*) printf '\nTime (%%),Total Time (ns),Instances,Name\n90.0,1000,3,"attention, forward"\n' ;;
esac
END
program bin/python3 <<'END'
#!/bin/sh
exit 1
END
program bin/compute-sanitizer <<'END'
#!/bin/sh
if [ "$2" = racecheck ]; then echo "========= Device not supported" && exit 1; fi
echo "========= ERROR SUMMARY: ${SANITIZER_ERRORS:-0} errors"
[ "${SANITIZER_ERRORS:-0}" -eq 0 ] || exit 99
END
program zinc_gpu_tests <<'END'
#!/bin/sh
case "$*" in
  *=WithSlow*--gtest_list_tests*) printf 'Good.\n  A\n  B\nSlow.\n  A\n  B\n' ;;
  *--gtest_list_tests*)
    printf 'Good.\n  A\n  B\nAll/Mixed.\n  Fails/0  # GetParam() = 1\n  Skips/1  # GetParam() = 2\nCrashes.\n  A\n  B\n  C\n'
    ;;
  *=Slow.A:Slow.B)
    printf '[       OK ] Slow.A (0 ms)\n'
    sleep 100
    ;;
  *=Good.A:Good.B) printf '[ RUN      ] Good.A\n[       OK ] Good.A (0 ms)\n[       OK ] Good.B (0 ms)\n' ;;
  *=All/Mixed.Fails/0:All/Mixed.Skips/1)
    printf 'mixed: 1 is not 2\n[  FAILED  ] All/Mixed.Fails/0 (0 ms)\n[  SKIPPED ] All/Mixed.Skips/1 (0 ms)\n'
    printf '[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] All/Mixed.Skips/1\n'
    exit 1
    ;;
  *=Crashes.A:Crashes.B:Crashes.C) printf '[       OK ] Crashes.A (0 ms)\n' && exit 134 ;;
  *) exit 3 ;;
esac
END

check() { # check STATUS PATTERN...: of a run of gpu-check
  status=0
  PATH="$work/bin:$PATH" ZINC_BIN="$work" ZINC_CHECK_JOBS=2 ZINC_CHECK_FOLDER="$work/checked" sh "$source/bench/gpu/gpu-check" >"$work/out" 2>&1 || status=$?
  if [ "$status" -ne "$1" ]; then cat "$work/out" && echo "status $status, not $1" && exit 1; fi
  shift
  for pattern in "$@"; do
    grep -qE "$pattern" "$work/out" || { cat "$work/out" && echo "no line '$pattern'" && exit 1; }
  done
}
# check_slow STATUS PATTERN: with a suite that takes a minute after its first test.
check_slow() {
  status=0
  PATH="$work/bin:$PATH" ZINC_BIN="$work" ZINC_CHECK_JOBS=2 ZINC_CHECK_FOLDER="$work/checked" \
    sh "$source/bench/gpu/gpu-check" WithSlow >"$work/out" 2>&1 || status=$?
  [ "$status" -eq "$1" ] || { cat "$work/out" && echo "status $status, not $1" && exit 1; }
  grep -qE "$2" "$work/out" || { cat "$work/out" && echo "no line '$2'" && exit 1; }
}
echo '*' >"$work/gpu_tests_filter.txt"
check 1 '^4 passed, 3 failed, 2 skipped$' '^FAILED: All/Mixed: 1 of 2 tests, status 1$' \
  'mixed: 1 is not 2' '^FAILED: Crashes: 2 of 3 tests, status 134$' 'racecheck does not work here'
SANITIZER_ERRORS=2 check 1 '^3 passed, 4 failed, 2 skipped$' '^FAILED: compute-sanitizer memcheck, status 99$'
summary_is() { # summary_is TEXT: of the last run of gpu-check
  [ "$(cat "$work/checked/summary.txt")" = "$1" ] || { cat "$work/checked/summary.txt" && echo "not: $1" && exit 1; }
}
summary_is '3 passed, 4 failed, 2 skipped'
grep -q 'mixed: 1 is not 2' "$work/checked/failures.txt"
grep -q 'Crashes.A' "$work/checked/logs/Crashes.log"

# What the budget does not leave time for is not run, and no test's fault. What comes before it needs less
# than a second: the rest is for a machine that stands still.
ZINC_CHECK_BUDGET=6 check_slow 2 '^3 passed, 0 failed, 2 skipped, 1 not run$'

# in_background COMMAND...: with the stand-ins; its process is $started.
in_background() {
  PATH="$work/bin:$PATH" ZINC_BIN="$work" "$@" >"$work/out" 2>&1 &
  started=$!
}
wait_for() { # wait_for PATTERN FILE; the limit of 150 s only ends a hang
  for _ in $(seq 1500); do
    if grep -qE "$1" "$2" 2>/dev/null; then return; fi
    sleep 0.1
  done
  cat "$work/out" "$2"
  echo "no line '$1' in $2"
  exit 1
}
ended_with() { # ended_with STATUS: what was started
  status=0
  wait "$started" || status=$?
  [ "$status" -eq "$1" ] || { cat "$work/out" && echo "status $status, not $1" && exit 1; }
}

# A kill leaves what was found; TERM also a summary, and nothing that runs on.
export ZINC_CHECK_JOBS=2 ZINC_CHECK_FOLDER="$work/checked"
in_background sh "$source/bench/gpu/gpu-check" WithSlow
wait_for '^so far: 2 passed, 0 failed, 0 skipped$' "$work/checked/summary.txt"
wait_for 'Slow.A' "$work/checked/logs/Slow.log"
kill -KILL "$started"
ended_with 137
summary_is 'so far: 2 passed, 0 failed, 0 skipped'
rm -r "$work/checked"
in_background sh "$source/bench/gpu/gpu-check" WithSlow
wait_for '^so far: 2 passed' "$work/checked/summary.txt"
wait_for 'Slow.A' "$work/checked/logs/Slow.log"
kill -TERM "$started"
ended_with 143
grep -q '^cut off: 2 passed, 0 failed, 0 skipped$' "$work/out"

# gpu-bench: an op that crashes ends no other, and the results of the others are one file.
results=$work/results
bench_is() { # bench_is PATTERN...: lines of the summary
  for pattern in "$@"; do
    grep -qE "$pattern" "$results/summary.txt" || { cat "$work/out" "$results/summary.txt" && echo "no line '$pattern'" && exit 1; }
  done
}
in_background sh "$source/bench/gpu/gpu-bench" "$results"
ended_with 0
bench_is '^Ceilings: done in' '^Kernels, gpt2-124m: these did not end well: crash \(134\)$' \
  '^Step by kernel, gpt2-124m: done in' '^Training llama-1b: done in'
printf '{\n "cpu": "none",\n "results": [\n  {\n   "op": "fill"\n  },\n  {\n   "op": "scale"\n  }\n ]\n}\n' |
  cmp - "$results/kernels-gpt2-124m.json"
[ "$(grep -c '^op heading' "$results/gpu.md")" -eq 2 ]  # once for each of the two tables of kernels
grep -q '"attention, forward"' "$results/step-by-kernel.csv"
grep -q '^crash forward bf16' "$results/gpu.md"

# Where a profiler is missing or fails, events around launches give the times.
rm "$results/step-by-kernel.csv"
NSYS_FAILS=yes ZINC_BENCH_PARTS='^Step by kernel' in_background sh "$source/bench/gpu/gpu-bench" "$results"
ended_with 0
grep -q '"by events"' "$results/step-by-kernel.csv"
grep -q '"by events"' "$results/gpu.md"

# A budget ends the part that runs, and names those that do not begin.
SLOW_COMM=yes ZINC_BENCH_BUDGET=12 in_background sh "$source/bench/gpu/gpu-bench" "$results"
ended_with 0
bench_is '^Kernels, gpt2-124m: these' '^Collectives.*: cut off by its limit' '^Training llama-1b: not run: the budget has ended'

rm -r "$results"
# A kill leaves what was measured, and which part was under way; TERM names it.
SLOW_COMM=yes in_background sh "$source/bench/gpu/gpu-bench" "$results"
wait_for '^Collectives.*: under way$' "$results/summary.txt"
wait_for '^collectives begin$' "$results/logs/Collectives_two_ranks_on_one_GPU_through_pinned_memory.log"
kill -KILL "$started"
ended_with 137
bench_is '^Ceilings: done in' '^Collectives.*: under way$'
grep -q '"scale"' "$results/kernels-llama-8b.json"
rm -r "$results"
SLOW_COMM=yes in_background sh "$source/bench/gpu/gpu-bench" "$results"
wait_for '^Collectives.*: under way$' "$results/summary.txt"
wait_for '^collectives begin$' "$results/logs/Collectives_two_ranks_on_one_GPU_through_pinned_memory.log"
kill -TERM "$started"
ended_with 143
bench_is '^Collectives.*: cut off$'
grep -q '^collectives begin$' "$results/gpu.md"
