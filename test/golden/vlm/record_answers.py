"""Records answers.jsonl: what transformers' models answer about pictures, token by token.

    python record_answers.py MODELS > answers.jsonl

MODELS: folders of the tiny models with generation_config.json and, for Gemma 3, processor_config.json, which the
folders here leave out. Greedy, in float32 on one thread, attention without fused kernels. `logits`: of the first four
ids behind the prompt. `margin`: the least difference of the two largest logits over all steps, in float32.
"""

import json
import pathlib
import sys

import torch
import transformers
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

HERE = pathlib.Path(__file__).parent
FAMILIES = "llava gemma3 gemma4 gemma4_moe minimax_m3_vl mistral3 muse_glimmer qwen2_5_vl qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe".split()
QUESTIONS = [
    (["t00.png"], "What is this?"),
    (["t03.png"], "What is this?"),
    (["t03.png", "t07.png"], "Which one is red?"),
    ([], "What is this?"),
]
TOKENS = 16


def answer(model, processor, pictures, text):
    content = [{"type": "image", "image": Image.open(HERE / "llava/pictures" / name).convert("RGB")} for name in pictures]
    messages = [{"role": "user", "content": content + [{"type": "text", "text": text}]}]
    inputs = processor.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    size = inputs["input_ids"].shape[1]
    with torch.no_grad():
        out = model.generate(
            **inputs, do_sample=False, max_new_tokens=TOKENS, output_logits=True, return_dict_in_generate=True
        )
    top = torch.stack([step[0].topk(2).values for step in out.logits])
    return {
        "pictures": pictures,
        "text": text,
        "prompt_tokens": size,
        "ids": out.sequences[0, size:].tolist(),
        "logits": [round(value, 5) for value in out.logits[0][0, :4].tolist()],
        "margin": round((top[:, 0] - top[:, 1]).min().item(), 5),
    }


torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
for family in FAMILIES:
    folder = pathlib.Path(sys.argv[1]) / family
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    processor = AutoProcessor.from_pretrained(folder)
    for pictures, text in QUESTIONS:
        print(json.dumps({"family": family} | answer(model, processor, pictures, text)))
