#!/bin/bash
# usage: tests/docs/docs_test.sh ZINC
#
# Pages that are wrong are found, with their lines.
set -euo pipefail
zinc=$1
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
expect() { # expect WORDS COMMAND...: the command fails, and says the words
  local words=$1
  shift
  if "$@" >"$work/said" 2>&1; then
    echo "passes: $*" && status=1
  elif ! grep -qF -- "$words" "$work/said"; then
    echo "does not say '$words': $*" && cat "$work/said" && status=1
  fi
}
page() { cat >"$work/page.md"; }
run() { "$here/run_page.sh" "$work/page.md" "$zinc" "$work/run"; }

printf '# A page\n\n<!-- runs -->\n```sh\ntrue\nfalse | true\n```\n' | page
expect "page.md:6: failed" run
printf '<!-- before the commands:\nmkdir a\n-->\n<!-- file: a/b -->\n```json\n{}\n```\n<!-- runs -->\n```sh\ntest -s a/c\n```\n' | page
expect "page.md:10: failed: test -s a/c" run
printf '<!-- runs -->\n\n```sh\ntrue\n```\n' | page
expect "a block follows a mark at once" run
printf '<!-- run -->\n```sh\ntrue\n```\n' | page
expect "a mark is" run
printf 'No block.\n\n```sh\nfalse\n```\n' | page
expect "no block of it runs" run
printf '<!-- runs -->\n```sh\nzinc --version\n```\n' | page
run >/dev/null || { echo "a right page fails" && status=1; }

printf '```sh\nzinc launch --ranks 2 zinc train --config a \\\n  --setps 3\nzinc checkpoint lost x\nzinc plna --model x\n```\n' | page
expect "page.md:2: zinc train has no --setps" "$here/options_exist.sh" "$zinc" "$work/page.md"
expect "page.md:5: there is no verb 'plna'" "$here/options_exist.sh" "$zinc" "$work/page.md"
printf '```sh\nzinc plan --config lost.json --model m.json\necho 1 >m.json\n```\n' | page
expect "page.md:2: the page does not show lost.json" "$here/options_exist.sh" "$zinc" "$work/page.md"
printf '```sh\nzinc checkpoint list run --json   # --nothing\nzinc plan --fit | grep --color x\n```\n' | page
"$here/options_exist.sh" "$zinc" "$work/page.md" || { echo "a right page fails" && status=1; }

printf '# A page\n\n## Its part: 2\n\n[a](#its-part-2) [b](lost.md)\n[c](page.md#lost) `[d](lost.md)`\n' | page
expect "page.md:5: there is no lost.md" "$here/links_exist.sh" "$work/page.md"
expect "page.md:6: $work/page.md has no heading '#lost'" "$here/links_exist.sh" "$work/page.md"
printf '# A page\n\n## Its part: 2\n\n[a](#its-part-2) [b](page.md) [c](https://a.b/c)\n' | page
"$here/links_exist.sh" "$work/page.md" || { echo "right links fail" && status=1; }
exit $status
