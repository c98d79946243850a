#!/usr/bin/env python3
"""Makes the stored references of encoders and encoder-decoders: tiny BERT, RoBERTa, T5 and
torch.nn.TransformerEncoder models with random weights, in f64, with padding in every batch.

    python3 tests/reference/make_encoders.py [directory of this file]

As make_models.py, with these differences:
    lengths, token_type_ids         [S, B] and [S, B, T] i32, of models that take them
    labels                          [S, B, T], or [S, B] of classes of texts
    logits                          f64: of micro-batch 0; NaN where a row has ended
    greedy                          [B, N] i32: what generate() of T5 gives for micro-batch 0, the
                                    start token first; pad tokens behind a row's end
    losses                          3 AdamW steps
    off_f32.<name>, off_bf16.<name> [1] f64: how far PyTorch's own run in that dtype is off, relative
                                    L2, of "logits" and each weight's gradient
T5's norm, which transformers computes in f32, is replaced by one of the model's dtype for the f64
run. Weights are stored in bf16, in which they are exact.
"""
import copy
import json
import math
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import (BertConfig, BertForMaskedLM, BertForSequenceClassification,
                          BertForTokenClassification, RobertaConfig, RobertaForMaskedLM,
                          RobertaForSequenceClassification, T5Config, T5ForConditionalGeneration)
from transformers.models.t5 import modeling_t5

BATCHES, B, T, U, STEPS, CLASSES = 3, 3, 13, 9, 3, 5
VOCAB, WIDTH, LAYERS, HEADS, INNER = 43, 24, 2, 3, 40


class SinusoidalPositions(torch.nn.Module):
    def forward(self, x):
        places = torch.arange(x.shape[1], dtype=torch.float64)[:, None]
        rates = torch.exp(torch.arange(0, WIDTH, 2, dtype=torch.float64)
                          * (-math.log(10000.0) / WIDTH))
        table = torch.zeros(x.shape[1], WIDTH, dtype=torch.float64)
        table[:, 0::2], table[:, 1::2] = torch.sin(places * rates), torch.cos(places * rates)
        return x + table.to(x.dtype)


class EncoderClassifier(torch.nn.Module):
    """Embedding, sinusoidal positions, nn.TransformerEncoder, mean over a row's tokens, an MLP."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCAB, WIDTH, padding_idx=1)
        self.positions = SinusoidalPositions()
        layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, 0.0, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.classifier = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, INNER), torch.nn.ReLU(), torch.nn.Dropout(0.0),
            torch.nn.Linear(INNER, CLASSES))

    def forward(self, input_ids, attention_mask):
        x = self.encoder(self.positions(self.embedding(input_ids.long())),
                         src_key_padding_mask=attention_mask == 0)
        kept = x * attention_mask[:, :, None]
        return self.classifier(kept.sum(1) / attention_mask.sum(1, keepdim=True))


def bert(kind, **more):
    return lambda: kind(BertConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=INNER, max_position_embeddings=16, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, num_labels=CLASSES, **more))


def roberta(kind, **more):
    return lambda: kind(RobertaConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=INNER, max_position_embeddings=18, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, num_labels=CLASSES, type_vocab_size=1,
        layer_norm_eps=1e-5, pad_token_id=1, **more))


def t5(activation, tied):
    def make():
        model = T5ForConditionalGeneration(T5Config(
            vocab_size=VOCAB, d_model=WIDTH, d_kv=6, d_ff=INNER, num_layers=LAYERS + 1,
            num_decoder_layers=LAYERS, num_heads=HEADS, relative_attention_num_buckets=8,
            relative_attention_max_distance=10, dropout_rate=0.0, feed_forward_proj=activation,
            decoder_start_token_id=0, tie_word_embeddings=tied))
        if not tied:  # as published T5 1.1; this version of transformers ties unless told by weights
            model.lm_head.weight = torch.nn.Parameter(torch.randn(VOCAB, WIDTH))
        return model
    return make


# folder: how the model is made, what its labels are, its pad token, the seed of its weights and how
# far matrices are from their initial values. The last two are chosen so that rounding is not blown
# up (scores of T5 have no scale, ReLU has kinks), and T5's answers are not one token again and again.
MODELS = {
    "bert": (bert(BertForMaskedLM), "tokens", 0, 11, 0.1),
    "bert_texts": (bert(BertForSequenceClassification), "texts", 0, 11, 0.1),
    "bert_tokens": (bert(BertForTokenClassification), "token_classes", 0, 11, 0.1),
    "roberta": (roberta(RobertaForMaskedLM), "tokens", 1, 11, 0.1),
    "roberta_texts": (roberta(RobertaForSequenceClassification), "texts", 1, 11, 0.1),
    "t5": (t5("relu", True), "decoder", 0, 11, 0.15),
    "t5_v1_1": (t5("gated-gelu", False), "decoder", 0, 11, 0.0),
    "encoder_classifier": (EncoderClassifier, "texts", 1, 12, 0.05),
}


def batches(labels_are, pad, has_types, pad_inside):
    generator = torch.Generator().manual_seed(7)

    def draw(high, *shape):
        return torch.randint(2, high, shape, generator=generator)

    out = {"input_ids": draw(VOCAB, BATCHES, B, T),
           "lengths": torch.tensor([[T, 8, 4], [6, T, 9], [11, 1, T]])}
    outside = torch.arange(T) >= out["lengths"][:, :, None]
    out["input_ids"][outside] = pad
    if pad_inside:  # its embedding has no gradient from the input
        out["input_ids"][:, 0, 2] = pad
    if has_types:
        out["token_type_ids"] = (torch.arange(T) >= out["lengths"][:, :, None] // 2).long()
        out["token_type_ids"][outside] = 0
    if labels_are == "texts":
        out["labels"] = draw(CLASSES, BATCHES, B) - 1
    elif labels_are == "decoder":
        out["labels"] = draw(VOCAB, BATCHES, B, U)
        out["labels"][:, 0, 6:] = -100
        out["labels"][1, 2, 2:] = -100
    else:
        out["labels"] = draw(VOCAB if labels_are == "tokens" else CLASSES + 1, BATCHES, B, T) - 1
        out["labels"][outside] = -100
        out["labels"][:, :, ::4] = -100
    return out


def logits_of(model, batch):
    mask = (torch.arange(T) < batch["lengths"][:, None]).long()
    if isinstance(model, EncoderClassifier):
        return model(batch["input_ids"], mask)
    more = {k: batch[k] for k in ("token_type_ids",) if k in batch}
    if isinstance(model, T5ForConditionalGeneration):
        more["labels"] = batch["labels"]
    return model(input_ids=batch["input_ids"], attention_mask=mask, **more).logits


def loss_of(logits, labels):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.flatten(),
                                             ignore_index=-100)


def rms_norm(self, x):
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def weights_of(model):
    """Each weight once, under the name that from_pretrained and zinc look for."""
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
              "cls.predictions.decoder.weight", "cls.predictions.decoder.bias",
              "lm_head.decoder.weight", "lm_head.decoder.bias")
    weights = {k: v for k, v in model.named_parameters() if k not in copies}
    assert sum(v.numel() for v in weights.values()) == sum(v.numel() for v in model.parameters())
    return weights


def write_config(model, folder):
    if isinstance(model, EncoderClassifier):
        config = {"model_type": "encoder_classifier", "vocab_size": VOCAB, "hidden_size": WIDTH,
                  "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
                  "intermediate_size": INNER, "classifier_size": INNER, "num_labels": CLASSES,
                  "max_position_embeddings": 16, "dropout": 0.0, "pad_token_id": 1}
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        return
    model.config.architectures = [type(model).__name__]
    config = json.loads(model.config.to_json_string())
    if isinstance(model, T5ForConditionalGeneration):
        config["tie_word_embeddings"] = model.config.scale_decoder_outputs
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def make(name, folder):
    kind, labels_are, pad, seed, spread = MODELS[name]
    torch.manual_seed(seed)
    model = kind().eval()
    with torch.no_grad():
        if name == "t5":
            model.shared.weight *= 0.1  # or the head says the decoder's input again and again
        for value in model.parameters():
            # Away from the initial zeros and ones, so that every term of every formula counts.
            distance = spread if value.dim() > 1 else 0.1
            value.add_(distance * torch.randn_like(value)).copy_(value.bfloat16().float())
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.detach().bfloat16().contiguous() for k, v in weights_of(model).items()},
              folder / "model.safetensors", metadata={"format": "pt"})
    write_config(model, folder)

    has_types = name.startswith("bert")
    data = batches(labels_are, pad, has_types, has_types or isinstance(model, EncoderClassifier))
    rows = [{k: v[i] for k, v in data.items()} for i in range(BATCHES)]
    if not isinstance(model, EncoderClassifier):
        model.config._attn_implementation = "eager"
    as_published = loss_of(logits_of(model, rows[0]), rows[0]["labels"]).item()
    others = {"f32": copy.deepcopy(model), "bf16": copy.deepcopy(model).bfloat16()}
    for other in others.values():
        other.logits = logits_of(other, rows[0])
        loss_of(other.logits, rows[0]["labels"]).backward()
    model = model.double()
    published_norm, modeling_t5.T5LayerNorm.forward = modeling_t5.T5LayerNorm.forward, rms_norm
    out = {k: v.int() for k, v in data.items()}

    logits = logits_of(model, rows[0])
    loss = loss_of(logits, rows[0]["labels"])
    assert abs(loss.item() - as_published) < 1e-5, (loss.item(), as_published)
    loss.backward()
    kept = logits.detach().clone()
    if labels_are in ("tokens", "token_classes"):
        kept[torch.arange(T) >= rows[0]["lengths"][:, None]] = math.nan
    out |= {"loss": loss.detach().reshape(1), "logits": kept}
    for key, value in weights_of(model).items():
        out["grad." + key] = value.grad.clone()
    for dtype, other in others.items():
        exact = {"logits": kept} | {key: value.grad for key, value in weights_of(model).items()}
        rounded = {"logits": other.logits.detach()} | {
            key: value.grad for key, value in weights_of(other).items()}
        for key, value in exact.items():
            off = (rounded[key].double() - value).nan_to_num()
            out[f"off_{dtype}.{key}"] = (off.norm() / value.nan_to_num().norm()).reshape(1)
    if labels_are == "decoder":
        mask = (torch.arange(T) < rows[0]["lengths"][:, None]).long()
        out["greedy"] = model.generate(rows[0]["input_ids"], attention_mask=mask, do_sample=False,
                                       max_new_tokens=10).int()
        print(out["greedy"].tolist())

    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
         {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        row = rows[step % BATCHES]
        loss = loss_of(logits_of(model, row), row["labels"])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        losses.append(loss.item())
        optimizer.step()
    modeling_t5.T5LayerNorm.forward = published_norm
    out["losses"] = torch.tensor(losses, dtype=torch.float64)
    save_file({k: v.contiguous() for k, v in out.items()}, folder / "reference.safetensors")
    print(name, "losses", losses, "parameters", sum(p.numel() for p in parameters))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    for name in MODELS:
        make(name, root / name)


if __name__ == "__main__":
    main()
