#!/bin/sh
# A T5 learns to summarise dialogues, at ZeRO-3 with weights and states in host memory.
# usage: run.sh [FOLDER]
. "$(dirname "$0")/../common.sh"
make_data dialogues 2000 1 dialogues.jsonl
make_data dialogues 50 2 held-out.jsonl
learn_tokens 512 "$out/dialogues.jsonl"
train run --config "$here/ds.json" --model "$here/model.json" --tokenizer "$out/tokenizer" \
  --data "$out/dialogues.jsonl" --validation "$out/held-out.jsonl" --pattern "summarize: {}\n{}" --seq 96 \
  --steps "$(steps 400)"
"$zinc" evaluate --model "$out/run/final" --data "$out/held-out.jsonl" --pattern "summarize: {}\n{}" \
  --metric rouge --tokens 40
