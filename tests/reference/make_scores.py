"""Writes tests/reference/scores.json: texts with their ROUGE and BLEU, words with their stems, labels with their F1.

Needs the Python packages rouge-score, sacrebleu and scikit-learn, and a text of many lines, as `./run train` makes of
the Debian package bible-kjv. Run it in the root of the tree: python tests/reference/make_scores.py .cache/kjv.txt
"""

import json
import random
import re
import sys

from nltk.stem.porter import PorterStemmer
from rouge_score import rouge_scorer
from sacrebleu.metrics import BLEU
from sklearn.metrics import f1_score

random.seed(7)
lines = [line.strip() for line in open(sys.argv[1], encoding="utf-8") if line.strip()]
words = sorted({word for line in lines for word in re.findall(r"[a-z]+", line.lower())})

ODD = ["Κόσμος", "İstanbul", "\u212ailo", "naïve", "x-ray", "3.14", "a.b,c", "1,000-2", "&quot;so&amp;so&lt;", "<skipped>",
       "semi-\nfinal", "“quoted”", "…", "\u3000", "don't", "U.S.A.", "$5%", "[x]{y}~", "tab\there", "_under_", "\u00a0", "…—"]
CHINESE = "我们今天去看电影他说很好但是天气不好，所以没有去。《红楼梦》：第一回（上）ABC 123 １２３！"


def changed(text):
    """The text with some words dropped, doubled, swapped or replaced."""
    parts = re.split(r"( |\n)", text)
    for _ in range(random.randint(0, 6)):
        i = random.randrange(len(parts))
        what = random.random()
        if what < 0.3:
            parts[i] = ""
        elif what < 0.5:
            parts.insert(i, parts[i] + " ")
        elif what < 0.7:
            j = random.randrange(len(parts))
            parts[i], parts[j] = parts[j], parts[i]
        else:
            parts[i] = random.choice(ODD + words)
    return "".join(parts)


def chinese():
    return "".join(random.choice(CHINESE) for _ in range(random.randint(1, 40)))


class Characters:
    def tokenize(self, text):
        return [c for c in text if not c.isspace()]


pairs = [["", ""], ["", "a"], ["a b c d", ""], ["same words here now", "same words here now"]]
while len(pairs) < 400:
    text = "\n".join(line[:90] for line in random.sample(lines, random.choice([1, 1, 2, 3])))
    if random.random() < 0.3:
        text += " " + " ".join(random.sample(ODD, 3))
    pairs.append([text, changed(text) if random.random() < 0.9 else random.choice(lines)[:90]])
while len(pairs) < 500:
    text = chinese()
    pairs.append([text, "".join(c for c in text if random.random() < 0.8) + random.choice(["", chinese()])])

TYPES = ["rouge1", "rouge2", "rougeL", "rougeLsum"]


def rouge(scorer):
    rows = []
    for reference, generated in pairs:
        scores = scorer.score(reference, generated)
        rows.append([[scores[t].precision, scores[t].recall, scores[t].fmeasure] for t in TYPES])
    return rows


def bleu(tokenize):
    single = BLEU(tokenize=tokenize, effective_order=True)
    corpus = BLEU(tokenize=tokenize)
    sentences = [single.sentence_score(generated, [reference]).score for reference, generated in pairs]
    references = [reference for reference, _ in pairs]
    shifted = references[1:] + references[:1]
    generated = [text for _, text in pairs]
    return {
        "words": [corpus.tokenizer(text.rstrip()) for text in generated],
        "sentences": sentences,
        "corpus": corpus.corpus_score(generated, [references]).score,
        "two_references": corpus.corpus_score(generated, [references, shifted]).score,
    }


labels = []
for classes in (2, 2, 3, 5):
    real = [random.randrange(classes) for _ in range(500)]
    predicted = [r if random.random() < 0.6 else random.randrange(classes) for r in real]
    row = {"real": real, "predicted": predicted,
           "micro": f1_score(real, predicted, average="micro"), "macro": f1_score(real, predicted, average="macro")}
    if classes == 2:
        row["binary"] = f1_score(real, predicted)
    labels.append(row)

stemmer = PorterStemmer()
suffixes = ["ational", "tional", "enci", "izer", "bli", "alli", "entli", "ousli", "ization", "iveness", "biliti", "fulli",
            "logi", "icate", "ative", "alize", "ful", "ness", "ement", "ion", "sion", "ing", "ed", "eed", "ied", "ies", "y", "ll"]
sample = random.sample(words, 1500) + [random.choice(words)[:5] + s for s in suffixes for _ in range(12)]
sample += ["relationally", "conditionally", "sky", "skies", "dying", "news", "inning", "proceed", "yyyyyy", "y2k", "ab", "tied", "ties", "died", "enjoy", "a1ing"]
json.dump(
    {
        "pairs": pairs,
        "rouge": {"plain": rouge(rouge_scorer.RougeScorer(TYPES)),
                  "stemmed": rouge(rouge_scorer.RougeScorer(TYPES, use_stemmer=True)),
                  "characters": rouge(rouge_scorer.RougeScorer(TYPES, tokenizer=Characters()))},
        "bleu": {"13a": bleu("13a"), "zh": bleu("zh")},
        "labels": labels,
        "stems": {word: stemmer.stem(word) for word in sample},
    },
    open("tests/reference/scores.json", "w", encoding="utf-8"),
    ensure_ascii=False,
)
