# What pages take for granted, made small: files of text and records, folders with models.
# Read by tests/docs/run_page.sh; called in the hidden parts of pages ("before the commands").

# records KIND COUNT [SEED]: stories (text), questions, chats, dialogues, reviews, to stdout.
records() { awk -v kind="$1" -v count="$2" -v seed="${3:-1}" -v held=0 -f "$ZINC_SOURCE/examples/jobs/make_data.awk"; }
stories() { records stories "$@"; }
questions() { records questions "$@"; }

# The weights of one step of MODEL (a config.json), in the folder NAME with a tokenizer of 300 tokens.
# one_step NAME MODEL [OPTIONS of zinc train, with --data]
one_step() {
  local name=$1 model=$2 made
  shift 2
  made=$(mktemp -d)
  stories 300 >"$made/text.txt"
  zinc tokenize train --vocabulary 300 --special '<|endoftext|>' --special '<mask>' --out "$made/tokenizer" \
    "$made/text.txt" >/dev/null
  echo "$model" >"$made/model.json"
  echo '{"train_batch_size": 4}' >"$made/ds.json"
  [ $# -gt 0 ] || set -- --data "$made/text.txt"
  zinc train --config "$made/ds.json" --model "$made/model.json" --tokenizer "$made/tokenizer" --seq 32 \
    --steps 1 --out "$made/run" "$@" >/dev/null
  mv "$made/run/final" "$name"
  rm -r "$made"
}

# A Llama of 36 thousand weights.
hugging_face_folder() {
  one_step "$1" '{"model_type": "llama", "vocab_size": 300, "max_position_embeddings": 1024, "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "tie_word_embeddings": true}'
}

t5_folder() {
  records dialogues 20 >"$1.jsonl"
  one_step "$1" '{"model_type": "t5", "vocab_size": 300, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2,
    "num_heads": 4, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false, "pad_token_id": 0,
    "decoder_start_token_id": 0, "eos_token_id": 0}' --data "$1.jsonl"
  rm -r "$1.jsonl"
}
