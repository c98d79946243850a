#!/bin/sh
# Two of the jobs as C++ programs, examples/tune_llama.cpp and examples/summarize_t5.cpp.
# usage: run.sh [FOLDER]
. "$(dirname "$0")/../common.sh"
programs=$(dirname "$zinc")
make_data stories 4000 1 stories.txt
make_data questions 1000 1 questions.jsonl
make_data dialogues 2000 1 dialogues.jsonl
make_data dialogues 50 2 held-out.jsonl
learn_tokens 512 "$out/stories.txt" "$out/questions.jsonl" "$out/dialogues.jsonl"
train base --config "$here/../llama-lora-questions/ds.json" --model "$here/../llama-lora-questions/model.json" \
  --tokenizer "$out/tokenizer" --lr 3e-3 --data "$out/stories.txt" --fields text=text --seq 96 --steps "$(steps 250)"
echo "== tune_llama"
"$programs/example_tune_llama" "$here/../llama-lora-questions/ds.json" "$out/base/final" "$out/questions.jsonl" \
  "$(steps 200)" "$out/tuned" "Tell me on which river Paris lies."
echo "== summarize_t5"
"$programs/example_summarize_t5" "$here/../flan-t5-summaries/ds.json" "$here/../flan-t5-summaries/model.json" \
  "$out/tokenizer" "$out/dialogues.jsonl" "$out/held-out.jsonl" "$(steps 400)" "$out/summaries"
