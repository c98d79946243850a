#!/bin/bash
# usage: quick_test.sh SOURCE_DIR: .ci/quick in a copy of the tree: it passes, and each fault that is planted is
# found by the check that is for it.
set -euo pipefail
source=$1
for tool in git g++; do
  command -v $tool >/dev/null || { echo "skipped: no $tool" && exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME="$work/cache"
mkdir -p "$work/tree in a folder"
cd "$work/tree in a folder"
(cd "$source" && git ls-files -z --cached --others --exclude-standard |
  xargs -0 sh -c 'for file; do [ ! -e "$file" ] || printf "%s\0" "$file"; done' sh | tar --null -T - -cf -) | tar -xf -
# What was compiled for the source is compiled for its copy.
[ ! -d "$source/build/quick" ] || { mkdir build && cp -a "$source/build/quick" build/quick; }
git init -q . && git config user.email tests@localhost && git config user.name tests
commit() { git add -A && git commit -qm "$1"; }
commit "the commit that landed"
.ci/reach --begin
commit "the change"

passes() { # passes CHECK...
  .ci/quick "$@" >"$work/out" 2>&1 || { cat "$work/out" && echo "quick $*: expected to pass" && exit 1; }
}
finds() { # finds CHECK TEXT MEANING: and the fault is gone afterwards
  if .ci/quick "$1" >"$work/out" 2>&1 || ! grep -qF -- "$2" "$work/out"; then
    cat "$work/out"
    echo "$3: expected from the check $1: $2"
    exit 1
  fi
  git checkout -q . && git clean -qfd
}

passes tree config scripts words landed
a_page="docs/building.md"
sed -i "5s/^/$(printf 'x%.0s' {1..121})\n\n/" $a_page
finds tree "$a_page:5: page_columns: 121 columns" "a line of 121 columns in a page"
sed -i '/^## Questions that this page answers/,$d' $a_page
finds tree "page_questions" "a page without its questions"
sed -i '2a #include "zero/engine_config.h"' core/error.h
finds tree 'core/error.h:3: layer: "zero/engine_config.h": core may include core' "an include upward"
printf '#pragma once\n' >core/utils.h
finds tree "core/utils.h:1: name:" "a name that says nothing"
sed -i 's/^set(ZINC_SEES_offload core)/set(ZINC_SEES_offload core tensor)/' cmake/Layers.cmake
finds tree "cmake/Layers.cmake:1: layer:" "a layer that links more than it may include"
sed -i '/^| `gradient_clipping`/d' docs/config.md
finds config '> | `gradient_clipping`' "a row of docs/config.md taken away"
sed -i 's/ | a launch has no phases | / | | /' docs/config.md
finds config "| a launch has no phases |" "a reason of docs/config.md taken away"
sed -i '/^gradient_clipping /d' tests/train/config_keys.txt
finds config "no row for gradient_clipping" "a key that the tests' list does not have"
echo "gradient_clapping plan" >>tests/train/config_keys.txt
finds config "no key that works is gradient_clapping" "a row of the tests' list without a key"
if command -v clang-format >/dev/null && clang-format --version | grep -q 'version 14\.'; then
  printf 'int  spaces ;\n' >>core/error.cpp
  finds format "core/error.cpp:" "a source that is not as clang-format has it"
fi
if command -v shellcheck >/dev/null; then
  # shellcheck disable=SC2016 # the fault
  printf 'for each in $*; do cd $each; done\nif [ $each = ]; then :\n' >>bench/gpu/gpu-check
  finds scripts "In bench/gpu/gpu-check line" "a script that does not parse"
fi
printf 'See %s.\n' "/ro""ot/notes" >>$a_page
finds words "$a_page" "a folder of the machine"
printf '// "docs/building.md"\nconst char* kPage = "docs/building.md";\n' >tests/core/pages.h
finds tests "docs/building.md: a test names it" "a file that a test reads and no key has"
sed -i '0,/^[a-z].*|/s/|.*|.*|/| X | no such line | nothing/' tests/soak/mutants.txt
finds tests "not one line has: no such line" "a mutant that does not apply"
echo "$(git rev-parse HEAD) $(awk '{ print $2 + 2 }' .ci/landed)" >.ci/landed
finds landed "one more is asked for" "a number that is not the next one"
echo "0123456789012345678901234567890123456789 2" >.ci/landed
finds landed "no commit behind this one" "a commit that is not there"
echo "a word" >.ci/landed
finds landed "is asked for" "no commit and number"
rm .ci/landed
passes landed
grep -q "left out: there is no .ci/landed" "$work/out"
git checkout -q .
mkdir -p "$XDG_CACHE_HOME/zinc"
echo "$(git rev-parse HEAD) $(awk '{ print $2 }' .ci/landed)" >"$XDG_CACHE_HOME/zinc/ci-landed"
passes landed
git commit -q --allow-empty -m "the next change"
finds landed "landed with" "the file of the change before"
.ci/reach --begin
git commit -qam "a file of its own"
passes landed
mv .git "$work/git"
passes scripts words landed
mv "$work/git" .git
! .ci/quick no_such_check 2>"$work/out" && grep -q "there is no check" "$work/out"
