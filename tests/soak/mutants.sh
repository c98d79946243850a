#!/bin/sh
# Whether the tests notice one-line faults: applies each mutant of mutants.txt to a copy of the tree,
# builds its tests for the emulator (those of the kernels, unless it names others) and runs them; a
# mutant that they pass, or that hangs them for no longer than the limit, survives. Prints a table
# and the share that was killed.
#
# usage: mutants.sh [--check] SOURCE SCRATCH [FIRST [LAST]]    exit status 1 under 95 %
# --check: only whether every line of the list can be applied
set -eu
only_check=""
if [ "$1" = --check ]; then only_check=yes && shift; fi
source=$(cd "$1" && pwd)
mkdir -p "$2"
scratch=$(cd "$2" && pwd)
first=${3:-1}
last=${4:-100000}
limit_s=300
tree=$scratch/tree
list=$source/tests/soak/mutants.txt

# The copy of the tree, as the source is now.
prepare_tree() {
  mkdir -p "$tree"
  (cd "$source" && git ls-files -z | tar --null -T - -cf -) | tar -xf - -C "$tree" --skip-old-files
  (cd "$source" && git ls-files) | while IFS= read -r file; do
    cmp -s "$source/$file" "$tree/$file" || cp "$source/$file" "$tree/$file"
  done
  # What the source has no more: sources are found by their place.
  (cd "$source" && git ls-files) | sort >"$scratch/files.txt"
  (cd "$tree" && find . -path ./build -prune -o -type f -print | sed 's|^\./||') | sort |
    comm -13 "$scratch/files.txt" - | (cd "$tree" && xargs -r rm -f --)
  launcher=""
  if command -v ccache >/dev/null 2>&1; then launcher=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
  (cd "$tree" && cmake --preset emulated -DZINC_BENCH=OFF -DZINC_EXAMPLES=OFF $launcher) >"$scratch/configure.log"
  build kernels || { cat "$scratch/build.log"; exit 70; }
}
# build LAYER, run_tests LAYER FILTER: of tests/LAYER.
build() { nice -n 5 ninja -C "$tree/build/emulated" "zinc_tests_$1" >"$scratch/build.log" 2>&1; }
run_tests() {
  device=""
  case $1 in kernels*) device=--device=cuda ;; esac
  timeout "$limit_s" "$tree/build/emulated/zinc_tests_$1" $device --gtest_fail_fast --gtest_brief=1 \
    --gtest_filter="$2" >"$scratch/test.log" 2>&1 </dev/null
}
# Replaces a part of one line; the part must be there exactly once, or N times with "N:".
mutate() { # mutate FILE OLD NEW >MUTANT
  OLD=$2 NEW=$3 awk '
    BEGIN {
      old = ENVIRON["OLD"]; new = ENVIRON["NEW"]; wanted = 0
      if (match(old, /^[0-9]+:/)) { wanted = substr(old, 1, RLENGTH - 1) + 0; old = substr(old, RLENGTH + 1) }
      gsub(/\\\|/, "|", old); gsub(/\\\|/, "|", new); gsub(/\\n/, "\n", new)
    }
    {
      at = index($0, old)
      if (at > 0 && (++seen == wanted || wanted == 0)) {
        print substr($0, 1, at - 1) new substr($0, at + length(old)); done++
      } else print
    }
    END { if (done != 1) exit 3 }' "$1"
}

# each_mutant FUNCTION: calls it for the lines FIRST to LAST with number, file, layer, tests, old, new.
sed 's/\\|/\x01/g' "$list" | grep -v '^#' >"$scratch/list.txt"
trimmed() { printf '%s' "$1" | sed 's/^ *//; s/ *$//' | tr '\001' '|'; }
each_mutant() {
  number=0
  while IFS='|' read -r file tests old new; do
    number=$((number + 1))
    if [ "$number" -lt "$first" ] || [ "$number" -gt "$last" ]; then continue; fi
    file=$(trimmed "$file") tests=$(trimmed "$tests") old=$(trimmed "$old") new=$(trimmed "$new")
    layer=kernels
    case $tests in @*) layer=${tests%% *} && layer=${layer#@} && tests=${tests#* } ;; esac
    "$1"
  done <"$scratch/list.txt"
}

must_apply() {
  if mutate "$source/$file" "$old" "$new" >"$scratch/mutant"; then return; fi
  echo "$number $file: not one line has: $old"
  exit 65
}

# A test that fails without a mutant kills none.
must_pass() {
  if grep -qxF "$layer $tests" "$scratch/sound.txt"; then return; fi
  if ! build "$layer" || ! run_tests "$layer" "$tests"; then
    echo "$layer: $tests: fails without a mutant"
    exit 70
  fi
  echo "$layer $tests" >>"$scratch/sound.txt"
}

try_mutant() {
  mutate "$source/$file" "$old" "$new" >"$tree/$file"
  tried=$((tried + 1))
  if ! build "$layer"; then
    result="does not compile"
  elif run_tests "$layer" "$tests"; then
    result="SURVIVED"
  else
    result="killed"
    killed=$((killed + 1))
  fi
  if [ "$result" != killed ]; then echo "$number $file: $old -> $new: $result" >>"$scratch/survivors.txt"; fi
  printf '%3d  %-9s %s: %s -> %s\n' "$number" "$result" "$file" "$old" "$new"
  cp "$source/$file" "$tree/$file"
}

tried=0
killed=0
: >"$scratch/survivors.txt"
: >"$scratch/sound.txt"
each_mutant must_apply
if [ -n "$only_check" ]; then exit 0; fi
prepare_tree
each_mutant must_pass
each_mutant try_mutant

echo "$killed of $tried mutants killed"
cat "$scratch/survivors.txt"
[ $((killed * 100)) -ge $((tried * 95)) ]
