#!/bin/sh
# usage: tests/soak/busy_machine.sh [BUILD_FOLDER [RUNS [REGEX]]]
#
# Runs the tests of a build (default: build/release) RUNS times (default: 3) as `./run test` does, beside four
# threads that are always busy. On a machine of few cores every test then takes several times as long, and
# stands still again and again: a test that fails counts on the machine's pace. REGEX selects tests by name, as
# ctest -R does.
#
# Tests with the label pace run after the others and have three attempts, as in .ci/run_tests. One line a run:
#
#   run 1: 843 s, 2950 tests, failed: none, repeated: comm.HeartbeatPace.AFolderThatHangs... (attempt 2)
#
# BUILD_FOLDER/Testing/busy_machine_RUN.log has what ctest said. Exit code 1 if a test failed, 2 if there was
# none. The busy threads end with the script, however it ends.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build/release}
runs=${2:-3}
regex=${3:-}
[ -f "$build/CTestTestfile.cmake" ] || { echo "busy_machine: no tests in $build: build it first" >&2 && exit 2; }

threads="" ctest=""
work=$(mktemp -d)
# shellcheck disable=SC2086 # a list of processes
trap 'kill $ctest $threads 2>/dev/null || true; wait; rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

keep_busy() { # until this script is gone
  while kill -0 $$ 2>/dev/null; do
    i=0
    while [ "$i" -lt 200000 ]; do i=$((i + 1)); done
  done
}
for _ in 1 2 3 4; do
  (trap - EXIT && keep_busy) &
  threads="$threads $!"
done

# Appends ctest's output to $log and the names of tests that failed to $work/failed.
run_ctest() { # run_ctest ARGS...
  rm -f "$build/Testing/Temporary/LastTestsFailed.log"
  [ -z "$regex" ] || set -- -R "$regex" "$@"
  ctest --test-dir "$build" --no-tests=ignore --output-on-failure "$@" >>"$log" 2>&1 &
  ctest=$!
  wait "$ctest" || true
  ctest=""
  sed 's/^[0-9]*://' "$build/Testing/Temporary/LastTestsFailed.log" >>"$work/failed" 2>/dev/null || true
}

on_one_line() { # on_one_line FILE: its lines between commas, or "none"
  [ -s "$1" ] || echo none >"$1"
  paste -s -d , "$1" | sed 's/,/, /g'
}

status=0
mkdir -p "$build/Testing"
for run in $(seq "$runs"); do
  log="$build/Testing/busy_machine_$run.log"
  : >"$log"
  : >"$work/failed"
  begin=$(date +%s)
  run_ctest -LE '^(slow|cuda|pace)$' -j "$(nproc)"
  run_ctest -L '^pace$' -LE '^(slow|cuda)$' -j 2 --repeat until-pass:3
  seconds=$(($(date +%s) - begin))
  # NAME ATTEMPTS RESULT of every test; a line of ctest for each attempt.
  awk '/^ *([0-9]+\/[0-9]+ )?Test +#[0-9]+: / {
      sub(/^.*Test +#[0-9]+: /, "")
      attempts[$1]++
      passed[$1] = / Passed +[0-9.]+ sec/ }
    END { for (name in attempts) print name, attempts[name], passed[name] ? "passed" : "failed" }' "$log" >"$work/tests"
  tests=$(wc -l <"$work/tests")
  [ "$tests" -gt 0 ] || { echo "busy_machine: no test was run: $log" >&2 && exit 2; }
  [ ! -s "$work/failed" ] || status=1
  awk '$2 > 1 && $3 == "passed" { print $1 " (attempt " $2 ")" }' "$work/tests" | sort >"$work/repeated"
  echo "run $run: $seconds s, $tests tests, failed: $(on_one_line "$work/failed"), repeated: $(on_one_line "$work/repeated")"
done
exit "$status"
