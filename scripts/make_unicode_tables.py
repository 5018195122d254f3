#!/usr/bin/env python3
"""Writes lib/tokenizer/unicode_tables.cpp: the data that normal forms need (from the same Unicode version as in
`tokenizers`), and where categories in Hugging Face's regular expressions differ from PCRE2 10.42, which has Unicode 14.

  scripts/make_unicode_tables.py > lib/tokenizer/unicode_tables.cpp

Needs `pip install tokenizers` and the unicodedata of Unicode 14 (Python 3.11).
"""
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = ["L", "N", "Nd", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "P", "S"]
ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(points):
    out = []
    for c in points:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def reference(category):
    """The code points that belong to a category according to `tokenizers`."""
    kept = pre_tokenizers.Split(Regex(r"[^\p{%s}]+" % category), "removed")
    out = []
    for begin in range(0, len(ALL), 4096):
        text = "".join(map(chr, ALL[begin:begin + 4096]))
        for piece, _ in kept.pre_tokenize_str(text):
            out.extend(map(ord, piece))
    return set(out)


def rows(items, form):
    text, line = [], "    "
    for item in items:
        cell = form(item) + ","
        if len(line) + len(cell) + 1 > 120:
            text.append(line.rstrip())
            line = "    "
        line += cell + " "
    text.append(line.rstrip())
    return "\n".join(text)


def is_mark(c):
    """Whether `tokenizers` sorts a code point before U+0345, which has the highest combining class, or it is U+0345 itself."""
    return c == 0x345 or normalizers.NFD().normalize_str("\u0345" + chr(c)) != "\u0345" + unicodedata.normalize("NFD", chr(c))


def main():
    decompositions, classes, compositions = [], [], []
    for c in ALL:
        parts = unicodedata.decomposition(chr(c))
        if parts and not parts.startswith("<"):
            codes = [int(p, 16) for p in parts.split()]
            decompositions.append((c, codes[0], codes[1] if len(codes) > 1 else 0))
            if len(codes) == 2 and normalizers.NFC().normalize_str("".join(map(chr, codes))) == chr(c):
                compositions.append((codes[0], codes[1], c))
        if unicodedata.combining(chr(c)) and is_mark(c):
            classes.append((c, unicodedata.combining(chr(c))))
    class_ranges = []
    for c, k in classes:
        if class_ranges and class_ranges[-1][1] == c - 1 and class_ranges[-1][2] == k:
            class_ranges[-1][1] = c
        else:
            class_ranges.append([c, c, k])
    print("// long: a table, written by scripts/make_unicode_tables.py")
    print('#include "tokenizer/unicode_tables.h"\n\n#include <array>\n\nnamespace automodel::tokenizer {\nnamespace {\n')
    print("constexpr std::array kDecompositions = std::to_array<Decomposition>({")
    print(rows(decompositions, lambda d: "{0x%X, 0x%X, 0x%X}" % d))
    print("});\n\nconstexpr std::array kCombiningClasses = std::to_array<CombiningClass>({")
    print(rows(class_ranges, lambda d: "{0x%X, 0x%X, %d}" % tuple(d)))
    print("});\n\nconstexpr std::array kCompositions = std::to_array<Composition>({")
    print(rows(sorted(compositions), lambda d: "{0x%X, 0x%X, 0x%X}" % d))
    print("});\n\nconstexpr std::array kNewer = std::to_array<NewerRanges>({")
    for name in CATEGORIES:
        known = {c for c in ALL if unicodedata.category(chr(c)).startswith(name)}
        newer = ranges(sorted(reference(name) - known))
        text = "".join(r"\x{%x}-\x{%x}" % tuple(r) for r in newer)
        cells = [text[i:i + 100] for i in range(0, len(text), 100)] or [""]
        print('    {"%s",\n     %s},' % (name, "\n     ".join('R"(%s)"' % c for c in cells)))
    print("});\n\n}  // namespace\n")
    for name, kind in (("decompositions", "Decomposition"), ("combining_classes", "CombiningClass"),
                       ("compositions", "Composition"), ("newer_ranges", "NewerRanges")):
        table = {"decompositions": "kDecompositions", "combining_classes": "kCombiningClasses",
                 "compositions": "kCompositions", "newer_ranges": "kNewer"}[name]
        print("std::span<const %s> %s() {\n  return %s;\n}" % (kind, name, table))
    print("\n}  // namespace automodel::tokenizer")


main()
