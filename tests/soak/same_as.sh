#!/bin/bash
# usage: tests/soak/same_as.sh BASE [ZINC]
#
# Does a change of the code's shape leave results as they were? Trains the configurations below for four steps with
# two programs and compares losses and gradient norms of each step, the files of weights and of the last checkpoint,
# and the plan, byte by byte. BASE is a program, or a commit, which is then built in build/same_as. ZINC is the
# other program (default: build/release/zinc). One line a configuration; exit code 1 if one differs:
#
#   same      stage3
#   DIFFERS   late_update: losses, weights
set -euo pipefail
cd "$(dirname "$0")/../.."
base=${1:?usage: tests/soak/same_as.sh BASE [ZINC]}
zinc=${2:-build/release/zinc}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

if [ ! -x "$base" ] || [ -d "$base" ]; then
  tree=build/same_as
  [ -d "$tree" ] || git worktree add --detach "$tree" "$base" >/dev/null
  git -C "$tree" checkout -q --detach "$(git rev-parse "$base")"
  (cd "$tree" && ./run build release zinc_command >/dev/null)
  base=$tree/build/release/zinc
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gpt2='{"model_type": "gpt2", "vocab_size": 256, "n_positions": 32, "n_embd": 32, "n_layer": 3, "n_head": 2}'
llama='{"model_type": "llama", "vocab_size": 256, "max_position_embeddings": 32, "hidden_size": 32,
  "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}'
t5='{"model_type": "t5", "vocab_size": 256, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
  "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1, "dropout_rate": 0.0}'
printf '%s\n' "$gpt2" >"$work/gpt2.json"
printf '%s\n' "$llama" >"$work/llama.json"
printf '%s\n' "$t5" >"$work/t5.json"
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
  printf '{"prompt": "What is %d and %d?", "response": "It is %d."}\n' "$i" "$i" "$((i + i))"
done >"$work/pairs.jsonl"

# NAME | RANKS | MODEL | DATA | KEYS OF THE CONFIGURATION | FURTHER OPTIONS
configurations='
stage0 | 2 | gpt2 | LICENSE | "zero_optimization": {"stage": 0} |
stage1 | 2 | gpt2 | LICENSE | "zero_optimization": {"stage": 1} |
stage2 | 3 | gpt2 | LICENSE | "zero_optimization": {"stage": 2} |
stage3 | 3 | llama | LICENSE | "zero_optimization": {"stage": 3} |
accumulation | 2 | gpt2 | LICENSE | "zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 3 |
bf16 | 2 | llama | LICENSE | "bf16": {"enabled": true}, "zero_optimization": {"stage": 3} |
fp16 | 2 | gpt2 | LICENSE | "fp16": {"enabled": true, "initial_scale_power": 8}, "zero_optimization": {"stage": 2} |
gathered_sums | 2 | gpt2 | LICENSE | "zero_optimization": {"stage": 0}, "gradient_accumulation_steps": 2, "zinc": {"reduce_schedule": "micro_step"} |
host_states | 2 | gpt2 | LICENSE | "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}} |
host_sums | 2 | gpt2 | LICENSE | "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "gradient_accumulation_steps": 3 |
split_states | 2 | gpt2 | LICENSE | "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}, "gradient_accumulation_steps": 2 |
swapped_sums | 2 | gpt2 | LICENSE | "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "WORK"}}, "gradient_accumulation_steps": 3, "zinc": {"gradient_offload": "nvme"} |
streamed_states | 1 | gpt2 | LICENSE | "zero_optimization": {"stage": 2, "sub_group_size": 4096, "offload_optimizer": {"device": "cpu"}}, "zinc": {"offload_step": "device"} |
nvme_states | 1 | gpt2 | LICENSE | "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "WORK"}, "offload_param": {"device": "nvme", "nvme_path": "WORK"}} |
host_parameters | 2 | llama | LICENSE | "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}} |
world | 2 | gpt2 | LICENSE | "zero_optimization": {"stage": 1}, "gradient_accumulation_steps": 2, "zinc": {"determinism": "world"} |
tensor | 2 | llama | LICENSE | "tensor_parallel": {"autotp_size": 2} |
sequence | 2 | llama | LICENSE | "sequence_parallel_size": 2 |
pipe | 2 | gpt2 | LICENSE | "gradient_accumulation_steps": 4, "pipeline": {"stages": 2} |
lora | 1 | llama | pairs | | --lora r=4,alpha=8,targets=q_proj,v_proj
records | 2 | llama | pairs | "zero_optimization": {"stage": 1} | --group-by-length
packed | 1 | llama | pairs | | --pack
t5 | 2 | t5 | pairs | "zero_optimization": {"stage": 3} |
vertical | 1 | gpt2 | LICENSE | "gradient_accumulation_steps": 3, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "zinc": {"schedule": "vertical"} |
late_update | 2 | gpt2 | LICENSE | "gradient_clipping": 0.5, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "WORK"}} |
recompute | 2 | llama | LICENSE | "activation_checkpointing": {"number_checkpoints": 2}, "zero_optimization": {"stage": 2} |
'

train_with() { # train_with PROGRAM FOLDER RANKS MODEL DATA OPTIONS...
  local program=$1 folder=$2 ranks=$3 model=$4 data=$5 launch=()
  shift 5
  [ "$ranks" = 1 ] || launch=(mpirun --oversubscribe -np "$ranks")
  mkdir -p "$folder"
  "${launch[@]}" "$program" train --config "$work/ds.json" --model "$work/$model.json" --data "$data" --seq 32 \
    --threads 1 --steps 4 --save-every 4 --seed 5 --out "$folder/run" "$@" </dev/null >"$folder/log" 2>&1 || {
    tail -3 "$folder/log" >"$folder/failed"
    return 0
  }
  grep -oE '"(loss|grad_norm)": ?[^,}]*' "$folder/run/metrics.jsonl" >"$folder/losses"
  (cd "$folder/run" && find final -name '*.safetensors' -exec sha256sum {} + | sort) >"$folder/weights"
  (cd "$folder/run" && find checkpoints -type f ! -name '*.json' -exec sha256sum {} + | sort) >"$folder/checkpoint"
  "$program" plan --config "$work/ds.json" --model "$work/$model.json" --seq 32 --world "$ranks" --json 2>/dev/null |
    grep -v '"version\|"seconds\|_seconds"' >"$folder/plan" || true
}

status=0
while IFS='|' read -r name ranks model data keys options; do
  [ -n "${name// /}" ] || continue
  read -r name <<<"$name" && read -r ranks <<<"$ranks" && read -r model <<<"$model" && read -r data <<<"$data"
  read -r keys <<<"$keys" || true
  [ "$data" = LICENSE ] || data=$work/$data.jsonl
  printf '{"train_micro_batch_size_per_gpu": 2, "steps_per_print": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}%s}\n' "${keys:+, ${keys//WORK/$work}}" >"$work/ds.json"
  read -r -a words <<<"$options" || true
  for side in base zinc; do
    program=$zinc
    [ "$side" = zinc ] || program=$base
    train_with "$program" "$work/$name/$side" "$ranks" "$model" "$data" ${words[@]+"${words[@]}"}
  done
  differing=""
  if [ -f "$work/$name/base/failed" ] || [ -f "$work/$name/zinc/failed" ]; then
    cmp -s "$work/$name/base/failed" "$work/$name/zinc/failed" && differing=", both failed" || differing=", one failed"
    cat "$work/$name"/*/failed >&2
  else
    for what in losses weights checkpoint plan; do
      cmp -s "$work/$name/base/$what" "$work/$name/zinc/$what" || differing+=", $what"
      [ -s "$work/$name/zinc/$what" ] || differing+=", no $what"
    done
  fi
  if [ -z "$differing" ]; then
    echo "same      $name"
  else
    echo "DIFFERS   $name: ${differing#, }"
    status=1
  fi
done <<<"$configurations"
exit $status
