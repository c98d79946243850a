#!/bin/bash
# usage: tests/docs/options_exist.sh ZINC [PAGE...]
#
# Every option that a command of zinc has in a block of sh on a page (README.md and docs/ without PAGEs) is one that the
# command knows. This holds the commands that no test runs, because they ask for a GPU or a large model. And a page
# shows each file that a command of it names behind --config or --model, but config.json and mine.json, the reader's.
set -euo pipefail
zinc=$1
shift
[ $# -gt 0 ] || set -- README.md docs/*.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# PAGE:LINE<tab>words of a command, with continued lines joined, without comments and what stands behind a pipe.
awk '
  FNR == 1 { inside = 0; line = "" }
  /^```/ { inside = $0 == "```sh" && !inside; line = ""; next }
  inside {
    if (line == "") { place = FILENAME ":" FNR }
    line = line $0
    if (sub(/\\$/, " ", line)) next
    sub(/[ \t]#.*/, "", line)
    gsub(/"[^"]*"/, "text", line)
    n = split(line, command, /\|\|?|&&|;/)
    for (i = 1; i <= n; i++) if (match(command[i], /(^|[ \/])zinc [a-z]/)) {
      text = substr(command[i], RSTART)
      sub(/^[ \/]/, "", text)
      sub(/^zinc launch .* zinc /, "zinc ", text)
      print place "\t" text
    }
    line = ""
  }' "$@" >"$work/commands"
[ -s "$work/commands" ] || { echo "no command of zinc was found" && exit 1; }
status=0
while IFS=$'\t' read -r place text; do
  read -ra words <<<"$text"
  verb=${words[1]} known=""
  # With a word that is no verb, --help prints what the words before it do.
  for names in "$verb ${words[2]:-}" "$verb"; do
    file="$work/$names"
    # shellcheck disable=SC2086 # two words
    [[ $names =~ ^[a-z\ ]+$ ]] && { [ -f "$file" ] || "$zinc" $names --help >"$file" 2>/dev/null; } || continue
    ! grep -q "^Usage: zinc $names " "$file" || { known=$file && break; }
  done
  [ -n "$known" ] || { echo "$place: there is no verb '$verb'" && status=1 && continue; }
  for word in "${words[@]:2}"; do
    [[ $word =~ ^--[a-z][a-z_-]* ]] || continue
    grep -qE -- "(^|[ ,])${BASH_REMATCH[0]}([ ,:=]|\$)" "$known" && continue
    echo "$place: zinc $verb has no ${BASH_REMATCH[0]}"
    status=1
  done
  page=${place%:*}
  for name in $(grep -oE -- '--(config|model) [A-Za-z0-9_-]+\.json' <<<"$text" | cut -d ' ' -f 2); do
    [[ $name = config.json || $name = mine.json ]] || grep -qE -- "> ?$name|file: $name|--write $name" "$page" && continue
    echo "$place: the page does not show $name"
    status=1
  done
done <"$work/commands"
exit $status
