"""Writes tests/reference/tokenizers/: small tokenizers of every kind and what Hugging Face's library
makes of some texts with them.

Needs: tokenizers and sentencepiece (0.23.3 and 0.2.3 made the present files) with protobuf. Run from
the root of the tree, with a text to train on (.cache/kjv.txt, which `./run train` makes):
  python tests/reference/make_tokenizers.py .cache/kjv.txt
Without a text only parts.json and joined.json are written: normalizers, pre-tokenizers and added tokens.
Patterns and parts are those of the published tokenizers; the vocabularies are small.
"""

import json
import os
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

FOLDER = "tests/reference/tokenizers"
SIZE = 420  # tokens

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
QWEN2 = LLAMA3.replace("{1,3}", "")
BLOOM = r""" ?[^(\s|[.,!?…。，、।۔،])]+"""
O200K = r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""


def byte_level(pre_tokenizer, specials, files, normalizer=None):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizer
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    t.train(files, trainers.BpeTrainer(vocab_size=SIZE, special_tokens=specials, show_progress=False,
                                       initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def split(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated", False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2(files):
    t = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"], files)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t.to_str()


def roberta(files):
    t = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True),
                   ["<s>", "<pad>", "</s>", "<unk>"], files)
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False, special=True)])
    t.add_tokens([AddedToken("Word", single_word=True), AddedToken("<r>", rstrip=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return t.to_str()


def llama3(files):
    t = byte_level(split(LLAMA3), [], files)
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    begin = "<|begin_of_text|>"
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=begin + " $A", pair=begin + " $A $B:1",
                                      special_tokens=[(begin, t.token_to_id(begin))])])
    root = json.loads(t.to_str())
    root["model"]["ignore_merges"] = True
    root["model"]["merges"] = [" ".join(merge) for merge in root["model"]["merges"]]
    root["model"]["vocab"]["Ġ" + "z" * 9] = len(root["model"]["vocab"])  # that no merge makes
    for token in root["added_tokens"]:
        token["id"] += 1
    root["post_processor"]["processors"][1]["special_tokens"][begin]["ids"] = [
        root["added_tokens"][0]["id"]]
    return json.dumps(root, ensure_ascii=False)


def qwen2(files):
    t = byte_level(split(QWEN2), [], files, normalizers.NFC())
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([AddedToken("<tool_call>", normalized=False, special=False)])
    return t.to_str()


def bloom(files):
    return byte_level(split(BLOOM), ["<unk>", "<s>", "</s>", "<pad>"], files).to_str()


def o200k(files):
    return byte_level(split(O200K), ["<|endoftext|>"], files).to_str()


def bert(files):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train(files, trainers.WordPieceTrainer(
        vocab_size=SIZE, show_progress=False, initial_alphabet=list("大的,.!?()'"),
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t.to_str()


def t5(files):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(),
                                         normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    t.decoder = decoders.Metaspace()
    t.train(files, trainers.UnigramTrainer(
        vocab_size=SIZE, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>",
        show_progress=False))
    t.add_special_tokens(["<extra_id_0>", "<extra_id_1>"])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                     special_tokens=[("</s>", 1)])
    return t.to_str()


def llama2(files):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    t.train(files, trainers.BpeTrainer(
        vocab_size=SIZE + 256, show_progress=False,
        special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]))
    t.pre_tokenizer = None
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                   decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1",
                                                     special_tokens=[("<s>", 1)])
    root = json.loads(t.to_str())
    root["added_tokens"] = root["added_tokens"][:3]
    return json.dumps(root, ensure_ascii=False)


def mixed(files):
    """Parts that no published tokenizer has together."""
    t = Tokenizer(models.BPE(unk_token="?", continuing_subword_prefix="@", end_of_word_suffix="$"))
    t.normalizer = normalizers.Sequence([
        normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(),
        normalizers.Strip(), normalizers.Prepend("<")])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.CharDelimiterSplit("|"), pre_tokenizers.Whitespace(),
        pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Digits(False),
        pre_tokenizers.Split("ll", "contiguous", True)])
    t.train(files, trainers.BpeTrainer(vocab_size=SIZE, special_tokens=["?"], show_progress=False,
                                       continuing_subword_prefix="@", end_of_word_suffix="$"))
    t.decoder = decoders.WordPiece(prefix="@", cleanup=False)
    t.add_tokens([AddedToken("Éden", normalized=True)])
    return t.to_str()


MAKERS = [gpt2, roberta, llama3, qwen2, bloom, o200k, bert, t5, llama2, mixed]

TEXTS = [
    "", " ", "  ", "\n", " \n ", "a", "In the beginning God created the heaven and the earth.",
    "And the earth was without form, and void;\n\nand darkness\twas upon the face of the deep.  ",
    "I'll say it's theirs, they've won; WE'RE HERE, DON'T 'SHOUT' '\u017f 'S",
    "for (int i = 0; i < 100; ++i) {\n    sum += values[i];  // 12345.678\n}\r\n",
    "def f(x):\n\treturn x ** 2 or None\n", "x" * 200, "the" * 60, "12 1234567890 \u0663\u0664 \u00b2 \u2167",
    "\u4e2d\u6587\u548c English \u6df7\u5408\u6587\u672c\uff0c\u5927\u7684\u3002", "\ud55c\uad6d\uc5b4 \u65e5\u672c\u8a9e \u30ab\u30bf\u30ab\u30ca",
    "caf\u00e9 cafe\u0301 \u212b \ufb01n \u1e9b\u0323 \u0130stanbul \u01c4 \u00df",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0645\u0631\u062d\u0628\u0627\u060c \u0928\u092e\u0938\u094d\u0924\u0947\u0964",
    "a\u00a0b\u2003c\u3000d\u180ee\u200bf\u0085g\x0bh", "\x00\x01\x7f\ufffd\ufeff", "\u0345\u0301\u0334 \u1100\u1161\u11a8",
    "<|endoftext|>", "a<|endoftext|>b <|endoftext|> <|endoftext|><|endoftext|",
    "<s>x</s> <pad><mask> <mask>  y Word Words aWord Word. <r>   z <r>",
    "<|begin_of_text|>hi<|eot_id|>\n <|end_of_text|>", "<|im_start|>user\nhi<|im_end|><tool_call>{}",
    "[CLS] not [MASK] [SEP][UNK]", "<extra_id_0> and<extra_id_1>", "\u2581under\u2581 score \u2581",
    "Eden \u00c9den e\u0301den \u00e9DEN", "a|b||c!!d...e 3.14 ll lll hello", "<0x41> <0xE4> \u20ac",
    "\n\n\n  three\n \n four \r\n\r\n", "'", "''s", "a'", "...!?", " .", "a ' b n't do not 's",
]


PART_TEXTS = [
    "", " ", "a", "  two  words \n", "\u3000wide\u2003\t", "x12 3a45,6\u0663\u00b2", "12", "a1", "1a", "a--b---c-", "-a",
    "-", "--", "a -b", "he said: \"ll\"!? 'll", "\u2581a \u2581b\u2581", "|a||b|", "\ufb01 \u2460 caf\u00e9 cafe\u0301",
    "A\u030a\u0327 \u212b \u00c5", "\u1112\u1161x", "\u4e2d\u6587 abc\u3002", "abcabd",
    "\U0001f468\u200d\U0001f469 \u0e2a\u0e27\u0e31",
]
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]


def compiled_map():
    """A precompiled map of sentencepiece with keys that begin alike, and replacements of all lengths."""
    rules = {"a": "A", "ab": "xyz", "abd": "", "e\u0301": "\u00e9", "\u0301": "'", "\ufb01": "fi", "\u2460": "1",
             "\u212b": "\u00c5", "A\u030a": "\u00c5", "\u1112\u1161": "\ud558",
             "\u4e2d": "\u6587\u6587", "\t": " ", "\u3000": " "}
    with open("rules.tsv", "w", encoding="utf-8") as f:
        for key, value in rules.items():
            f.write("%s\t%s\n" % tuple(" ".join("%X" % ord(c) for c in text) for text in (key, value)))
    sentences = ["some words to learn from", "other words"] * 10
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_prefix="rules", vocab_size=30, minloglevel=2,
        normalization_rule_tsv="rules.tsv", hard_vocab_limit=False)
    proto = sentencepiece_model_pb2.ModelProto()
    with open("rules.model", "rb") as f:
        proto.ParseFromString(f.read())
    for name in ("rules.tsv", "rules.model", "rules.vocab"):
        os.remove(name)
    return proto.normalizer_spec.precompiled_charsmap


def parts():
    """Normalizers and pre-tokenizers one by one, with each of their options."""
    steps = [normalizers.Strip(left, right) for left in (True, False) for right in (True, False)]
    steps += [normalizers.Precompiled(compiled_map()), normalizers.Nmt(), normalizers.NFKC(), normalizers.NFKD(),
              normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Prepend("_"),
              normalizers.Replace("a", "bb"), normalizers.Replace(Regex("[ab]+"), "")]
    steps += [normalizers.BertNormalizer(clean, chinese, accents, lower) for clean in (True, False)
              for chinese in (True, False) for accents in (True, False, None) for lower in (True, False)]
    cuts = [pre_tokenizers.Digits(individual) for individual in (True, False)]
    cuts += [pre_tokenizers.Punctuation(behavior) for behavior in BEHAVIORS]
    cuts += [pre_tokenizers.Split(pattern, behavior, invert) for pattern in ("-", Regex("[0-9]|ll"))
             for behavior in BEHAVIORS for invert in (False, True)]
    cuts += [pre_tokenizers.Metaspace("\u2581", scheme, cut) for scheme in ("always", "first", "never")
             for cut in (True, False)]
    cuts += [pre_tokenizers.CharDelimiterSplit("|"), pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(),
             pre_tokenizers.BertPreTokenizer()]
    results = {"texts": PART_TEXTS, "normalizers": [], "pre_tokenizers": []}
    for step in steps:
        t = Tokenizer(models.BPE())
        t.normalizer = step
        results["normalizers"].append({"part": json.loads(t.to_str())["normalizer"],
                                       "texts": [step.normalize_str(x) for x in PART_TEXTS]})
    for cut in cuts:
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = cut
        results["pre_tokenizers"].append({
            "part": json.loads(t.to_str())["pre_tokenizer"],
            "pieces": [[piece for piece, _ in cut.pre_tokenize_str(x)] for x in PART_TEXTS]})
    with open(FOLDER + "/parts.json", "w", encoding="utf-8") as f:
        json.dump(results, f, ensure_ascii=True, separators=(",", ":"))


def added(content, lstrip, rstrip, normalized=False):
    return AddedToken(content, lstrip=lstrip, rstrip=rstrip, normalized=normalized)


def joined():
    """What a part makes of what the part before it left: the first mark of Metaspace behind normalizers and other
    pre-tokenizers; added tokens beside each other that strip the spaces between them."""
    strip, nmt, prefix = normalizers.Strip(), normalizers.Nmt(), pre_tokenizers.ByteLevel(True, use_regex=False)
    steps = [None, strip, normalizers.Strip(False, True), nmt, normalizers.NFC(), normalizers.NFD(),
             normalizers.Lowercase(), normalizers.StripAccents(), normalizers.Prepend("x"), normalizers.ByteLevel(),
             normalizers.BertNormalizer(True, True, True, True), normalizers.BertNormalizer(False, True, False, False),
             normalizers.Precompiled(compiled_map()), normalizers.Replace("ab", ""), normalizers.Replace("ab", "x"),
             normalizers.Replace("a", "x"), normalizers.Replace("\u00e9", "x"), normalizers.Replace(Regex("^ +"), ""),
             normalizers.Replace(Regex(" +"), "\u2581"), normalizers.Sequence([strip, normalizers.Prepend("\u2581")]),
             normalizers.Sequence([normalizers.Prepend(" "), strip]),
             normalizers.Sequence([normalizers.Replace("a", ""), normalizers.Prepend("x"), nmt])]
    first = pre_tokenizers.Metaspace("\u2581", "first", True)
    cuts = [first, pre_tokenizers.Metaspace("\u2581", "first", False),
            pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), first]),
            pre_tokenizers.Sequence([pre_tokenizers.Split("a", "isolated"), first]),
            pre_tokenizers.Sequence([prefix, first])]
    brackets = [added("<a>", True, False), added("<b>", False, True)]
    rows = [(step, cut, []) for step in steps for cut in (cuts if step in (None, strip) else cuts[:1])]
    rows += [(step, first, brackets) for step in (None, strip, nmt)]
    for left, right in ((False, False), (False, True), (True, False), (True, True)):
        for own_left, own_right in ((False, False), (False, True), (True, False)):
            for space in (" ", "\t", "  "):
                rows.append((None, None, [added("<a>", left, right), added("<b>", left, right),
                                          added(space, own_left, own_right)]))
    rows.append((normalizers.Lowercase(), None, [added("<A>", True, True), added(" B", True, True, True),
                                                 added("\t", False, False, True)]))
    texts = ["", " ", "  ", "ta", " ta", "  ta ta", "\u200bta", "\u0001ta", "ab ta", "abab", "a b", "\u00e9 a", "e\u0301t",
             "\tt a", "\u4e2d a", "\u2581ta", "x", "<a>ta", "<a> ta", " <a> ta", "<a><b>", "<a>  <b>  t", "<a> \t <b>",
             "\t<b> \t\t x", "<b>  \t", "t  <a>", "<a> b <a>\tb"]
    letters = sorted(set("".join(texts)) | set("ABX\u2581\u0301\u0120"))
    model = models.Unigram([("<unk>", 0.0)] + [(c, -2.0) for c in letters if c not in " \t"], 0, False)
    results = {"texts": texts, "rows": []}
    for step, cut, tokens in rows:
        t = Tokenizer(model)
        if step is not None:
            t.normalizer = step
        if cut is not None:
            t.pre_tokenizer = cut
        t.add_tokens(tokens)
        whole = json.loads(t.to_str())
        results["model"] = whole["model"]
        row = {name: whole[name] for name in ("added_tokens", "normalizer", "pre_tokenizer")}
        # Null: the library fails, where a token's beginning was taken by another up to behind its end.
        row["ids"] = [ids_or_none(t, x) for x in texts]
        results["rows"].append(row)
    with open(FOLDER + "/joined.json", "w", encoding="utf-8") as f:
        json.dump(results, f, ensure_ascii=True, separators=(",", ":"))


def ids_or_none(tokenizer, text):
    try:
        return tokenizer.encode(text, add_special_tokens=False).ids
    except BaseException as error:  # a panic is not an Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return None


def main(files):
    os.makedirs(FOLDER, exist_ok=True)
    parts()
    joined()
    if not files:
        return
    results = {"texts": TEXTS}
    for make in MAKERS:
        name = make.__name__
        with open("%s/%s.json" % (FOLDER, name), "w", encoding="utf-8") as f:
            f.write(make(files))
        t = Tokenizer.from_file("%s/%s.json" % (FOLDER, name))
        ids = [t.encode(x, add_special_tokens=False).ids for x in TEXTS]
        results[name] = {
            "ids": ids,
            "with_specials": [t.encode(x).ids for x in TEXTS],
            "decoded": [t.decode(i, skip_special_tokens=False) for i in ids],
        }
    sentencepiece.SentencePieceTrainer.train(
        input=files, model_prefix=FOLDER + "/spiece", vocab_size=SIZE, byte_fallback=True,
        normalization_rule_name="identity", bos_id=1, eos_id=2, unk_id=0, minloglevel=2)
    os.remove(FOLDER + "/spiece.vocab")
    model = sentencepiece.SentencePieceProcessor(model_file=FOLDER + "/spiece.model")
    ids = [model.encode(x) for x in TEXTS]
    results["spiece"] = {"ids": ids, "decoded": [model.decode(i) for i in ids]}
    # What tests/text/bpe_trainer_test.cpp learns from the texts.
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(TEXTS, trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(t.to_str())["model"]
    results["trained"] = {"vocab": model["vocab"], "merges": model["merges"]}
    with open(FOLDER + "/expected.json", "w", encoding="utf-8") as f:
        json.dump(results, f, ensure_ascii=True, separators=(",", ":"))


if __name__ == "__main__":
    main(sys.argv[1:])
