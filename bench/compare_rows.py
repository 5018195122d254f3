#!/usr/bin/env python3
"""Random conversations, instructions and settings: token ids, labels and attention of every row, here and in NeMo AutoModel.

  bench/compare_rows.py NEMO_CHECKOUT --automodel BIN/automodel [--count 300] [--seed 1]

Rows of chat, column_mapped and agent data in JSON lines, with the tokenizers and templates of test/golden/datasets. Each row
must be refused by both or be the same in both, but for rows whose tool calls the template leaves out and settings with which
NeMo AutoModel refuses a whole set for one row. Run it with a Python that has torch, transformers 5.23 and datasets."""
import argparse
import collections
import importlib
import json
import logging
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "test" / "golden" / "datasets"
LLM = "nemo_automodel.components.datasets.llm."
TARGETS = {"chat": LLM + "chat_dataset.ChatDataset", "agent": LLM + "agent_chat.make_agent_chat_dataset",
           "column": LLM + "column_mapped_text_instruction_dataset.ColumnMappedTextInstructionDataset"}
PATH_KEYS = {"chat": "path_or_dataset_id", "agent": "path", "column": "path_or_dataset_id"}
TOKENIZERS = ["llama3", "qwen2", "qwen2_tools", "llama2", "llama3_gen", "gpt2", "llama2_cls"]
TEMPLATES = ["chatml_gen", "chatml_tools", "history", "nosystem", "simple_gen", "think_plain"]
WORDS = ["the", "way", "of", "Hello", "world", "12", "caf\u00e9", "don't", "x=1", "\u4f60\u597d", "<think>", "</think>", "answer?", "\n",
         "tool", "</s>", "<|im_end|>", "Paris,"]


class Drawer:
    def __init__(self, seed):
        self.draw = random.Random(seed)

    def one(self, *choices):
        return self.draw.choice(choices)

    def chance(self, share):
        return self.draw.random() < share

    def text(self, most=8):
        words = " ".join(self.one(*WORDS) for _ in range(self.draw.randrange(most)))
        return self.one("", "", "", " ", "\n") + words + self.one("", "", "", " ", "\n")

    def content(self):
        if self.chance(0.85):
            return self.text()
        return self.one([{"type": "text", "text": self.text(4)}, {"type": "text", "text": self.text(4)}], None, "", 5, 1.5, True,
                        [{"type": "image", "x": 1}, {"text": self.text(3)}])

    def call(self):
        arguments = {"a": self.one(1, "b", None, [1, 2], {"k": "\u00e9"}), "b": self.text(3)}
        out = {"function": {"name": self.one("f", "get_x"), "arguments": self.one(arguments, json.dumps(arguments))}}
        return {**out, "id": f"call_{self.draw.randrange(9)}", "type": "function"} if self.chance(0.7) else out

    def messages(self, tools):
        out = [{"role": "system", "content": self.content()} for _ in range(self.one(0, 0, 0, 1, 1, 2 if self.chance(0.2) else 1))]
        for _ in range(self.one(1, 1, 2, 3, 0 if self.chance(0.3) else 1)):
            if not self.chance(0.05):
                out.append({"role": "user", "content": self.content()})
            turn = {"role": "assistant", "content": self.content()}
            if self.chance(0.2):
                turn["reasoning_content"] = self.one(self.text(5), self.text(5), "", None)
            out.append(turn)
            if not tools or self.chance(0.5):
                continue
            turn["tool_calls"] = [self.call() for _ in range(self.one(1, 2))]
            out += [{"role": "tool", "content": self.content(), "tool_call_id": each.get("id", "call_0")} for each in turn["tool_calls"]]
            if self.chance(0.7):
                out.append({"role": "assistant", "content": self.content()})
        if self.chance(0.1):
            out.append({"role": "user", "content": self.content()})
        if self.chance(0.03):
            out.append({"role": "bot", "content": "x"})
        return out

    def row(self, kind):
        if kind == "column":
            return {"q": self.one(self.text(), self.text(), "", None if self.chance(0.2) else 3), "c": self.text(),
                    "a": self.one(self.text(), self.text(), "")}
        if kind == "chat" and self.chance(0.15):
            return {"conversations": [{"from": self.one("human", "user") if i % 2 == 0 else self.one("gpt", "assistant", "model"),
                                       "value": self.text()} for i in range(self.one(1, 2, 3, 4))]}
        tools = self.chance(0.35)
        out = {"messages": self.messages(tools)}
        if tools and self.chance(0.7):
            parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
            out["tools"] = [{"type": "function", "function": {"name": "f", "description": self.text(3), "parameters": parameters}}]
        return out

    def case(self):
        kind = self.one("chat", "chat", "chat", "column", "agent")
        tokenizer = {"pretrained_model_name_or_path": str(GOLDEN / "tokenizers" / self.one(*TOKENIZERS))}
        loader = self.one("nemo", "nemo", "hf")
        if loader == "nemo":
            tokenizer |= {key: self.chance(0.7) for key in ("add_bos_token", "add_eos_token") if self.chance(0.2)}
        tokenizer |= {key: self.one("left", "right") for key in ("padding_side", "truncation_side") if self.chance(0.12)}
        section = {}
        if self.chance(0.6):
            section["seq_length"] = self.one(16, 32, 64, 128)
            if self.chance(0.5):
                section["padding"] = self.one("max_length", "do_not_pad", True, False)
            if self.chance(0.5):
                section["truncation"] = self.one("do_not_truncate", True, False, "longest_first", "only_first")
        if kind == "column":
            section["column_mapping"] = self.one({"question": "q", "answer": "a"}, {"context": "c", "question": "q", "answer": "a"},
                                                 {"context": "c", "answer": "a"})
            section |= {key: self.chance(0.6) for key in ("answer_only_loss_mask", "use_hf_chat_template") if self.chance(0.4)}
        else:
            keys = {"chat": ["mask_reasoning_content", "mask_history"],
                    "agent": ["mask_reasoning_content", "train_on_last_turn_only", "drop_history_reasoning_content",
                              "truncate_history", "filter_no_assistant", "trim_incomplete_last_turn"]}[kind]
            section |= {key: True for key in keys if self.chance(0.2)}
            if self.chance(0.3):
                section["chat_template"] = str(GOLDEN / "templates" / (self.one(*TEMPLATES) + ".jinja"))
        return kind, loader, tokenizer, section, [self.row(kind) for _ in range(self.one(1, 2, 3, 4))]


def theirs(kind, loader, tokenizer, section, path):
    """Rows as lists of ids, labels and attention, None for a row that is refused; None for a refused set."""
    from nemo_automodel import NeMoAutoTokenizer
    from transformers import AutoTokenizer
    module, _, name = TARGETS[kind].rpartition(".")
    try:
        own = (NeMoAutoTokenizer if loader == "nemo" else AutoTokenizer).from_pretrained(**tokenizer)
        rows = getattr(importlib.import_module(module), name)(
            tokenizer=own, **{PATH_KEYS[kind]: str(path)}, **section)
        count = len(rows)
    except Exception:
        return None
    out = []
    for i in range(count):
        try:
            out.append([[int(each) for each in rows[i][key]] for key in ("input_ids", "labels", "attention_mask")])
        except Exception:
            out.append(None)
    return out


def ours(program, kind, loader, tokenizer, section, path, folder):
    """The same, with the reason in place of a refused row or set."""
    target = "nemo_automodel.NeMoAutoTokenizer" if loader == "nemo" else "transformers.AutoTokenizer"
    dataset = {"_target_": TARGETS[kind], PATH_KEYS[kind]: str(path), "max_bad_rows": 100,
               "tokenizer": {"_target_": target + ".from_pretrained", **tokenizer}, **section}
    (folder / "recipe.yaml").write_text(json.dumps({"model": {"config": {"model_type": "llama"}}, "dataset": dataset}))
    done = subprocess.run([program, "data", "recipe.yaml", "--json", "--rows", "100"], cwd=folder, capture_output=True, text=True,
                          timeout=60)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode:
        return rows[0]["errors"][0]["message"]
    return [row.get("error") or [row["input_ids"], row["labels"], row["attention_mask"]] for row in rows]


def compare(got, expected):
    """What differs; empty if nothing does."""
    left_out = "leaves the tool calls out"
    if isinstance(got, str):
        return "" if expected is None or not any(expected) or left_out in got else "only here refused: " + got
    if expected is None:
        return "only there refused"
    if len(got) != len(expected):
        return f"{len(got)} rows, NeMo AutoModel {len(expected)}"
    for i, (own, other) in enumerate(zip(got, expected)):
        if isinstance(own, str) and (other is None or left_out in own):
            continue
        if isinstance(own, str) or other is None:
            return f"row {i}: {own if isinstance(own, str) else 'only there refused'}"
        other = [other[0], other[1][:len(own[0])], other[2]]  # without a context there is one label more, which never counts
        if own != other:
            return f"row {i}: {own}, NeMo AutoModel {other}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nemo", type=pathlib.Path)
    parser.add_argument("--automodel", required=True, type=pathlib.Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.nemo.resolve()))
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    counts, failed = collections.Counter(), 0
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        os.environ["HF_DATASETS_CACHE"] = os.environ["XDG_CACHE_HOME"] = made
        for seed in range(arguments.seed, arguments.seed + arguments.count):
            kind, loader, tokenizer, section, rows = Drawer(seed).case()
            path = folder / f"rows{seed}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            what = compare(ours(arguments.automodel.resolve(), kind, loader, tokenizer, section, path, folder),
                           theirs(kind, loader, tokenizer, section, path))
            counts[kind] += 1
            if what:
                failed += 1
                print(f"seed {seed}: {kind} {loader} {tokenizer} {section}: {what}", flush=True)
    print(f"{arguments.count} sets (" + ", ".join(f"{count} {kind}" for kind, count in counts.items()) + f"), {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
