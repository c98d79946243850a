# Read by gpu-check and gpu-bench: the seconds that a whole run may take.

# begin_budget SECONDS: `left` counts down from now; empty or 0: there is no end.
begin_budget() {
  deadline=0
  [ "${1:-0}" -eq 0 ] || deadline=$(($(date +%s) + $1))
  export deadline
}
left() { # prints the seconds that are left
  if [ "$deadline" -eq 0 ]; then echo 86400; else echo $((deadline - $(date +%s))); fi
}
least() { if [ "$1" -lt "$2" ]; then echo "$1"; else echo "$2"; fi; }
