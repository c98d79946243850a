#!/bin/sh
# usage: kernel_resources_test.sh SOURCE_DIR: what kernel_resources.sh makes of kernels that fit and of
# those that a driver would refuse, with programs that stand in for nm and cuobjdump.
set -eu
script=$1/tests/structure/kernel_resources.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
# A template in an unnamed namespace, and a plain function, as g++ and nvcc name them.
printf '%s\n' '#!/bin/sh' 'echo 0000000000001a30 t _ZN4zinc12_GLOBAL__N_14kernIfEEvNS0_3ArgIT_EE' \
  'echo 0000000000001b40 t _ZN4zincL5plainEPf' >"$work/bin/nm"
cat >"$work/bin/cuobjdump" <<'END'
#!/bin/sh
template=_ZN4zinc43_GLOBAL__N__9b853473_6_fwd_cu_fae603e8_91184kernIfEEvNS0_3ArgIT_EE
if [ "$1" = -res-usage ]; then
  echo " Function $template:"
  echo "  REG:${REG:-255} STACK:0 SHARED:2048 LOCAL:0 CONSTANT[0]:528"
  [ -n "${WITHOUT_PLAIN:-}" ] || printf ' Function _ZN4zincL5plainEPf:\n  REG:40 STACK:0 SHARED:1024 LOCAL:0\n'
else
  printf '.nv.info\n\tAttribute:\tEIATTR_MAX_THREADS\n\tValue:\t0x1 0x1 0x1 \n'
  printf '.nv.info.%s\n\tAttribute:\tEIATTR_MAX_THREADS\n\tFormat:\tEIFMT_SVAL\n\tValue:\t0x80 0x2 0x1 \n' "$template"
fi
END
chmod +x "$work"/bin/*

check() { # check STATUS PATTERN LAUNCHES...: lines of the emulator's list
  wanted=$1 pattern=$2
  shift 2
  printf '%s\n' "$@" >"$work/launches"
  status=0
  PATH="$work/bin:$PATH" CUOBJDUMP=$work/bin/cuobjdump sh "$script" "$work/launches" emulated gpu >"$work/out" 2>&1 || status=$?
  if [ "$status" -ne "$wanted" ] || ! grep -qE "$pattern" "$work/out"; then
    cat "$work/out"
    echo "status $status, not $wanted, or no line '$pattern'"
    exit 1
  fi
}
check 0 '2 kernels fit, 0 do not, 0 are in no program for a GPU, 0 were never launched' '1a30 256 98304' '1b40 1024 0'
check 0 'never launched by the tests: zinc::plain' '1a30 128 0'
check 1 'cannot be launched: zinc::\(anonymous namespace\)::kern<float>\(.*\): 233473 bytes of shared memory' '1a30 128 231425'
check 1 '257 threads; its launch bounds allow 256' '1a30 257 0'
check 1 'zinc::plain\(float\*\): 233473 bytes' '1b40 32 232449'
REG=128 check 0 '2 kernels fit' '1a30 256 0' '1b40 1024 232448'
# 1024 threads of 72 registers are too many.
cp "$work/bin/cuobjdump" "$work/keep" && sed -i 's/REG:40/REG:72/' "$work/bin/cuobjdump"
check 1 'zinc::plain\(float\*\): 73728 registers of a block; there are 65536' '1b40 1024 0'
cp "$work/keep" "$work/bin/cuobjdump"
WITHOUT_PLAIN=yes check 65 'not in the programs for a GPU: zinc::plain' '1a30 128 0' '1b40 32 0'
check 65 'no symbol at dead' 'dead 1 1'
