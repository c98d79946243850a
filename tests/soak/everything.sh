#!/bin/bash
# usage: everything.sh [PART...]: everything under everything; `./run soak` without arguments. Hours on two cores.
# Writes a row of tests/soak/last_result.txt for each part that passes: when, for which commit, in how many seconds.
# Goes on behind a part that fails; exit status 1 then. Parts, all without names:
#
#   slow     the long tests (label slow): full products, long schedules of faults, jobs to their end
#   ci       .ci/run with all of its parts
#   asan     every suite under the address and undefined-behaviour sanitizers, the CUDA code emulated
#   tsan     every suite under the thread sanitizer, without optional libraries
#   bare     every suite without optional libraries
#   busy     the whole suite three times beside a load: busy_machine.sh
#   mutants  mutants.sh
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
exec </dev/null
results=tests/soak/last_result.txt
all="slow ci asan tsan bare busy mutants"

suites() { # suites PRESET: builds and runs all of its tests but the long ones
  ./run build "$1" zinc_tests zinc_command && ctest --preset "$1" -j "$(nproc)"
}

run_part() {
  case $1 in
    slow) ./run soak -L '^slow$' -E '^soak\.' ;;
    ci) ZINC_CI_ALL=1 .ci/run ;;
    asan | tsan | bare) suites "$1" ;;
    busy) ./run build release && tests/soak/busy_machine.sh build/release ;;
    mutants) tests/soak/mutants.sh . build/mutants ;;
  esac
}

note() { # note PART SECONDS
  local row
  row=$(printf '%-8s %s  %s  %7d' "$1" "$(date -u +%F)" "$(git rev-parse --short=8 HEAD)" "$2")
  [ -z "$(git status --porcelain --untracked-files=no -- . ":!$results")" ] || row+="  with changes"
  row+="  $(awk -F: '/^model name/ { sub(/^ /, "", $2); print $2; exit }' /proc/cpuinfo)"
  awk -v part="$1" -v row="$row" '$1 == part { print row; seen = 1; next } { print }
    END { if (!seen) print row }' "$results" >"$results.new" && mv "$results.new" "$results"
}

parts=${*:-$all}
for part in $parts; do
  [[ " $all " == *" $part "* ]] || { echo "everything: there is no part '$part'; there are: $all" >&2 && exit 64; }
done
failed=""
for part in $parts; do
  begin=$SECONDS
  echo "everything: $part: begins"
  if run_part "$part"; then
    note "$part" $((SECONDS - begin))
    echo "everything: $part: passed in $((SECONDS - begin)) s"
  else
    failed+=" $part"
    echo "everything: $part: FAILED after $((SECONDS - begin)) s"
  fi
done
if [ -n "$failed" ]; then echo "everything: FAILED:$failed" && exit 1; fi
echo "everything: all passed: $parts"
