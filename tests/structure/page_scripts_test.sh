#!/bin/sh
# usage: tests/structure/page_scripts_test.sh SOURCE_FOLDER
#
# The JavaScript of the pages that the command writes: each file is a program that node can read, in strict mode, and
# ends no script element early. Their CSS has names that a browser reads. Exit code 77 without node.
set -eu
command -v node >/dev/null || exit 77
cd "$1"
status=0 number=0
for file in [a-z]*/*.js [a-z]*/[a-z]*/*.js; do
  case $file in build/* | *'*'*) continue ;; esac
  number=$((number + 1))
  node --check "$file" || status=1
  head -1 "$file" | grep -q "^'use strict';" || { echo "$file: does not begin with 'use strict';" && status=1; }
  ! grep -n '</script' "$file" || { echo "$file: ends the element that it stands in" && status=1; }
done
# A formatter of C++ that met a file of CSS has put blanks into its names: a browser then reads none of them.
for file in [a-z]*/*.css [a-z]*/[a-z]*/*.css [a-z]*/*.html [a-z]*/[a-z]*/*.html; do
  case $file in build/* | *'*'*) continue ;; esac
  ! grep -nE '^ *[a-z]+ - [a-z]+|^[a-z-]+: *$|@media\(' "$file" || { echo "$file: no browser reads these" && status=1; }
done
[ "$number" -gt 0 ] || { echo "no script of a page was found" && exit 1; }
exit $status
