#!/bin/bash
# usage: ci_reach_test.sh SOURCE_DIR: what .ci/reach says that a change reaches, in a tree of three sources.
set -euo pipefail
source=$1
for tool in git g++ ninja; do
  command -v $tool >/dev/null || { echo "skipped: no $tool" && exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree="$work/a tree"
mkdir -p "$tree"/{.ci,core,zero,tests/zero,tests/train,cmake,docs,build/ci}
cp "$source/.ci/reach" "$tree/.ci"
cd "$tree"
git init -q . && git config user.email tests@localhost && git config user.name tests
echo /build/ >.gitignore
printf '// A contract.\n#pragma once\nint one();\n' >core/one.h
printf '#pragma once\n#include "core/one.h"\n' >zero/two.h
printf '#include "core/one.h"\nint one() { return 1; }\n' >core/one.cpp
printf '#include "zero/two.h"\nint two() { return one() + 1; }\n' >zero/two.cpp
printf '#include "zero/two.h"\nint two_test() { return one() == 1; }\n' >tests/zero/two_test.cpp
printf 'int without() { return 0; }\n' >core/one_no_cuda.cpp
echo 1 >tests/train/data.txt
echo page >docs/page.md
echo settings >cmake/Settings.cmake
{
  printf 'rule cc\n  command = g++ -I../.. -MMD -MF $out.d -c $in -o $out\n  depfile = $out.d\n  deps = gcc\n'
  for pair in zinc_core:core/one zinc_zero:zero/two zinc_tests_zero:tests/zero/two_test; do
    echo "build CMakeFiles/${pair%:*}.dir/${pair#*:}.cpp.o: cc ../../${pair#*:}.cpp"
  done
} >build/ci/build.ninja
ninja -C build/ci >/dev/null
git add -A && git commit -qm begin
[ "$(.ci/reach --turn)" = 0 ] || { echo "no file: not the first turn" && exit 1; }
if .ci/reach --suites >"$work/out"; then echo "no file: the change is not known" && exit 1; fi
.ci/reach --begin
grep -qx "$(git rev-parse HEAD) 1" .ci/landed
git add -A && git commit -qm landed
.ci/reach --begin
grep -qx "$(git rev-parse HEAD) 2" .ci/landed
[ "$(.ci/reach --turn)" = 2 ]
git add -A && git commit -qm change

expect() { # expect OPTION LINES MEANING; afterwards the tree is as before
  .ci/reach "$1" | tr '\n' ' ' >"$work/out"
  if [ "$(cat "$work/out")" != "$2" ]; then
    echo "$3: $1 says '$(cat "$work/out")', expected '$2'"
    exit 1
  fi
  git checkout -q . && git clean -qfd
}
alone="core/one_no_cuda.cpp "  # what the build does not compile

expect --suites "" "no change"
expect --sources "$alone" "no change"
sed -i 's/A contract/The contract/' core/one.h
printf '\n\n  // said twice\n' >>zero/two.cpp
expect --suites "" "comments alone"
echo 'int more;' >>core/one.cpp
expect --suites "core core_cuda " "a source of core"
echo 'int more;' >>core/one.cpp
expect --sources "core/one.cpp $alone" "a source of core"
echo 'int more();' >>core/one.h
expect --suites "core core_cuda equivalence equivalence_cuda ranks zero " "a header of core"
echo 'int more();' >>core/one.h
expect --sources "core/one.cpp core/one.h ${alone}tests/zero/two_test.cpp zero/two.cpp zero/two.h " "a header of core"
echo 'int more;' >>tests/zero/two_test.cpp
expect --suites "zero " "a test"
echo 2 >tests/train/data.txt
expect --suites "train " "data of tests"
echo more >>docs/page.md
expect --suites "" "a page"
echo more >>cmake/Settings.cmake
expect --suites "all " "what sets flags"
echo 'int more;' >>core/one.cpp
git commit -qam "a commit of the change"
expect --suites "core core_cuda " "a change that is committed"
sed -i 's/more/most/' core/one.cpp
expect --suites "core core_cuda " "a change of it that is not"
echo "0123456789012345678901234567890123456789 2" >.ci/landed
if .ci/reach --suites >"$work/out"; then echo "a commit that is not there" && exit 1; fi
