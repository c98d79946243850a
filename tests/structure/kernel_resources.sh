#!/bin/sh
# usage: kernel_resources.sh LAUNCHES EMULATED GPU...: whether a driver would launch every kernel as the
# tests on the emulator do. The compiler decides what a kernel takes of registers and shared memory; the
# emulator does not know it. LAUNCHES: what EMULATED --device=cuda --launches=LAUNCHES left, a line
# "OFFSET THREADS BYTES" per kernel (tests/emulator/functions.h). GPU: programs or objects that nvcc made.
# Compares, of compute capability 9.0: registers of a block, static and dynamic shared memory, and the
# threads that __launch_bounds__ allows. Kernels meet by their C++ names.
# Exit status 0; 1 where a kernel cannot be launched; 65 where a kernel that was launched is in none of
# GPU; 77 without cuobjdump (of the CUDA toolkit, or the Python package nvidia-cuda-cuobjdump; or name it
# in CUOBJDUMP).
set -eu
[ $# -ge 3 ] || { sed -n '2,3p' "$0" >&2 && exit 64; }
launches=$1 emulated=$2
shift 2
cuobjdump=${CUOBJDUMP:-$(command -v cuobjdump || ls /usr/local/cuda/bin/cuobjdump 2>/dev/null || true)}
if [ -z "$cuobjdump" ]; then
  echo "kernel_resources: skipped: cuobjdump is missing: install the package nvidia-cuda-cuobjdump" >&2
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# "THREADS BYTES NAME" of every launch. The return type of a template is no part of its name.
names() { c++filt | sed -E 's/ \[clone [^]]*\]//g; s/^(([0-9]+ )*)void /\1/'; }
nm "$emulated" | awk 'NF == 3 { sub(/^0+/, "", $1); print $1, $3 }' >"$work/symbols"
awk 'NR == FNR { name[$1] = $2; next } $1 in name { print $2, $3, name[$1]; next } { print "no symbol at " $1 >"/dev/stderr"; bad = 1 }
  END { exit bad }' "$work/symbols" "$launches" | names >"$work/launched"
[ -s "$work/launched" ] || { echo "kernel_resources: $launches lists no kernel of $emulated" >&2 && exit 65; }

# "REGISTERS SHARED MAX_THREADS NAME"; SHARED counts the KiB that the system takes of every block.
for program in "$@"; do
  "$cuobjdump" -res-usage "$program" |
    awk '/^ Function / { name = $2; sub(/:$/, "", name) }
      /REG:/ { reg = shared = 0
        for (i = 1; i <= NF; i++) { split($i, part, ":"); if (part[1] == "REG") reg = part[2]; if (part[1] == "SHARED") shared = part[2] }
        print "use", name, reg, shared }'
  "$cuobjdump" -elf "$program" |
    awk '/^\.nv\.info\./ { name = substr($1, 10) } /^\.[a-z]/ && !/^\.nv\.info\./ { name = "" }
      /EIATTR_MAX_THREADS/ { wanted = 1 } wanted && /Value:/ { if (name != "") print "most", name, $2, $3, $4; wanted = 0 }'
done | awk '
  function number(hex,   i, n) {
    n = 0; hex = tolower(hex); sub(/^0x/, "", hex)
    for (i = 1; i <= length(hex); i++) n = n * 16 + index("0123456789abcdef", substr(hex, i, 1)) - 1
    return n
  }
  $1 == "use" { use[$2] = $3 " " $4 }
  $1 == "most" { most[$2] = number($3) * number($4) * number($5) }
  END { for (name in use) print use[name], (name in most ? most[name] : 1024), name }' | names >"$work/used"

awk '
  function rest(n,   i, text) { text = $(n); for (i = n + 1; i <= NF; i++) text = text " " $i; return text }
  NR == FNR {
    name = rest(4); kernels++
    if ($1 > reg[name]) reg[name] = $1
    if ($2 > shared[name]) shared[name] = $2
    if (!(name in most) || $3 < most[name]) most[name] = $3
    next
  }
  {
    name = rest(3); threads = $1; bytes = $2; launched[name] = 1
    if (!(name in reg)) { print "not in the programs for a GPU: " name; absent++; next }
    checked++
    warps = int((threads + 31) / 32)
    registers = warps * int((reg[name] * 32 + 255) / 256) * 256
    all = shared[name] + bytes
    why = ""
    if (registers > 65536) why = why ", " registers " registers of a block; there are 65536"
    if (all > 233472) why = why ", " all " bytes of shared memory with the system'\''s 1024; there are 233472"
    if (threads > most[name]) why = why ", " threads " threads; its launch bounds allow " most[name]
    if (why != "") { print "cannot be launched: " name ": " substr(why, 3); wrong++ }
  }
  END {
    for (name in reg) if (!(name in launched)) { never++; print "never launched by the tests: " name }
    printf "kernel_resources: %d kernels fit, %d do not, %d are in no program for a GPU, %d were never launched\n",
      checked - wrong, wrong, absent, never
    exit wrong > 0 ? 1 : absent > 0 ? 65 : 0
  }' "$work/used" "$work/launched"
