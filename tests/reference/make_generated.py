#!/usr/bin/env python3
"""Makes generated.json: what transformers' generate() writes with the tiny models of this folder.

    python3 tests/reference/make_generated.py > tests/reference/generated.json
    python3 tests/reference/make_generated.py chatglm    # one model alone

Needs torch and transformers; the result is kept in the repository. 200 prompts a model, in groups of
one length: every 20 prompts of a group in one call, without padding. A group of prompts that f32 and
f64 weights answer differently is left out for another (near ties say nothing; stderr tells how many),
so that the stored tokens, of f64 weights, do not hang on rounding.
    prompts             by vocabulary: 67 (decoders) and 43 (T5), lists of groups
    models.<name>.stop  two tokens that beam searches of the model write often
    groups              whose prompts were taken, in order
    greedy, penalized   tokens of each prompt, without the prompt
    beams               each a list of texts, the best first; the settings of prompt i are
                        settings[i / 20 % their number]
Stop tokens and what follows them are cut off.
"""
import json
import pathlib
import random
import sys

import torch
import transformers
from make_models import ChatGLMForConditionalGeneration
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).parent
DECODERS = ["gpt2", "llama", "mistral", "qwen2", "qwen3", "gpt_neox", "gpt_neox_serial", "bloom",
            "chatglm"]
ENCODER_DECODERS = ["t5", "t5_v1_1"]
PROMPTS, GROUP, NEW = 200, 20, 12
PENALTIES = {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2}
SETTINGS = [
    {"num_beams": 3, "stops": False},
    {"num_beams": 4},
    {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True},
    {"num_beams": 5, "length_penalty": 0.5, "early_stopping": "never"},
    {"num_beams": 3, "length_penalty": -1.0},
    {"num_beams": 4, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    {"num_beams": 2, "length_penalty": 0.0, "early_stopping": "never"},
    {"num_beams": 4, "early_stopping": True},
]


def load_chatglm(dtype):
    folder = ROOT / "chatglm"
    config = transformers.PretrainedConfig(**json.loads((folder / "config.json").read_text()))
    model = ChatGLMForConditionalGeneration(config)
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.as_glm().to(dtype).eval()


def load(name, dtype):
    if name == "chatglm":
        return load_chatglm(dtype)
    kind = (transformers.AutoModelForSeq2SeqLM if name in ENCODER_DECODERS
            else transformers.AutoModelForCausalLM)
    return kind.from_pretrained(ROOT / name, dtype=dtype, attn_implementation="eager").eval()


def ask(model, prompts, stop, count, **options):
    """Texts of each prompt, without it and without what stops them."""
    with torch.no_grad():
        out = model.generate(torch.tensor(prompts), attention_mask=torch.ones(
            len(prompts), len(prompts[0]), dtype=torch.long), max_new_tokens=NEW, do_sample=False,
            eos_token_id=stop or None, pad_token_id=0, num_return_sequences=count, **options)
    front = 1 if model.config.is_encoder_decoder else len(prompts[0])
    texts = []
    for row in out[:, front:].tolist():
        end = next((i for i, token in enumerate(row) if token in stop), len(row))
        texts.append(row[:end])
    return [texts[i:i + count] for i in range(0, len(texts), count)]


def answers(model, prompts, group, stop):
    setting = dict(SETTINGS[group % len(SETTINGS)])
    stops = stop if setting.pop("stops", True) else []
    beams = ask(model, prompts, stops, min(3, setting["num_beams"]), **setting)
    return {"greedy": [one[0] for one in ask(model, prompts, [], 1)],
            "penalized": [one[0] for one in ask(model, prompts, stop[:1], 1, **PENALTIES)],
            "beams": beams}


def make(name, groups):
    exact, rounded = load(name, torch.float64), load(name, torch.float32)
    counts = {}
    for prompts in groups[:2]:
        for texts in ask(exact, prompts, [], 2, num_beams=4):
            for token in texts[1]:
                counts[token] = counts.get(token, 0) + 1
    ordered = sorted(counts, key=lambda token: -counts[token])
    stop = [ordered[1], ordered[3]]
    result = {"stop": stop, "greedy": [], "penalized": [], "beams": []}
    taken, left_out = [], 0
    spare = list(groups)
    while len(taken) < PROMPTS // GROUP:
        prompts = spare.pop(0)
        mine = answers(exact, prompts, len(taken), stop)
        if mine != answers(rounded, prompts, len(taken), stop):
            left_out += 1
            continue
        taken.append(groups.index(prompts))
        for key, value in mine.items():
            result[key] += value
    ended = sum(len(text) < NEW for texts in result["beams"] for text in texts)
    print(name, "stop", stop, "groups left out:", left_out, "ended texts:", ended, file=sys.stderr)
    return result | {"groups": taken}


def groups_of(vocabulary, seed):
    draw = random.Random(seed)
    return [[[draw.randrange(2, vocabulary) for _ in range(length)] for _ in range(GROUP)]
            for length in (1, 2, 3, 5, 7, 9, 11, 13, 16, 19, 4, 6, 8, 10, 12, 15)]


def main():
    sources = {67: groups_of(67, 3), 43: groups_of(43, 4)}
    models = {}
    for name in sys.argv[1:] or DECODERS + ENCODER_DECODERS:
        models[name] = make(name, sources[43 if name in ENCODER_DECODERS else 67])
    compact = {"separators": (",", ":")}
    lines = ",\n".join(f'"{name}": {json.dumps(model, **compact)}' for name, model in models.items())
    prompts = {str(k): v for k, v in sources.items()}
    print(f'{{"settings": {json.dumps(SETTINGS)},\n"penalties": {json.dumps(PENALTIES)},\n'
          f'"prompts": {json.dumps(prompts, **compact)},\n"models": {{\n{lines}\n}}}}')


if __name__ == "__main__":
    main()
