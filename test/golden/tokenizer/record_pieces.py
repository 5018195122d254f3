#!/usr/bin/env python3
"""Trains tiny tokenizers of unigrams and word pieces and records their ids: unigram/, unigram_bytes/, bert/; and
sentencepiece models with what the sentencepiece library makes of texts: spm_bpe/, spm_unigram/.

Needs tokenizers and sentencepiece (recorded with 0.23.3 and 0.2.3).
"""
import io
import json
import pathlib
import random

import sentencepiece as spm
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
WORDS = ("the of and a to in is you that it he was for on are as with his they at be this have from or one had by word "
         "but not what all were we when your can said there use an each which she do how their if will up other about "
         "out many then them these so some her would make like him into time has look two more write go see number no "
         "way could people my than first water been call who oil its now find long down day did get come made may "
         "part unhappiness running tokenization internationalization").split()


def corpus():
    draw = random.Random(7)
    lines = [" ".join(draw.choice(WORDS) for _ in range(12)) + draw.choice(".,!?") for _ in range(400)]
    return lines + ["Caf\u00e9 na\u00efve \u00dcber stra\u00dfe", "\u4f60\u597d \u4e16\u754c", "12 345 6789"] * 20


TEXTS = ["", " ", "the way", "  two  spaces ", "Unhappiness, running!", "unbelievable xyzzy qqq", "Caf\u00e9 NA\u00cfVE",
         "\u4f60\u597d\u4e16\u754c and more", "\u0130stanbul \u01c5 \u1e9e\u03a3", "a\u200bb\u0007c\td\ne", "don't you can't .",
         "\ufb01n \u00bd \u2460 \uff21\uff22", "e\u0301 o\u0308\u0304", "\U0001f600 \U0001f1e9\U0001f1ea!", "<unk> [UNK] [CLS] </s>",
         "x" * 120, "number 12345 $3.50 + 2=4 ^_^", "\u2581mark \u2581\u2581", "\u0e01\u0e33 \u1112\u1161\u11ab", "word\u00a0word\u3000end"]


def record(name, tokenizer):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    rows = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        row = {"text": text, "ids": ids, "decode": tokenizer.decode(ids, skip_special_tokens=False)}
        special = tokenizer.encode(text).ids
        if special != ids:
            row["ids_with_special"] = special
        skipped = tokenizer.decode(ids, skip_special_tokens=True)
        if skipped != row["decode"]:
            row["decode_skip"] = skipped
        rows.append(row)
    (folder / "cases.json").write_text(json.dumps({"strings": rows}, ensure_ascii=True, separators=(",", ":")) + "\n")


def unigram(byte_fallback, table):
    tokenizer = Tokenizer(models.Unigram())
    steps = [normalizers.Precompiled(table)] if table else []
    tokenizer.normalizer = normalizers.Sequence(steps + [normalizers.Replace(" {2,}", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(vocab_size=160, special_tokens=["<unk>", "</s>"], unk_token="<unk>",
                                      show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    document = json.loads(tokenizer.to_str())
    if byte_fallback:
        document["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
        document["model"]["byte_fallback"] = True
        document["decoder"] = {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    document["post_processor"] = {
        "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}},
                                                 {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}}
    return Tokenizer.from_str(json.dumps(document))


def bert(lower):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=200, special_tokens=special,
                                                                      show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def sentencepiece(name, kind, **options):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    out = io.BytesIO()
    spm.SentencePieceTrainer.train(sentence_iterator=iter(corpus()), model_writer=out, model_type=kind, minloglevel=2,
                                   num_threads=1, **options)
    (folder / "tokenizer.model").write_bytes(out.getvalue())
    model = spm.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    rows = []
    for text in TEXTS:
        if "<unk>" in text:  # the library knows no special tokens in texts
            continue
        ids = model.encode(text)
        rows.append({"text": text, "ids": ids})
    (folder / "cases.json").write_text(json.dumps({"strings": rows, "bos": model.bos_id(), "eos": model.eos_id()},
                                                  separators=(",", ":")) + "\n")
    return model


def main():
    sentencepiece("spm_bpe", "bpe", vocab_size=420, byte_fallback=True, normalization_rule_name="identity",
                  remove_extra_whitespaces=False, split_digits=True)
    rules = pathlib.Path("rules.tsv")  # a few of nmt_nfkc's: its table has a quarter of a megabyte
    rules.write_text("FB01\t66 69\nBD\t31 2044 32\n2460\t31\nFF21\t41\nFF22\t42\nA0\t20\n3000\t20\n9\t20\n7\t\n"
                     "200B\t20\n65 301\tE9\n6F 308\tF6\nE33\tE4D E32\n1112 1161\tD558\n1112 1161 11AB\tD55C\n")
    sentencepiece("spm_unigram", "unigram", vocab_size=140, normalization_rule_tsv=str(rules))
    rules.unlink()
    document = (HERE / "spm_unigram" / "tokenizer.model").read_bytes()
    record("unigram", unigram(False, charsmap(document)))
    record("unigram_bytes", unigram(True, None))
    record("bert", bert(True))
    record("bert_cased", bert(False))


def charsmap(document):
    """The table of normalization rules inside a model: field 3 of the message, field 2 of that."""
    def fields(data):
        at = 0
        while at < len(data):
            key, at = varint(data, at)
            if key & 7 == 2:
                length, at = varint(data, at)
                yield key >> 3, data[at:at + length]
                at += length
            elif key & 7 == 5:
                at += 4
            elif key & 7 == 1:
                at += 8
            else:
                _, at = varint(data, at)

    def varint(data, at):
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if not data[at - 1] & 128:
                return value, at

    return next(inner for field, own in fields(document) if field == 3 for key, inner in fields(own) if key == 2)


if __name__ == "__main__":
    main()
