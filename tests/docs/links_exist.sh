#!/bin/bash
# usage: tests/docs/links_exist.sh [PAGE...]
#
# Every link of a page within the tree leads to a file or folder that is there, and behind # to a heading of the page.
# Without PAGEs: README.md, CONTRIBUTING.md, docs/ and the README of each folder.
set -euo pipefail
if [ $# -eq 0 ]; then
  mapfile -t pages < <(ls README.md CONTRIBUTING.md docs/*.md ./*/README.md ./*/*/README.md | sed 's,^\./,,' | grep -v '^build/' | sort -u)
  set -- "${pages[@]}"
fi
status=0
# The marks that a browser gives to headings: lower case, without signs, blanks as '-'.
marks() {
  awk '/^```/ { code = !code } !code && /^#+ / {
    sub(/^#+ /, ""); line = tolower($0); gsub(/[^a-z0-9 _-]/, "", line); gsub(/ /, "-", line); print line }' "$1"
}
while IFS=$'\t' read -r page line link; do
  file=${link%%#*} mark=""
  [[ $link != *#* ]] || mark=${link#*#}
  target=$page
  [ -z "$file" ] || target=$(dirname "$page")/$file
  if [ ! -e "$target" ]; then
    echo "$page:$line: there is no $file" && status=1
  elif [ -n "$mark" ] && ! marks "$target" | grep -qxF -- "$mark"; then
    echo "$page:$line: $target has no heading '#$mark'" && status=1
  fi
done < <(awk '
  FNR == 1 { code = 0 }
  /^ *```/ { code = !code; next }
  !code {
    text = $0
    gsub(/`[^`]*`/, "", text)
    while (match(text, /\]\([^)]+\)/)) {
      link = substr(text, RSTART + 2, RLENGTH - 3)
      text = substr(text, RSTART + RLENGTH)
      if (link !~ /:\/\//) print FILENAME "\t" FNR "\t" link
    }
  }' "$@")
exit $status
