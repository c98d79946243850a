#!/bin/bash
# usage: tests/docs/run_page.sh PAGE ZINC FOLDER
#
# Runs the blocks of a page that are marked to run (page_to_script.awk), from top to bottom in one shell and in the
# empty folder FOLDER, with the command ZINC in PATH. The first command that fails ends the test, by page and line, and
# leaves its files.
# Exit code 77 where a page needs mpirun and there is none.
set -euo pipefail
page=$1 zinc=$(realpath "$2") folder=$3
source_folder=$(cd "$(dirname "$0")/../.." && pwd)
name=${page#"$source_folder"/}
rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/work"
awk -f "$source_folder/tests/docs/page_to_script.awk" "$page" >"$folder/commands"
grep -q . "$folder/commands" || { echo "$name: no block of it runs" && exit 1; }
! grep -qE 'mpirun|zinc launch' "$folder/commands" || command -v mpirun >/dev/null || exit 77
ln -s "$zinc" "$folder/bin/zinc"
export PATH="$folder/bin:$PATH" ZINC_SOURCE="$source_folder" HOME="$folder"
# What pages leave to the reader: a machine of two cores whose other tests run too has no time for more threads.
export OMPI_MCA_mpi_yield_when_idle=1
cat >"$folder/rules" <<'RULES'
set -eEuo pipefail
. "$ZINC_SOURCE/tests/docs/stage.sh"
trap 'echo "$page_name:$LINENO: failed: $BASH_COMMAND" >&2' ERR
RULES
cd "$folder/work"
page_name=$name BASH_ENV="$folder/rules" bash "$folder/commands" </dev/null
rm -rf "$folder/work"
