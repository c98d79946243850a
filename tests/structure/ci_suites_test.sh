#!/bin/sh
# usage: ci_suites_test.sh SOURCE_DIR: which suites .ci/run_tests leaves out, and which tests it repeats, in a
# tree of two programs and scripts. Every program notes that it ran.
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for tool in git objcopy dpkg-query cc; do
  command -v $tool >/dev/null || { echo "skipped: no $tool" && exit 77; }
done
export XDG_CACHE_HOME="$work/cache"
ran=$work/ran
export RAN="$ran"
unset ZINC_CI_ALL ZINC_LAUNCHES 2>/dev/null || true

tree=$work/tree
mkdir -p "$tree/.ci" "$tree/docs" "$tree/tests" "$tree/build/ci"
cp "$source/.ci/run_tests" "$tree/.ci"
cp "$source/CMakePresets.json" "$tree"
cd "$tree"
git init -q .
echo /build/ >.gitignore
echo 1 >tests/numbers.txt
echo page >docs/config.md
echo page >docs/other.md

program() { # program NAME EXIT_CODE [REVISION]: one that has its revision where zinc has it
  printf '%s\n' '#include <stdio.h>' '#include <stdlib.h>' '#include <string.h>' \
    "__attribute__((section(\".zinc_revision\"), used)) const char revision[64] = \"${3:-none}\";" \
    'int main(int n, char** words) { (void)n;' \
    '  FILE* f = fopen(getenv("RAN"), "a"); fprintf(f, "%s\n", strrchr(words[0], 47) + 1); fclose(f);' \
    '  const char* notes = getenv("ZINC_LAUNCHES");' \
    '  if (notes) { char name[999]; snprintf(name, 999, "%s/'"$1"'.7", notes); f = fopen(name, "w");' \
    '    fprintf(f, "1a30 256 0\n2b40 32 0\n"); fclose(f); }' \
    "  return $2; }" >"build/$1.c"
  cc -g -o "build/ci/$1" "build/$1.c"
}
define() { # define TIMEOUT_OF_ALPHA
  for test in alpha.one alpha.two beta.one; do
    echo "add_test([=[$test]=] \"$PWD/build/ci/${test%.*}\" \"--of=$test\")"
    echo "set_tests_properties([=[$test]=] PROPERTIES TIMEOUT \"$1\" _BACKTRACE_TRIPLES \"$PWD/x;${1}1;\")"
  done >build/ci/CTestTestfile.cmake
  echo "add_test([=[script.one]=] \"sh\" \"-c\" \"echo script >>$ran\" \"$PWD/build/ci/alpha\")" >>build/ci/CTestTestfile.cmake
}
expect() { # expect NAMES MEANING [ARGS]: the programs that run, each once
  wanted=$1 meaning=$2
  shift 2
  : >"$ran"
  status=0
  .ci/run_tests ci "$@" >"$work/out" 2>&1 || status=$?
  if [ "$(sort -u "$ran" | tr '\n' ' ')" != "$wanted" ]; then
    cat "$work/out"
    echo "$meaning: ran: $(sort -u "$ran" | tr '\n' ' '); expected: $wanted"
    exit 1
  fi
}

define 60
program alpha 0
program beta 0
expect "alpha beta script " "the first time"
expect "script " "nothing changed"
grep -q '^ci: left out: alpha, 2 tests: passed on ' "$work/out"
expect "" "nothing that could run is selected" '^alpha'
[ "$status" -eq 0 ]
expect "alpha " "a part of a suite is another suite" '^alpha.one'
program alpha 0 0123456789ab
expect "script " "another revision alone"
echo text >>docs/other.md
expect "script " "a page alone"
sed -i 's/fprintf(f, "%s/fprintf(f, "" "%s/; s/^int main/\n\nint main/' build/alpha.c && cc -g -o build/ci/alpha build/alpha.c
expect "script " "other lines, same program"
sed -i 's/return 0/return n == 77/' build/alpha.c && cc -g -o build/ci/alpha build/alpha.c
expect "alpha script " "another program"
echo 2 >tests/numbers.txt
expect "alpha beta script " "another data file"
echo more >tests/untracked.json
expect "alpha beta script " "one more data file"
echo more >>docs/config.md
expect "alpha beta script " "the page that a test reads"
define 61
expect "alpha beta script " "another definition"
expect "script " "the definition before"
OMP_NUM_THREADS=1 expect "alpha beta script " "another environment"
mkdir "$work/bin" && printf '#!/bin/sh\necho another kernel\n' >"$work/bin/uname" && chmod +x "$work/bin/uname"
PATH="$work/bin:$PATH" expect "alpha beta script " "another machine"
ZINC_CI_ALL=1 expect "alpha beta script " "all on request"

program beta 3
expect "beta script " "one that fails"
[ "$status" -ne 0 ]
expect "beta script " "one that failed is not kept"
[ "$status" -ne 0 ]
program alpha "n == 78"
expect "alpha beta script " "another program beside one that fails"
expect "beta script " "what passes beside one that fails is kept"
[ "$status" -ne 0 ]
program beta 0
expect "script " "mended to what passed before"

# Notes of launches are those of the run that passed.
export ZINC_LAUNCHES="$tree/build/launches"
mkdir "$ZINC_LAUNCHES"
expect "alpha beta script " "notes are wanted"
cat "$ZINC_LAUNCHES"/alpha.* | sort -u >"$work/notes"
rm -rf "$ZINC_LAUNCHES" && mkdir "$ZINC_LAUNCHES"
expect "script " "notes are kept"
cat "$ZINC_LAUNCHES"/alpha.* | sort -u | cmp - "$work/notes"
unset ZINC_LAUNCHES

# Tests with the label pace have three attempts, in runs of their own. A program fails until it ran NEED times.
counting() { # counting NAME
  printf '%s\n' '#include <stdio.h>' '#include <stdlib.h>' \
    'int main(int n, char** words) { FILE* f = fopen(getenv("RAN"), "a"); fputs(words[1], f); fputs("\n", f); fclose(f);' \
    '  int times = 0; f = fopen(words[1], "a+"); fputc(46, f); rewind(f); while (fgetc(f) != EOF) ++times; fclose(f);' \
    '  return n < 2 || times < atoi(words[2]); }' >"build/$1.c"
  cc -o "build/ci/$1" "build/$1.c"
}
counted() { # counted LABEL NAME NEED: one more test, named by the file in which it counts
  rm -f "$work/$2"
  echo "add_test([=[$2]=] \"$PWD/build/ci/counting\" \"$work/$2\" \"$3\")" >>build/ci/CTestTestfile.cmake
  echo "set_tests_properties([=[$2]=] PROPERTIES LABELS \"$1\")" >>build/ci/CTestTestfile.cmake
}
expect_attempts() { # expect_attempts STATUS COUNTS LINES MEANING [ARGS]: COUNTS as in "pace.a=2 "
  wanted_status=$1 wanted_counts=$2 wanted_lines=$3 meaning=$4
  shift 4
  : >"$ran"
  status=0
  .ci/run_tests ci "$@" >"$work/out" 2>&1 || status=$?
  counts=$(sed "s|^$work/||" "$ran" | sort | uniq -c | awk '{ printf "%s=%d ", $2, $1 }')
  lines=$(sed -n 's/^ci: pace: //p' "$work/out" | sort | tr '\n' ';')
  [ "$status" -eq 0 ] || status=1
  if [ "$status $counts $lines" != "$wanted_status $wanted_counts $wanted_lines" ]; then
    cat "$work/out"
    echo "$meaning: status $status, ran $counts, said $lines; expected $wanted_status, $wanted_counts, $wanted_lines"
    exit 1
  fi
}
cp build/ci/CTestTestfile.cmake "$work/definitions"
counting counting
: >build/ci/CTestTestfile.cmake
counted pace 'pace.(a+b)' 2 && counted cpu pace.plain 1 && counted 'pace;slow' pace.slow 9
expect_attempts 0 'pace.(a+b)=2 pace.plain=1 ' 'pace.(a+b) passed at attempt 2;' "one that passes at its second attempt"
expect_attempts 0 '' '' "its suite is kept"
grep -q '^ci: left out: pace, 2 tests: ' "$work/out"
ZINC_CI_ALL=1 expect_attempts 0 'pace.(a+b)=1 pace.plain=1 ' '' "one that passes at once is not repeated"
: >build/ci/CTestTestfile.cmake
counted pace pace.never 9 && counted cpu pace.plain 1 && counted cpu other.plain 1
expect_attempts 1 'other.plain=1 pace.never=3 pace.plain=1 ' '' "one that fails three times"
expect_attempts 1 'pace.never=3 pace.plain=1 ' '' "its suite is not kept, another is"
: >build/ci/CTestTestfile.cmake
counted pace pace.third 3 && counted cpu pace.second 2 && counted pace other.third 3
expect_attempts 1 'other.third=3 pace.second=1 pace.third=3 ' \
  'other.third passed at attempt 3;pace.third passed at attempt 3;' "without the label nothing is repeated"
rm "$work/pace.third"  # it counts from 0
expect_attempts 0 'pace.second=1 pace.third=3 ' 'pace.third passed at attempt 3;' "what failed without the label runs again"
: >build/ci/CTestTestfile.cmake
counted pace pace.never 9 && counted cpu other.never 99
expect_attempts 1 'other.never=1 pace.never=3 ' '' "suites that fail in either run"
expect_attempts 1 'other.never=1 pace.never=3 ' '' "neither of them is kept"
: >build/ci/CTestTestfile.cmake
counted pace pace.first 2 && counted pace pace.second 2 && counted cpu pace.plain 1
expect_attempts 0 'pace.first=2 ' 'pace.first passed at attempt 2;' "a selection holds for both runs" 'first|plain' 'plain'
expect_attempts 1 '' '' "a selection without a test is an error" '^nothing'
cp "$work/definitions" build/ci/CTestTestfile.cmake

cp -a "$tree" "$work/a_tree_at_another_path"
cd "$work/a_tree_at_another_path"
define 61
sed -i "s|$tree|$PWD|g" build/ci/CTestTestfile.cmake
expect "script " "another path"

seq -f "$XDG_CACHE_HOME/zinc/ci-suites/old_%g" 600 | xargs touch -d '2 days ago'
expect "script " "many are kept"
[ "$(find "$XDG_CACHE_HOME/zinc/ci-suites" -type f | wc -l)" -eq 500 ]
expect "script " "the oldest were forgotten"
