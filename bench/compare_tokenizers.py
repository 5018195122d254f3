#!/usr/bin/env python3
"""Encodes the same texts with tokenizer_bench and Hugging Face's `tokenizers`, each on one thread, in turns; checks that the
ids are equal, and prints both speeds and their ratio.

  python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers
  cmake --build build/release --target tokenizer_bench
  /tmp/venv/bin/python bench/compare_tokenizers.py build/release/bench/tokenizer_bench TOKENIZER_FOLDER... -- TEXT_FILE...

In addition to the given folders, a byte-level vocabulary of 32,000 tokens with Llama 3's pattern is trained on the texts.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402  (reads the environment)
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402

ROUNDS = 3
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
MASK = (1 << 64) - 1


def train(texts, folder):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=32000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(str(folder / "tokenizer.json"))


def theirs(folder, texts):
    begin = time.process_time()
    tokenizer = Tokenizer.from_file(str(pathlib.Path(folder) / "tokenizer.json"))
    load = time.process_time() - begin
    begin = time.process_time()
    encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    seconds = time.process_time() - begin
    checksum = 0
    for one in encoded:
        for i in one.ids:
            checksum = (checksum * 31 + i) & MASK
    return seconds, load, "%016x" % checksum


def main():
    split = sys.argv.index("--")
    program, folders, files = sys.argv[1], sys.argv[2:split], sys.argv[split + 1:]
    texts = [pathlib.Path(f).read_text(encoding="utf-8", errors="replace").replace("\0", "") for f in files]
    texts = [t for t in texts if t]
    size = sum(len(t.encode()) for t in texts) / 1e6
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        corpus = temporary / "corpus"
        corpus.write_bytes(b"\0".join(t.encode() for t in texts))
        train(texts, temporary)
        print(f"{len(texts)} documents, {size:.1f} MB; tokenizers {tokenizers.__version__}, CPU time, best of {ROUNDS} rounds each")
        print(f"{'tokenizer':<24}{'automodel MB/s':>16}{'tokenizers MB/s':>17}{'ratio':>8}{'load ms':>10}{'theirs':>8}  ids")
        worst = None
        for folder in [*folders, temporary]:
            mine, other = [], []
            for _ in range(ROUNDS):
                out = subprocess.run([program, str(folder), str(corpus), "1"], capture_output=True,
                                     text=True, check=True)
                mine.append(json.loads(out.stdout))
                other.append(theirs(folder, texts))
            a, b = min(m["seconds"] for m in mine), min(o[0] for o in other)
            equal = mine[0]["checksum"] == other[0][2]
            name = "32,000 trained here" if folder == temporary else pathlib.Path(folder).name
            print(f"{name:<24}{size / a:>16.1f}{size / b:>17.1f}{b / a:>8.2f}{1e3 * min(m['load'] for m in mine):>10.1f}"
                  f"{1e3 * min(o[1] for o in other):>8.1f}  {'equal' if equal else 'DIFFERENT'}")
            worst = min(worst or b / a, b / a if equal else 0)
    sys.exit(worst < 1)


main()
