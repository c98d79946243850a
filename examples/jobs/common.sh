# Read by each job's run.sh. Sets here (the job's folder) and out, goes to the root of the project, and
# has what the jobs share.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
out=${1:-runs/jobs/${here##*/}}
zinc=${ZINC:-build/release/zinc}
[ -x "$zinc" ] || { echo "run.sh: $zinc is missing; ./run build makes it, ZINC names another" >&2 && exit 69; }
[ ! -e "$out" ] || { echo "run.sh: $out is there already; name another folder, as in run.sh FOLDER" >&2 && exit 73; }
mkdir -p "$out"

steps() { # steps N: N, or 3 with QUICK=1
  [ "${QUICK:-0}" = 1 ] && echo 3 || echo "$1"
}
make_data() { # make_data KIND COUNT SEED FILE [HELD]
  awk -v kind="$1" -v count="$2" -v seed="$3" -v held="${5:-0}" -f examples/jobs/make_data.awk >"$out/$4"
}
# learn_tokens SIZE FILES...: $out/tokenizer, byte pairs as RoBERTa and GPT-2 have them.
learn_tokens() {
  size=$1
  shift
  "$zinc" tokenize train --vocabulary "$size" --out "$out/tokenizer" \
    --special '<|endoftext|>' --special '[gMASK]' --special sop --special '<|user|>' --special '<|assistant|>' "$@"
}
train() { # train NAME ARGS...: a run in $out/NAME
  name=$1
  shift
  echo "== zinc train: $name"
  "$zinc" train --out "$out/$name" "$@"
}
