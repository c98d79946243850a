#!/usr/bin/env python3
"""Makes kept_tokens.json: the tokens that transformers' own logits processors leave to be drawn.

    python3 tests/reference/make_kept_tokens.py > tests/reference/kept_tokens.json

Needs torch and transformers; the result is kept in the repository. Logits are whole numbers divided
by 1024, no two of a row equal, processed in f64 in the order of generate(). Each case:
    logits, text   numbers of the rows below
    options        as generate() calls them
    kept           tokens whose score is not -inf; probabilities their softmax, to 12 digits
"""
import json
import random

import torch
from transformers import GenerationConfig
from transformers.generation.utils import GenerationMixin

VOCAB, ROWS, TEXTS, CASES = 40, 12, 12, 240

CHOICES = {
    "repetition_penalty": [1.3, 0.7, 2.5],
    "no_repeat_ngram_size": [1, 2, 3],
    "temperature": [0.6, 1.7],
    "top_k": [1, 5, 17, 100],
    "top_p": [0.1, 0.5, 0.9],
    "min_p": [0.02, 0.2, 0.7],
    "typical_p": [0.15, 0.5, 0.95],
}


class Asked(GenerationMixin):
    """What the list of processors asks of a model."""

    class config:
        is_encoder_decoder = False


def processors(options):
    config = GenerationConfig(do_sample=True, top_k=0)
    config.update(**options)
    for name, value in {"temperature": 1.0, "top_p": 1.0, "repetition_penalty": 1.0}.items():
        if name not in options:
            setattr(config, name, value)
    return GenerationMixin._get_logits_processor(Asked(), config, input_ids_seq_length=1)


def main():
    draw = random.Random(5)
    rows = []
    while len(rows) < ROWS:
        spread = (0.3, 1, 2, 4)[len(rows) % 4]
        row = [round(draw.gauss(0, 1) * spread * 1024) for _ in range(VOCAB)]
        if len(set(row)) == VOCAB:
            rows.append(row)
    # Few different tokens, so that n-grams come again.
    texts = [[draw.randrange(6 if i % 2 else VOCAB) for _ in range(i * 2 + 1)] for i in range(TEXTS)]
    cases = []
    while len(cases) < CASES:
        count = 1 if len(cases) < 60 else draw.randint(2, len(CHOICES))
        names = [n for n in CHOICES if n in draw.sample(list(CHOICES), count)]
        options = {name: draw.choice(CHOICES[name]) for name in names}
        row, text = draw.randrange(ROWS), draw.randrange(TEXTS)
        scores = torch.tensor([rows[row]], dtype=torch.float64) / 1024
        for processor in processors(options):
            scores = processor(torch.tensor([texts[text]]), scores)
        kept = torch.isfinite(scores[0]).nonzero().flatten().tolist()
        shares = scores[0].softmax(-1)[kept].tolist()
        if not kept:
            continue
        cases.append({"logits": row, "text": text, "options": options, "kept": kept,
                      "probabilities": [float(f"{share:.12g}") for share in shares]})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    print(f'{{"rows": {json.dumps(rows)},\n"texts": {json.dumps(texts)},\n"cases": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()
