#!/bin/sh
# A ChatGLM3 learns to answer in chats in three ways: by adapters, with most layers frozen, and whole.
# usage: run.sh [FOLDER]
. "$(dirname "$0")/../common.sh"
make_data stories 4000 1 stories.txt
make_data chats 1000 1 chats.jsonl
make_data chats 40 2 held-out.jsonl 1
learn_tokens 512 "$out/stories.txt" "$out/chats.jsonl"
train base --config "$here/ds.json" --model "$here/model.json" --tokenizer "$out/tokenizer" --lr 3e-3 \
  --data "$out/stories.txt" --fields text=text --seq 96 --steps "$(steps 250)"
tune() { # tune NAME LR ARGS...
  name=$1
  lr=$2
  shift 2
  train "$name" --config "$here/ds.json" --init "$out/base/final" --lr "$lr" --data "$out/chats.jsonl" \
    --validation "$out/held-out.jsonl" --chat chatglm3 --seq 64 --steps "$(steps 150)" "$@"
}
tune adapter 4e-3 --lora r=8,alpha=16,targets=all-linear,modules_to_save=word_embeddings,output_layer
tune frozen 2e-3 --freeze 'transformer.encoder.layers.0.*' --freeze 'transformer.encoder.layers.1.*'
tune whole 2e-3
"$zinc" generate --model "$out/whole/final" --temperature 0 --tokens 12 \
  --prompt "[gMASK]sop<|user|>
 Tell me on which river Paris lies.<|assistant|>"
