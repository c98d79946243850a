#!/bin/sh
# usage: gpu_check_test.sh SOURCE_DIR: what gpu-check makes of tests that pass, fail, are skipped and
# crash, on programs that stand in for nvidia-smi, compute-sanitizer, zinc and zinc_gpu_tests.
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"

program() { # program FILE: its text is the standard input
  cat >"$work/$1"
  chmod +x "$work/$1"
}
program bin/nvidia-smi <<'END'
#!/bin/sh
echo "GPU 0: none"
END
program zinc <<'END'
#!/bin/sh
END
program bin/compute-sanitizer <<'END'
#!/bin/sh
if [ "$2" = racecheck ]; then echo "========= Device not supported" && exit 1; fi
echo "========= ERROR SUMMARY: ${SANITIZER_ERRORS:-0} errors"
[ "${SANITIZER_ERRORS:-0}" -eq 0 ] || exit 99
END
program zinc_gpu_tests <<'END'
#!/bin/sh
case "$*" in
  *--gtest_list_tests*)
    printf 'Good.\n  A\n  B\nAll/Mixed.\n  Fails/0  # GetParam() = 1\n  Skips/1  # GetParam() = 2\nCrashes.\n  A\n  B\n  C\n'
    ;;
  *=Good.A:Good.B) printf '[ RUN      ] Good.A\n[       OK ] Good.A (0 ms)\n[       OK ] Good.B (0 ms)\n' ;;
  *=All/Mixed.Fails/0:All/Mixed.Skips/1)
    printf 'mixed: 1 is not 2\n[  FAILED  ] All/Mixed.Fails/0 (0 ms)\n[  SKIPPED ] All/Mixed.Skips/1 (0 ms)\n'
    printf '[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] All/Mixed.Skips/1\n'
    exit 1
    ;;
  *=Crashes.A:Crashes.B:Crashes.C) printf '[       OK ] Crashes.A (0 ms)\n' && exit 134 ;;
  *) exit 3 ;;
esac
END

check() { # check STATUS PATTERN...: of a run of gpu-check
  status=0
  PATH="$work/bin:$PATH" ZINC_BIN="$work" ZINC_CHECK_JOBS=2 sh "$source/bench/gpu/gpu-check" >"$work/out" 2>&1 || status=$?
  if [ "$status" -ne "$1" ]; then cat "$work/out" && echo "status $status, not $1" && exit 1; fi
  shift
  for pattern in "$@"; do
    grep -qE "$pattern" "$work/out" || { cat "$work/out" && echo "no line '$pattern'" && exit 1; }
  done
}
echo '*' >"$work/gpu_tests_filter.txt"
check 1 '^4 passed, 3 failed, 2 skipped$' '^FAILED: All/Mixed: 1 of 2 tests, status 1$' \
  'mixed: 1 is not 2' '^FAILED: Crashes: 2 of 3 tests, status 134$' 'racecheck does not work here'
SANITIZER_ERRORS=2 check 1 '^3 passed, 4 failed, 2 skipped$' '^FAILED: compute-sanitizer memcheck, status 99$'
