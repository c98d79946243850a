#!/bin/sh
# A BLOOM reads stories, then learns by adapters to answer questions about them. The states of its
# optimizer rest in host memory.
# usage: run.sh [FOLDER]
. "$(dirname "$0")/../common.sh"
make_data stories 4000 1 stories.txt
make_data questions 1000 1 questions.jsonl
make_data questions 40 2 held-out.jsonl 1
learn_tokens 512 "$out/stories.txt" "$out/questions.jsonl"
train base --config "$here/ds.json" --model "$here/model.json" --tokenizer "$out/tokenizer" --lr 3e-3 \
  --data "$out/stories.txt" --fields text=text --seq 96 --steps "$(steps 250)"
train adapter --config "$here/ds.json" --init "$out/base/final" --lr 4e-3 \
  --lora r=8,alpha=16,targets=query_key_value,dense,dense_h_to_4h,dense_4h_to_h --data "$out/questions.jsonl" --validation "$out/held-out.jsonl" \
  --pattern "{} {}" --seq 64 --steps "$(steps 200)"
"$zinc" generate --model "$out/base/final" --adapter "$out/adapter/final" --temperature 0 --tokens 12 \
  --prompt "Tell me on which river Paris lies."
