#!/usr/bin/env python3
"""Draws tokenizer.json files and texts at random and records what Hugging Face's libraries make of them:
    record_random.py COUNT SEED > random.jsonl
One line a tokenizer: tokenizer.json, for some tokenizer_config.json, special_tokens_map.json and added_tokens.json (by
transformers' AutoTokenizer, with the ids of the roles), and of each text its ids without and with special tokens, and what
they decode to with and without special tokens. What the libraries refuse is left out.

Needs tokenizers and transformers (recorded with 0.23.3 and 5.23.0).
"""
import json
import pathlib
import random
import sys
import tempfile

from tokenizers import Tokenizer
from transformers import AutoTokenizer, logging

TEXTS = 5

WORDS = ["the", "way", "Hello", "World", "tokenization", "don't", "I'LL", "we've", "x1", "2024", "3.14", "caf\u00e9",
         "cafe\u0301", "\u0130stanbul", "stra\u00dfe", "\u4f60\u597d", "\u4e16\u754c", "\u3042\u30a2", "\ud55c\uad6d\uc5b4",
         "\u1112\u1161\u11ab", "\u0645\u0631\u062d\u0628\u0627", "\u0e01\u0e33", "\u0928\u092e\u0938\u094d\u0924\u0947",
         "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "ab", "abab", "aaa", "b", "ba",
         "HTTPServer", "snake_case", "e.g.", "(a)", "[b]", "{c}", "<d>", "a-b", "1,000", "12345678", "\u0661\u0662",
         "\u00bd", "\u2460", "\u2167", "\uff21\uff22", "\ufb01n", "\u212b", "\u1e9b\u0323", "o\u0308\u0304", "\u00f6\u0304",
         "\u03a3\u03b1\u03c2", "\u01c5", "##b", "<0x41>", "$", "+=", "^_^", "\u2581", "\u2581a", "\u0120", "\ufffd", "n't"]
SPACES = [" ", " ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u200b", "\u2003", "\u0085",
          "\u2028", "\x1c", "", "", ""]
ODD = ["\x00", "\x07", "\u00ad", "\ufeff", "\u200d", "\u0301", "\ue000", "\U000e0001", "\U0010ffff", "!", ".", ",", "?",
       ";", "\u2026", "\u201c", "\u3002", "\uff01", "'", "\"", "-", "\u2014", "`", "~", "|", "\\", "/", "="]
PATTERNS = [
    r" ?[^(\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^[a-c]\d]", r"[a-z&&[^b]&&\w]+", r"[^a-z&&\S]", r"[\W\d[e]]", r"\B", r"\bab", r"[^[:^space:]]", r"\w\b",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", r"\p{N}{1,3}", r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\d{3}(?=\d)",
    r"(?=(\d{3})+(?!\d))", r"(\d{1,3})(?=(?:\d{3})*\b)", r"\d{1,3}(?=(?:\d{3})*\b)", r" ", r"\s+", r"\w+", r"\W", r"\d",
    r"[^\s]+", r"[\s\S]", r".", r"a+", r"b*", r"\b", r"(?<=a)b", r"x?", r"\p{Lu}", r"[[:alpha:]]+", r"[[:punct:]]", r"\p{Han}",
    r"\p{Han}+|\p{Hangul}+", r"\p{L}\p{M}*", r"[^\p{L}\d]", r"^\s", r"\s$", r"\h+", r"(?i)A", r"[a-c]{2,}", r"(ab){2}",
    r"a{,2}b", r"\A.", r".\z", r"\R", r"\X", r"[^\S\r\n]+", r"\p{S}|\p{P}", r"\p{Cf}", r"\u0041", r"\x41", r"e\.g\.",
    r"(?:a|b)+?", r"a++", r"[\p{L}&&[^a]]", r"(?s).+", r"(?m)^", r"$", r"_", r"\p{Sc}", r"[\x{4e00}-\x{9fff}]",
    "\u2581", "[\u2581 ]", r"[[:space:]]+", r"\p{Alpha}+", r"\p{Letter}", r"\p{IsL}", r"\p{^L}", r"\P{L}", r"[^a-z]",
]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


class Drawer:
    def __init__(self, seed):
        self.draw = random.Random(seed)

    def one(self, *choices):
        return self.draw.choice(choices)

    def chance(self, share):
        return self.draw.random() < share

    def flags(self, *names, share=1.0):
        """Some of the flags, each true or false: what is absent has tokenizers' default, where it has one."""
        return {name: self.chance(0.5) for name in names if self.chance(share)}

    def text(self, tokens):
        out = ""
        for _ in range(self.draw.randrange(0, 9)):
            part = self.draw.random()
            out += (self.one(*ODD) if part < 0.15 else self.one(*tokens) if part < 0.3 and tokens else self.one(*WORDS))
            out += self.one(*SPACES)
        return self.one(" ", "", "", "\n") + out

    def needle(self):
        if self.chance(0.5):
            return {"Regex": self.one(*PATTERNS)}
        return {"String": self.one(" ", "  ", "\u2581", "a", "ab", "\n", "``", "\u00a0", "e", "'", "<", "\u0301")}

    def normalizer(self, depth=0):
        kind = self.one(*["NFC", "NFC", "NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace", "Replace", "Replace", "Strip", "BertNormalizer",
                          "Lowercase", "StripAccents", "Sequence", "Sequence"])
        out = {"type": kind}
        if kind == "Prepend":
            out["prepend"] = self.one("\u2581", " ", "ab", "")
        elif kind == "Replace":
            out.update(pattern=self.needle(), content=self.one("", " ", "\u2581", "b", "\u00e9", "\"", "$0", "ab"))
        elif kind == "Strip":
            out.update(self.flags("strip_left", "strip_right"))
        elif kind == "BertNormalizer":
            out.update(self.flags("clean_text", "handle_chinese_chars", "lowercase"))
            out["strip_accents"] = self.one(None, True, False)
        elif kind == "Sequence":
            out["normalizers"] = [self.normalizer(depth + 1) for _ in range(self.draw.randrange(0, 4) if depth < 2 else 0)]
        return out

    def pre_tokenizer(self, depth=0):
        kind = self.one(*["ByteLevel", "ByteLevel", "Split", "Split", "Split", "Metaspace", "Digits", "WhitespaceSplit",
                          "Whitespace", "BertPreTokenizer", "Punctuation", "Sequence", "Sequence", "Sequence",
                          "FixedLength"])
        if self.chance(0.02):
            kind = self.one("CharDelimiterSplit", "UnicodeScripts")  # not known here
        out = {"type": kind}
        if kind == "ByteLevel":
            out.update(self.flags("add_prefix_space", "trim_offsets"))
            out.update(self.flags("use_regex", share=0.6))
        elif kind == "Split":
            out.update(pattern=self.needle(), behavior=self.one(*BEHAVIORS), invert=self.chance(0.3))
        elif kind == "Metaspace":
            out.update(replacement=self.one("\u2581", "\u2581", "_"))
            if self.chance(0.8):
                out.update(prepend_scheme=self.one("always", "first", "never"), split=self.chance(0.5))
            else:
                out.update(add_prefix_space=self.chance(0.7))
        elif kind == "Digits":
            out.update(individual_digits=self.chance(0.5))
        elif kind == "Punctuation":
            out.update(behavior=self.one(*BEHAVIORS))
        elif kind == "CharDelimiterSplit":
            out.update(delimiter=self.one("a", " ", "\u2581"))
        elif kind == "FixedLength":
            out.update(length=self.one(1, 2, 5))
        elif kind == "Sequence":
            steps = [self.pre_tokenizer(depth + 1) for _ in range(self.draw.randrange(0, 4) if depth < 2 else 0)]
            out["pretokenizers"] = steps
        return out

    def decoder(self, byte_level, depth=0):
        kinds = ["ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Strip", "WordPiece", "Sequence", "Sequence"]
        kind = "ByteLevel" if byte_level and self.chance(0.7) else self.one(*kinds)
        if self.chance(0.02):
            kind = self.one("BPEDecoder", "CTC")  # not known here
        out = {"type": kind}
        if kind == "ByteLevel":
            out.update(self.flags("add_prefix_space", "trim_offsets", "use_regex"))
        elif kind == "Metaspace":
            out.update(replacement=self.one("\u2581", "_"), prepend_scheme=self.one("always", "first", "never"),
                       split=self.chance(0.5))
        elif kind == "Replace":
            out.update(pattern=self.needle(), content=self.one("", " ", "ab", "$0"))
        elif kind == "Strip":
            out.update(content=self.one(" ", "a", "\u2581"), start=self.one(0, 1, 2), stop=self.one(0, 1))
        elif kind == "WordPiece":
            out.update(prefix=self.one("##", "##", "", "a"), cleanup=self.chance(0.5))
        elif kind == "BPEDecoder":
            out.update(suffix=self.one("</w>", "b"))
        elif kind == "CTC":
            out.update(pad_token="a", word_delimiter_token="b", cleanup=self.chance(0.5))
        elif kind == "Sequence":
            out["decoders"] = [self.decoder(False, depth + 1) for _ in range(self.draw.randrange(0, 4) if depth < 2 else 0)]
        return out

    def post_processor(self, vocab, depth=0):
        known = [[token, id] for token, id in vocab.items()]
        kind = self.one("TemplateProcessing", "TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel",
                        "Sequence")
        out = {"type": kind}
        if kind == "TemplateProcessing":
            names = self.draw.sample(known, min(len(known), 2))
            some = lambda: [{"SpecialToken": {"id": token, "type_id": 0}} for token, _ in names if self.chance(0.6)]
            single = some() + [{"Sequence": {"id": "A", "type_id": 0}}] + some()
            out.update(single=single, pair=single + [{"Sequence": {"id": "B", "type_id": 1}}], special_tokens={})
            for token, id in names:
                times = self.one(1, 1, 2)
                out["special_tokens"][token] = {"id": token, "ids": [id] * times, "tokens": [token] * times}
        elif kind == "BertProcessing":
            out.update(sep=self.one(*known), cls=self.one(*known))
        elif kind == "RobertaProcessing":
            out.update(sep=self.one(*known), cls=self.one(*known))
            out.update(trim_offsets=self.chance(0.5), add_prefix_space=self.chance(0.5))
        elif kind == "ByteLevel":
            out.update(self.flags("add_prefix_space", "trim_offsets", "use_regex"))
        else:
            out["processors"] = [self.post_processor(vocab, depth + 1)
                                 for _ in range(self.draw.randrange(0, 3) if depth < 2 else 0)]
        return out

    def corpus(self):
        return [self.text([]) for _ in range(12)]

    def pieces(self, steps):
        """Pieces of normalized texts as the model gets them, from which a vocabulary may be drawn."""
        out = []
        empty = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}, **steps}
        tokenizer = Tokenizer.from_str(json.dumps(empty))
        for text in self.corpus():
            if tokenizer.normalizer:
                text = tokenizer.normalizer.normalize_str(text)
            out += ([piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)] if tokenizer.pre_tokenizer
                    else [text])
        return [piece for piece in out if piece]

    def bpe(self, pieces):
        """Merges drawn from the pieces: adjacent symbols join, in a random order."""
        symbols = sorted({c for piece in pieces for c in piece})
        self.draw.shuffle(symbols)
        if self.chance(0.4):
            symbols = symbols[:len(symbols) * 4 // 5]
        if self.chance(0.3):
            symbols += [f"<0x{byte:02X}>" for byte in range(256) if self.chance(0.97)]
        vocab = {}
        if self.chance(0.5):
            vocab["<unk>"] = 0
        for symbol in symbols:
            vocab.setdefault(symbol, len(vocab))
        merges = []
        words = [[c for c in piece if c in vocab] for piece in pieces]
        for _ in range(self.one(0, 10, 60)):
            word = self.one(*words) if words else []
            if len(word) < 2:
                continue
            at = self.draw.randrange(len(word) - 1)
            left, right = word[at], word[at + 1]
            if [left, right] in merges:
                continue
            vocab.setdefault(left + right, len(vocab))
            merges.append([left, right])
            for other in words:
                i = 0
                while i + 1 < len(other):
                    if other[i] == left and other[i + 1] == right:
                        other[i:i + 2] = [left + right]
                    i += 1
        if self.chance(0.3):
            self.draw.shuffle(merges)
        for piece in pieces:  # whole words without merges, for ignore_merges
            if self.chance(0.05):
                vocab.setdefault(piece, len(vocab))
        out = {"type": "BPE", "dropout": None, "unk_token": "<unk>" if "<unk>" in vocab else None,
               "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": self.chance(0.4),
               "byte_fallback": self.chance(0.4), "ignore_merges": self.chance(0.3), "vocab": vocab, "merges": merges}
        return out, vocab

    def unigram(self, pieces):
        rows, seen = [], set()

        def add(token, score):
            if token and token not in seen:
                seen.add(token)
                rows.append([token, score])

        add("<unk>", 0.0)
        score = lambda: -self.one(1.0, 2.0, 2.0, 3.0, 3.0, round(self.draw.random() * 10, 4))
        for piece in pieces:
            for c in piece:
                if self.chance(0.8):
                    add(c, score())
            for _ in range(3):
                begin = self.draw.randrange(len(piece))
                add(piece[begin:begin + self.one(1, 2, 3, 8)], score())
        if self.chance(0.3):
            for byte in range(256):
                add(f"<0x{byte:02X}>", -20.0)
        return ({"type": "Unigram", "unk_id": 0, "byte_fallback": self.chance(0.4), "vocab": rows},
                {row[0]: i for i, row in enumerate(rows)})

    def word_piece(self, pieces):
        vocab, prefix = {"<unk>": 0}, self.one("##", "##", "", "b")
        for piece in pieces:
            for c in piece:
                for token in (c, prefix + c):
                    if self.chance(0.7):
                        vocab.setdefault(token, len(vocab))
            for _ in range(4):
                begin = self.draw.randrange(len(piece))
                token = piece[begin:begin + self.one(1, 2, 3, 8)]
                vocab.setdefault(token if begin == 0 else prefix + token, len(vocab))
        return ({"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": prefix,
                 "max_input_chars_per_word": self.one(100, 100, 5), "vocab": vocab}, vocab)

    def added_tokens(self, vocab):
        out, contents = [], set()
        for _ in range(self.one(0, 0, 1, 2, 4)):
            content = self.one("<s>", "</s>", "<|im_start|>", "<|im_end|>", "A", "ab", "a", "\u00c9", " <x>", "<x> ", "\u4f60",
                               "Hello", "the", "  ", "\n", "<|", "|>", "tok", "caf\u00e9", "[MASK]", "1", "\u2581a", "e\u0301")
            if content in contents:
                continue
            contents.add(content)
            special = self.chance(0.5)
            out.append({"id": vocab.get(content, len(vocab) + len(out)), "content": content,
                        "single_word": self.chance(0.2), "lstrip": self.chance(0.25), "rstrip": self.chance(0.25),
                        "normalized": self.chance(0.5), "special": special})
        return out

    def file(self):
        steps = {"normalizer": self.normalizer() if self.chance(0.5) else None,
                 "pre_tokenizer": self.pre_tokenizer() if self.chance(0.85) else None}
        pieces = self.pieces(steps)
        byte_level = "ByteLevel" in json.dumps(steps["pre_tokenizer"])
        make = self.bpe if byte_level else self.one(self.bpe, self.unigram, self.word_piece)
        model, vocab = make(pieces) if pieces else self.bpe(["a", "ab"])
        added = self.added_tokens(vocab)
        return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **steps,
                "post_processor": self.post_processor(vocab) if self.chance(0.5) and vocab else None,
                "decoder": self.decoder(byte_level) if self.chance(0.8) else None, "model": model}

    def config(self, document):
        """tokenizer_config.json, and where they count special_tokens_map.json and added_tokens.json. Every role's token is
        in the vocabulary."""
        vocab = document["model"]["vocab"]
        own = [token for token in (vocab if isinstance(vocab, dict) else [row[0] for row in vocab]) if token.strip()]
        added = [token["content"] for token in document["added_tokens"]]
        token = lambda: self.one(*added) if added and self.chance(0.5) else self.one(*own)
        settings = lambda content: {"content": content, "normalized": self.chance(0.3), "special": self.chance(0.7),
                                    **self.flags("lstrip", "rstrip", "single_word")}
        config = {"tokenizer_class": "PreTrainedTokenizerFast"}
        for role in ("bos_token", "eos_token", "pad_token", "unk_token"):
            if self.chance(0.5):
                config[role] = token()
        if self.chance(0.2):
            config["image_token"] = token()
        config.update(self.flags("add_bos_token", "add_eos_token", share=0.3))
        if self.chance(0.3):
            config[self.one("additional_special_tokens", "extra_special_tokens")] = [token(), token()]
        elif self.chance(0.2):
            config["extra_special_tokens"] = {"audio_token": token()}
        if self.chance(0.6):
            listed = {str(len(own) + 3 + i): settings(self.one("<new>", "<s>", "a", token()))
                      for i in range(self.draw.randrange(0, 3))}
            config["added_tokens_decoder"] = listed
        elif self.chance(0.5):
            return config, {"eos_token": self.one(token(), {"content": token(), "lstrip": True, "rstrip": False,
                                                            "normalized": False, "single_word": False})}, self.older(token)
        else:
            return config, None, self.older(token)
        return config, None, None

    def older(self, token):
        """added_tokens.json"""
        return {self.one("<new>", "<s>", "a", token()): 1000 + i for i in range(2)} if self.chance(0.5) else None


class Loaded:
    """transformers' tokenizer of a folder, as tokenizers' would answer."""

    def __init__(self, document, config, special_map, older):
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            (folder / "tokenizer.json").write_text(json.dumps(document))
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
            if special_map:
                (folder / "special_tokens_map.json").write_text(json.dumps(special_map))
            if older:
                (folder / "added_tokens.json").write_text(json.dumps(older))
            self.own = AutoTokenizer.from_pretrained(folder)

    def encode(self, text, add_special_tokens=True):
        return self.own._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def decode(self, ids, skip_special_tokens):
        return self.own.decode(ids, skip_special_tokens=skip_special_tokens)


def row_of(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return {"text": text, "ids": ids, "special": tokenizer.encode(text).ids,
            "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            "skipped": tokenizer.decode(ids, skip_special_tokens=True)}


def record(drawer):
    document = drawer.file()
    out = {"file": document}
    if drawer.chance(0.5):
        tokenizer = Tokenizer.from_str(json.dumps(document))
    else:
        config, special_map, older = drawer.config(document)
        out["config"] = config
        if special_map:
            out["map"] = special_map
        if older:
            out["older"] = older
        tokenizer = Loaded(document, config, special_map, older)
        out["roles"] = {role: getattr(tokenizer.own, role + "_id") for role in ("bos_token", "eos_token", "pad_token")}
    tokens = [token["content"] for token in document["added_tokens"]] + ["<new>", "</s>"]
    tokens += [text for text in out.get("config", {}).values() if isinstance(text, str)][1:]
    out["texts"] = [row_of(tokenizer, drawer.text(tokens)) for _ in range(TEXTS)]
    return out


def main():
    logging.set_verbosity_error()
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    done = 0
    while done < count:
        seed += 1
        try:
            row = record(Drawer(seed))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # of Rust too: what tokenizers refuses or panics about
            print(f"{seed}: {str(error)[:150]}", file=sys.stderr)
            continue
        done += 1
        print(json.dumps({"seed": seed, **row}, ensure_ascii=True, separators=(",", ":")))


if __name__ == "__main__":
    main()
