#!/bin/sh
# usage: bench/busy_step.sh [-l LOOPS] [-r ROUNDS] ZINC...
#
# How long a step takes beside other work: each program trains alone, then beside LOOPS (default: 4) threads that
# are always busy, in turns, ROUNDS times (default: 3). One line a program, medians of all rounds:
#
#   build/release/zinc: alone 36.1 ms, beside 4 busy loops 110.4 ms, 3.06 times
#
# With two processors and four loops, two threads that take their fair share need 3 times as long. Names of
# programs come last. The busy threads end with the script, however it ends.
set -eu
loops=4 rounds=3
while getopts l:r: option; do
  case $option in
    l) loops=$OPTARG ;;
    r) rounds=$OPTARG ;;
    *) exit 64 ;;
  esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- build/release/zinc

work=$(mktemp -d)
busy=""
end_busy() {
  # shellcheck disable=SC2086 # a list of processes
  [ -z "$busy" ] || { kill $busy 2>/dev/null || true; }
  busy=""
}
trap 'end_busy; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

keep_busy() { # until this script is gone
  while kill -0 $$ 2>/dev/null; do
    i=0
    while [ "$i" -lt 200000 ]; do i=$((i + 1)); done
  done
}

# Appends milliseconds of steps to FILE, one a line.
time_steps() { # time_steps ZINC FILE
  "$1" bench train --preset tiny --dtype f32 --batch 4 --seq 64 --steps 20 >"$work/out"
  sed -n 's/^stage 0 step *\([0-9.]*\) ms.*/\1/p' "$work/out" >>"$2"
}
median() { sort -n "$1" | sed -n "$((($(wc -l <"$1") + 1) / 2))p"; }

for round in $(seq "$rounds"); do
  number=0
  for zinc; do
    number=$((number + 1))
    time_steps "$zinc" "$work/alone$number"
    i=0
    while [ "$i" -lt "$loops" ]; do
      (trap - EXIT && keep_busy) &
      busy="$busy $!"
      i=$((i + 1))
    done
    time_steps "$zinc" "$work/busy$number"
    end_busy
    wait
  done
  echo "round $round of $rounds done" >&2
done
number=0
for zinc; do
  number=$((number + 1))
  alone=$(median "$work/alone$number") beside=$(median "$work/busy$number")
  echo "$zinc: alone $alone ms, beside $loops busy loops $beside ms," \
    "$(awk "BEGIN { printf \"%.2f\", $beside / $alone }") times"
done
