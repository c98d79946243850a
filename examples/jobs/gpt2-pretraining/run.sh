#!/bin/sh
# A GPT-2 learns to tell stories, in bf16, with figures for TensorBoard and as CSV.
# usage: run.sh [FOLDER]
. "$(dirname "$0")/../common.sh"
make_data stories 4000 1 stories.txt
learn_tokens 512 "$out/stories.txt"
train run --config "$here/ds.json" --model "$here/model.json" --tokenizer "$out/tokenizer" \
  --data "$out/stories.txt" --seq 128 --steps "$(steps 250)" --eval-every 50
"$zinc" generate --model "$out/run/final" --prompt "On Monday" --tokens 60 --temperature 0.7 --seed 1
