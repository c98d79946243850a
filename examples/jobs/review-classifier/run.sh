#!/bin/sh
# A transformer encoder learns to tell good reviews from bad ones, with byte pairs as RoBERTa's.
# usage: run.sh [FOLDER]
. "$(dirname "$0")/../common.sh"
make_data reviews 2000 1 reviews.jsonl
make_data reviews 200 2 held-out.jsonl
learn_tokens 512 "$out/reviews.jsonl"
train run --config "$here/ds.json" --model "$here/model.json" --tokenizer "$out/tokenizer" \
  --data "$out/reviews.jsonl" --validation "$out/held-out.jsonl" --classes neg,pos --seq 64 \
  --steps "$(steps 250)"
"$zinc" evaluate --model "$out/run/final" --data "$out/held-out.jsonl" --metric accuracy,f1 --positive pos
