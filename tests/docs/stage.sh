# What pages take for granted, made small: files of text and records, and a folder with a model.
# Read by tests/docs/run_page.sh; called in the hidden parts of pages ("before the commands").

stories() { awk -v kind=stories -v count="$1" -v seed=1 -v held=0 -f "$ZINC_SOURCE/examples/jobs/make_data.awk"; }
questions() { awk -v kind=questions -v count="$1" -v seed="$2" -v held=0 -f "$ZINC_SOURCE/examples/jobs/make_data.awk"; }

# hugging_face_folder NAME: a Llama of 50 thousand weights with a tokenizer of 300 tokens.
hugging_face_folder() {
  local made
  made=$(mktemp -d)
  stories 300 >"$made/text.txt"
  zinc tokenize train --vocabulary 300 --special '<|endoftext|>' --out "$made/tokenizer" "$made/text.txt" >/dev/null
  cat >"$made/model.json" <<'MODEL'
{"model_type": "llama", "vocab_size": 300, "max_position_embeddings": 1024, "hidden_size": 32,
 "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "tie_word_embeddings": true}
MODEL
  echo '{"train_batch_size": 4}' >"$made/ds.json"
  zinc train --config "$made/ds.json" --model "$made/model.json" --tokenizer "$made/tokenizer" --seq 32 \
    --data "$made/text.txt" --steps 1 --out "$made/run" >/dev/null
  mv "$made/run/final" "$1"
  rm -r "$made"
}
