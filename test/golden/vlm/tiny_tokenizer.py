"""The tokenizer of a recorded model: qwen3_vl's with further tokens."""

import json
import pathlib

HERE = pathlib.Path(__file__).parent


def write(folder, added, template, end, **more):
    """Writes tokenizer.json, tokenizer_config.json and the chat template; returns the id of the first token of `added`."""
    tokenizer = json.loads((HERE / "qwen3_vl/tokenizer.json").read_text())
    first = max(each["id"] for each in tokenizer["added_tokens"]) + 1
    for number, name in enumerate(added):
        tokenizer["added_tokens"].append(tokenizer["added_tokens"][0] | {"id": first + number, "content": name})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 4096, "eos_token": end,
                "pad_token": "<|endoftext|>", "clean_up_tokenization_spaces": False} | more
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
    (folder / "chat_template.jinja").write_text(template)
    return first
