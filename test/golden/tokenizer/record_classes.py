#!/usr/bin/env python3
"""Records what transformers' AutoTokenizer makes of llama2/tokenizer.json under tokenizer_class LlamaTokenizer, for
several model types and settings: llama2/classes.json.

Needs transformers (recorded with 5.23.0).
"""
import json
import pathlib
import shutil
import tempfile

from transformers import AutoTokenizer

HERE = pathlib.Path(__file__).parent / "llama2"
TEXTS = ["", " ", "Hello world", " Hello", "  two", "a</s>b", "<s>x</s> y<s>z", "\u2581m", "</s>", " </s> ", "a \u2581 b",
         "<s>[INST] Hi [/INST] Hello there </s><s>[INST] More? [/INST]", "\u4f60\u597d\n\tx"]
CASES = [("llama", {}), ("llama", {"legacy": True}), ("llama", {"legacy": None}), ("llama", {"add_prefix_space": False}),
         ("llama", {"tokenizer_class": "LlamaTokenizerFast", "add_prefix_space": None}), (None, {}), ("gemma2", {}),
         ("phi", {}), ("mistral", {}), ("phi3", {"legacy": False}), ("minimax_m2", {}), ("granite", {}), ("ernie4_5", {})]


def case(model_type, settings):
    own = json.loads((HERE / "tokenizer_config.json").read_text())
    own.pop("legacy")
    own.pop("chat_template")
    own.update({"tokenizer_class": "LlamaTokenizer", **settings})
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        shutil.copy(HERE / "tokenizer.json", folder)
        (folder / "tokenizer_config.json").write_text(json.dumps(own))
        model = {"model_type": model_type} if model_type else None
        if model:
            (folder / "config.json").write_text(json.dumps(model))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        ids = [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]
        return {"config": own, "model": model, "padding_side": tokenizer.padding_side, "ids": ids,
                "decoded": [tokenizer.decode(each) for each in ids]}


cases = [case(*each) for each in CASES]
(HERE / "classes.json").write_text(json.dumps({"texts": TEXTS, "cases": cases}, separators=(",", ":")) + "\n")
