#!/usr/bin/env python3
"""GGUF files: keys, tensors and their values against the model folder that they were written from; with xllamacpp
(llama.cpp from PyPI) also greedy continuations of a text, against this program's.

  gguf_test.py AUTOMODEL TOKENIZERS [llama.cpp]      exits with 77 where xllamacpp is absent
"""
import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

PROGRAM, TOKENIZERS = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
LLAMA = len(sys.argv) > 3
HEADS, KV_HEADS, HEAD, HIDDEN, FFN, LAYERS = 4, 2, 16, 64, 96, 2
BASE = {"hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32, "rope_theta": 500000.0}
# Name: configuration, tokenizer, what llama.cpp calls the architecture and the splitting.
MODELS = {
    "llama": ({"model_type": "llama", "vocab_size": 2016, "rope_parameters": LLAMA3}, "llama3", "llama", "llama-bpe"),
    "llama2": ({"model_type": "llama", "vocab_size": 1763}, "llama2", "llama", "default"),
    "mistral": ({"model_type": "mistral", "vocab_size": 1763, "sliding_window": None}, "llama2", "llama", "default"),
    "qwen2": ({"model_type": "qwen2", "vocab_size": 1312}, "qwen2", "qwen2", "qwen2"),
    "qwen3": ({"model_type": "qwen3", "vocab_size": 1312, "tie_word_embeddings": True}, "qwen2", "qwen3", "qwen2"),
    "qwen3_moe": ({"model_type": "qwen3_moe", "vocab_size": 1312, "num_experts": 4, "num_experts_per_tok": 2,
                   "moe_intermediate_size": 32, "norm_topk_prob": True}, "qwen2", "qwen3moe", "qwen2")}
TYPES = {"f32": 0, "f16": 1, "q8_0": 8, "bf16": 30}


def run(*words, code=0):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    if done.returncode != code:
        sys.exit(f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def weights(config):
    """Names and shapes as transformers has them; values follow from the name."""
    vocab = config["vocab_size"]
    out = {"model.embed_tokens.weight": (vocab, HIDDEN), "model.norm.weight": (HIDDEN,)}
    if not config["tie_word_embeddings"]:
        out["lm_head.weight"] = (vocab, HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for part, rows in (("q", HEADS * HEAD), ("k", KV_HEADS * HEAD), ("v", KV_HEADS * HEAD)):
            out[f"{at}self_attn.{part}_proj.weight"] = (rows, HIDDEN)
            if config["model_type"] == "qwen2":
                out[f"{at}self_attn.{part}_proj.bias"] = (rows,)
        out[f"{at}self_attn.o_proj.weight"] = (HIDDEN, HEADS * HEAD)
        if config["model_type"].startswith("qwen3"):
            out[f"{at}self_attn.q_norm.weight"] = out[f"{at}self_attn.k_norm.weight"] = (HEAD,)
        out[f"{at}input_layernorm.weight"] = out[f"{at}post_attention_layernorm.weight"] = (HIDDEN,)
        experts, ffn = [""], FFN
        if "num_experts" in config:
            out[f"{at}mlp.gate.weight"] = (config["num_experts"], HIDDEN)
            experts, ffn = [f"experts.{i}." for i in range(config["num_experts"])], config["moe_intermediate_size"]
        for expert in experts:
            out[f"{at}mlp.{expert}gate_proj.weight"] = out[f"{at}mlp.{expert}up_proj.weight"] = (ffn, HIDDEN)
            out[f"{at}mlp.{expert}down_proj.weight"] = (HIDDEN, ffn)
    return out


def count(shape):
    total = 1
    for size in shape:
        total *= size
    return total


def write_model(folder, config, tokenizer):
    folder.mkdir()
    values, header, data = {}, {}, b""
    for name, shape in weights(config).items():
        draw = random.Random(name)
        norm = "norm" in name
        some = [struct.unpack("<f", struct.pack("<f", (1 if norm else 0) + draw.gauss(0, 0.1 if norm else 0.15)))[0]
                for _ in range(count(shape))]
        values[name] = some
        packed = struct.pack(f"<{len(some)}f", *some)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps({**config, "torch_dtype": "float32"}))
    if tokenizer:
        for file in (TOKENIZERS / tokenizer).iterdir():
            if file.name.startswith(("tokenizer", "chat_template")):
                shutil.copy(file, folder)
    return values


class Reader:
    """A GGUF file, by the format's description."""

    def __init__(self, path):
        self.bytes, self.at = path.read_bytes(), 0
        if self.take("<4sIQQ")[:2] != (b"GGUF", 3):
            sys.exit(f"{path}: no GGUF file of version 3")
        self.at = 8
        tensors, keys = self.take("<QQ")
        self.keys, self.tensors = {}, {}
        for _ in range(keys):
            name = self.text()
            self.keys[name] = self.value(self.take("<I")[0])
        for _ in range(tensors):
            name = self.text()
            shape = self.take(f"<{self.take('<I')[0]}Q")[::-1]
            self.tensors[name] = (shape, *self.take("<IQ"))
        self.data = -(-self.at // 32) * 32

    def take(self, form):
        out = struct.unpack_from(form, self.bytes, self.at)
        self.at += struct.calcsize(form)
        return out

    def text(self):
        length = self.take("<Q")[0]
        self.at += length
        return self.bytes[self.at - length:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, length = self.take("<IQ")
            return [self.value(inner) for _ in range(length)]
        return self.take({4: "<I", 5: "<i", 6: "<f", 7: "<?"}[kind])[0]

    def numbers(self, name):
        shape, kind, offset = self.tensors[name]
        at, total = self.data + offset, count(shape)
        if offset % 32:
            sys.exit(f"{name}: not aligned")
        if kind == 8:
            out = []
            for block in range(total // 32):
                scale, *whole = struct.unpack_from("<e32b", self.bytes, at + 34 * block)
                out += [scale * each for each in whole]
            return out
        if kind == 30:
            return [struct.unpack("<f", struct.pack("<I", bits << 16))[0]
                    for bits in struct.unpack_from(f"<{total}H", self.bytes, at)]
        return list(struct.unpack_from(f"<{total}{'f' if kind == 0 else 'e'}", self.bytes, at))


def in_pairs(values, columns):
    """Rows i and HEAD / 2 + i of each head, one after the other."""
    rows = [values[i:i + columns] for i in range(0, len(values), columns)]
    out = []
    for head in range(0, len(rows), HEAD):
        for i in range(HEAD // 2):
            out += rows[head + i] + rows[head + HEAD // 2 + i]
    return out


def check_file(name, config, arch, splitting, values, path, kind):
    file = Reader(path)
    keys = file.keys
    expected = {"general.architecture": arch, f"{arch}.block_count": LAYERS, f"{arch}.embedding_length": HIDDEN,
                f"{arch}.attention.head_count": HEADS, f"{arch}.attention.head_count_kv": KV_HEADS,
                f"{arch}.attention.key_length": HEAD, f"{arch}.feed_forward_length": FFN, f"{arch}.context_length": 256,
                f"{arch}.rope.dimension_count": HEAD, "tokenizer.ggml.pre": splitting}
    for key, value in expected.items():
        if keys.get(key) != value:
            sys.exit(f"{name}: {key} is {keys.get(key)}, not {value}")
    if abs(keys[f"{arch}.attention.layer_norm_rms_epsilon"] - 1e-5) > 1e-11:
        sys.exit(f"{name}: epsilon")
    if len(keys["tokenizer.ggml.tokens"]) != config["vocab_size"]:
        sys.exit(f"{name}: {len(keys['tokenizer.ggml.tokens'])} tokens")
    names = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight"}
    left = set(file.tensors) - {"rope_freqs.weight"}
    if config["tie_word_embeddings"]:
        del names["output.weight"]
    table = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
             "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
             "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate"}
    for theirs in left:
        if theirs.startswith("blk."):
            _, layer, part, kind_of = theirs.split(".")
            if part.endswith("_exps"):
                names[theirs] = [f"model.layers.{layer}.mlp.experts.{i}.{part[4:-5]}_proj.{kind_of}"
                                 for i in range(config["num_experts"])]
            else:
                names[theirs] = f"model.layers.{layer}.{table[part]}.{kind_of}"
    seen = set()
    for theirs, ours in names.items():
        ours = ours if isinstance(ours, list) else [ours]
        seen.update(ours)
        want = [number for each in ours for number in values[each]]
        shape, stored, _ = file.tensors[theirs]
        if arch == "llama" and (".attn_q." in theirs or ".attn_k." in theirs):
            want = in_pairs(want, shape[-1])
        vector = len(shape) == 1 or "ffn_gate_inp" in theirs
        if stored != (0 if vector else TYPES[kind]):
            sys.exit(f"{name}: {theirs} is of type {stored}")
        got = file.numbers(theirs)
        # Half a unit of the mantissa; of Q8_0 half a step, of the 127 that the largest of a block has, and its scale.
        largest = max(abs(each) for each in want)
        limits = {0: (0, 0), 1: (2**-11, 2**-25), 30: (2**-8, 0), 8: (2**-11, largest / 127 * 0.51)}[stored]
        for a, b in zip(got, want, strict=True):
            if not abs(a - b) <= limits[0] * abs(b) + limits[1]:
                sys.exit(f"{name} {kind}: {theirs} has {a}, not {b}")
    if seen != set(values):
        sys.exit(f"{name}: not written: {set(values) - seen}")
    if ("rope_parameters" in config) != ("rope_freqs.weight" in file.tensors):
        sys.exit(f"{name}: rope_freqs")
    if "rope_parameters" in config:
        factors = file.numbers("rope_freqs.weight")
        if len(factors) != HEAD // 2 or factors[0] != 1 or factors[-1] != 8 or sorted(factors) != factors:
            sys.exit(f"{name}: {factors}")


def check_tokenizers(top):
    """What llama.cpp does not do is refused by name; the rest is written."""
    part = {"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    bos, eos = ({"SpecialToken": {"id": id, "type_id": 0}} for id in ("<s>", "</s>"))
    text = {"Sequence": {"id": "A", "type_id": 0}}

    def sequence(*parts):
        return {"type": "Sequence", "pretokenizers": list(parts)}

    def around(*items):
        return {"type": "TemplateProcessing", "single": list(items), "pair": [], "special_tokens": {}}

    def splitting(change):
        def changed(tokenizer):
            change(tokenizer["pre_tokenizer"]["pretokenizers"])
        return changed

    def of(key, value):
        return lambda tokenizer: tokenizer.update({key: value})

    deep = "[" * 200000 + "]" * 200000
    for name, change, wanted in (
            ("qwen2", of("pre_tokenizer", {**level, "use_regex": True}), {"tokenizer.ggml.pre": "gpt-2"}),
            ("qwen2", of("pre_tokenizer", {**level, "use_regex": True, "add_prefix_space": True}), "add_prefix_space"),
            ("qwen2", of("pre_tokenizer", level), "ByteLevel without use_regex"),
            ("qwen2", of("pre_tokenizer", sequence({"type": "Digits"}, {**level, "use_regex": True})),
             "split by Digits, ByteLevel"),
            ("qwen2", splitting(lambda parts: parts.insert(0, part)), "split by Split, Split, ByteLevel"),
            ("qwen2", splitting(lambda parts: parts[0].update(behavior="Removed")), "not Isolated, or inverted"),
            ("qwen2", splitting(lambda parts: parts[0].update(invert=True)), "not Isolated, or inverted"),
            ("qwen2", splitting(lambda parts: parts[1].update(use_regex=True)), "use_regex after a Split"),
            ("qwen2", splitting(lambda parts: parts[1].update(add_prefix_space=True)), "add_prefix_space"),
            ("qwen2", of("normalizer", {"type": "Lowercase"}), "the normalizer Lowercase"),
            ("llama2", of("normalizer", {"type": "Prepend", "prepend": "_"}), "the normalizer Prepend"),
            ("llama2", of("pre_tokenizer", {"type": "Whitespace"}), "split by Whitespace"),
            ("llama2", of("post_processor", around(bos, text, eos)),
             {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}),
            ("llama2", of("post_processor", around(text, eos)),
             {"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_eos_token": True}),
            ("llama2", of("post_processor", around(text)),
             {"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_eos_token": False}),
            ("llama2", of("post_processor", around(eos, text)), "'</s>' before a text"),
            ("llama2", of("post_processor", around(bos, bos, text)), "'<s>' before a text"),
            ("llama2", of("post_processor", around(text, bos)), "'<s>' after a text"),
            ("llama2", of("post_processor", around(bos)), "without the text"),
            ("llama2", of("post_processor", {"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]}),
             "the post_processor BertProcessing"),
            ("llama2", of("post_processor", deep), "nests more than 100 levels"),
            ("llama2", {"chat_template": [{"name": "tools", "template": "T"}, {"name": "default", "template": "D"}]},
             {"tokenizer.chat_template": "D"}),
            ("llama2", {"chat_template": [{"name": "tools", "template": "T"}]}, "none that is named default"),
            ("llama2", {"chat_template": deep}, "nests more than 100 levels")):
        folder, file = top / name, "tokenizer_config.json" if isinstance(change, dict) else "tokenizer.json"
        before = (folder / file).read_text()
        value = json.loads(before)
        value.update(change) if isinstance(change, dict) else change(value)
        (folder / file).write_text(json.dumps(value).replace(f'"{deep}"', deep))
        refused = isinstance(wanted, str)
        said = run("checkpoint", "export", str(folder), str(top / "x.gguf"), "--gguf", code=2 if refused else 0).stderr
        (folder / file).write_text(before)
        if refused and not (wanted in said and "bad-tokenizer" in said):
            sys.exit(f"{wanted}: {said}")
        if not refused:
            keys = Reader(top / "x.gguf").keys
            (top / "x.gguf").unlink()
            if any(keys.get(key) != each for key, each in wanted.items()):
                sys.exit(f"{wanted}: {keys}")


def compare_with_llama_cpp(name, folder, path):
    import xllamacpp
    prompt = "Every token counts, and so do 123 numbers"
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_predict, params.warmup = 128, 24, False
    server = xllamacpp.Server(params)
    theirs = server.handle_completions({"prompt": prompt, "temperature": 0.0, "max_tokens": 24, "cache_prompt": False})
    text, tokens = theirs["choices"][0]["text"], theirs["usage"]["prompt_tokens"]
    answer = json.loads(run("generate", str(folder), "--prompt", prompt, "--max-new-tokens", "24", "--json", "--dtype",
                            "float32", "--device", "cpu").stdout)["answers"][0]
    # Among bytes that are no text, tokenizers shows every one of a run as U+FFFD, llama.cpp only the wrong ones.
    whole = ["".join(letter for letter in each if " " <= letter != "\ufffd") for each in (text, answer["text"])]
    if whole[0] != whole[1] or tokens != answer["prompt_tokens"]:
        sys.exit(f"{name}: {answer['prompt_tokens']} tokens, then {answer['text']!r} here; {tokens}, then {text!r} in "
                 "llama.cpp")
    print(f"{name}: {len(answer['ids'])} tokens after {tokens} of the prompt as llama.cpp")


def main():
    if LLAMA:
        try:
            import xllamacpp  # noqa: F401
        except ImportError:
            print("no xllamacpp")
            sys.exit(77)
    with tempfile.TemporaryDirectory() as made:
        top = pathlib.Path(made)
        for name, (more, tokenizer, arch, splitting) in MODELS.items():
            config = {**BASE, **more}
            values = write_model(top / name, config, tokenizer)
            for kind in (["f32"] if LLAMA else TYPES):
                path = top / f"{name}-{kind}.gguf"
                run("checkpoint", "export", str(top / name), str(path), "--gguf", "--type", kind)
                if LLAMA:
                    compare_with_llama_cpp(name, top / name, path)
                else:
                    check_file(name, config, arch, splitting, values, path, kind)
        if LLAMA:
            return
        error = run("checkpoint", "export", str(top / "llama"), str(path), "--gguf", code=2).stderr
        if "exists" not in error:
            sys.exit(error)
        for key, value, said in (("model_type", "gpt2", "families that are written: llama"),
                                 ("sliding_window", 16, "slide over a window"), ("rope_scaling", {"rope_type": "dynamic", "factor": 2.0}, "rope_type dynamic")):
            config = {**BASE, **MODELS["mistral"][0], key: value}
            if key == "model_type":
                config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 1763}
            (top / "mistral" / "config.json").write_text(json.dumps(config))
            error = run("checkpoint", "export", str(top / "mistral"), str(top / "x.gguf"), "--gguf", code=2).stderr
            if said not in error or "unsupported-model" not in error:
                sys.exit(error)
        config = {**BASE, **MODELS["qwen2"][0], "rope_parameters": LLAMA3}
        (top / "mistral" / "config.json").write_text(json.dumps(config))
        error = run("checkpoint", "export", str(top / "mistral"), str(top / "x.gguf"), "--gguf", code=2).stderr
        if "rope_type llama3 of a model of type 'qwen2'" not in error:
            sys.exit(error)
        check_tokenizers(top)
        shutil.copy(TOKENIZERS / "bert" / "tokenizer.json", top / "qwen2" / "tokenizer.json")
        error = run("checkpoint", "export", str(top / "qwen2"), str(top / "x.gguf"), "--gguf", code=2).stderr
        if "bad-tokenizer" not in error:
            sys.exit(error)
        (top / "qwen2" / "tokenizer.json").unlink()
        said = run("checkpoint", "export", str(top / "qwen2"), str(top / "x.gguf"), "--gguf").stdout
        if "takes token ids only" not in said or list(top.glob("*.partial")):
            sys.exit(said)


main()
