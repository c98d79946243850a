"""Writes text/unicode/unicode_ranges.cpp: which characters Hugging Face's tokenizers take for what.

Needs: tokenizers (0.23.3 made the present file) and perl, for the ages of characters. Run from the
root of the tree: python tests/reference/make_unicode_ranges.py
Every table is asked from the library's own normalizers and pre-tokenizers, one character at a time,
because they hold Unicode tables of different versions.
"""

import subprocess

from tokenizers import Regex, normalizers, pre_tokenizers

CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def matches(pattern):
    remove = normalizers.Replace(Regex(pattern), "")
    return {c for c in CHARACTERS if remove.normalize_str(chr(c)) == ""}


def removed_by(normalizer):
    return {c for c in CHARACTERS if normalizer.normalize_str(chr(c)) == ""}


def isolated_by(pre_tokenizer):
    return {c for c in CHARACTERS if len(pre_tokenizer.pre_tokenize_str("a%cb" % c)) == 3}


def bert(**options):
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**off, **options})


def words():
    split = pre_tokenizers.Whitespace()
    return {c for c in CHARACTERS if split.pre_tokenize_str("a%c!" % c)[0][0] == "a" + chr(c)}


def younger_than(version):
    code = ("for (0..0x10ffff) { next if $_>=0xd800 && $_<=0xdfff; "
            "print \"$_\\n\" if chr($_) !~ /\\p{Present_In: %s}/ }" % version)
    return {int(line) for line in subprocess.check_output(["perl", "-e", code]).split()}


def younger_categories():
    """Rows [first, last, category] of characters that Unicode 14.0 lacks, as patterns take them."""
    younger = younger_than("14.0")
    rows_of = []
    for category in ["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
                     "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cf"]:
        remove = normalizers.Replace(Regex(r"\p{%s}" % category), "")
        found = {c for c in younger if remove.normalize_str(chr(c)) == ""}
        rows_of += [[first, last, category] for first, last in ranges(found)]
    return rows_of


def ranges(characters):
    found = []
    for c in sorted(characters):
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def lower_runs():
    """[first, last, step, what is added]; U+0130, which becomes two characters, is left out."""
    lower = normalizers.Lowercase()
    runs = []
    for c in CHARACTERS:
        to = lower.normalize_str(chr(c))
        if to == chr(c) or len(to) != 1:
            continue
        delta = ord(to) - c
        if runs and runs[-1][3] == delta and c - runs[-1][1] in (1, 2) and (
                runs[-1][0] == runs[-1][1] or runs[-1][2] == c - runs[-1][1]):
            runs[-1][2] = c - runs[-1][1]
            runs[-1][1] = c
        else:
            runs.append([c, c, 1, delta])
    return runs


def rows(cells):
    lines, line = [], " "
    for cell in cells:
        if len(line) + len(cell) + 2 > 100:
            lines.append(line)
            line = " "
        line += " " + cell + ","
    return "\n".join(lines + [line])


def constant(name):
    return "k%sTable" % "".join(word.capitalize() for word in name.split("_"))


TABLES = {
    "letters": matches(r"\p{L}"),
    "numbers": matches(r"\p{N}"),
    "spaces": matches(r"\s"),
    "words": words(),
    "numerics": isolated_by(pre_tokenizers.Digits(True)),
    "punctuation": isolated_by(pre_tokenizers.Punctuation()),
    "cleaned": removed_by(bert(clean_text=True)),
    "bert_accents": removed_by(bert(strip_accents=True)),
    "accents": removed_by(normalizers.StripAccents()),
    "younger": younger_than("9.0"),
    "more_words": matches(r"\w") - matches(r"[\p{L}\p{M}\p{Nd}\p{Pc}]"),
}

with open("text/unicode/unicode_ranges.cpp", "w", encoding="utf-8") as f:
    f.write("// Made by tests/reference/make_unicode_ranges.py.\n")
    f.write('#include "text/unicode/unicode_ranges.h"\n\nnamespace zinc::train {\nnamespace {\n\n')
    f.write("// clang-format off\n")
    for name, characters in TABLES.items():
        cells = ["{%d,%d}" % (a, b) for a, b in ranges(characters)]
        f.write("constexpr CharacterRange %s[] = {\n%s\n};\n" % (constant(name), rows(cells)))
    cells = ["{%d,%d,%d,%d}" % tuple(run) for run in lower_runs()]
    f.write("constexpr LowerRun kLower[] = {\n%s\n};\n" % rows(cells))
    cells = ['{%d,%d,"%s"}' % tuple(row) for row in younger_categories()]
    f.write("constexpr CategoryRange kYoungerCategories[] = {\n%s\n};\n" % rows(cells))
    f.write("// clang-format on\n\n}  // namespace\n\n")
    f.write("UnicodeRanges unicode_ranges() {\n  return {\n")
    for name in TABLES:
        f.write("      .%s = %s,\n" % (name, constant(name)))
    f.write("      .lower = kLower,\n      .younger_categories = kYoungerCategories,\n  };\n}\n\n}  // namespace zinc::train\n")
