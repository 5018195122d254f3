"""Records step3p7: a tiny Step 3.7 with its processor, ten AdamW steps on the samples of llava, and sizes and pixels.

    python record_step.py

transformers 5.23, float32, one thread, eager attention. Weights are those that transformers draws, larger, with norms and
factors moved from where they begin; the tokenizer is qwen3_vl's with the tokens that this processor puts around pictures."""

import copy
import hashlib
import itertools
import json
import math
import pathlib

import tiny_tokenizer
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoProcessor, PreTrainedTokenizerFast, Step3p7Config, Step3p7ForConditionalGeneration
from transformers.models.step3p7.image_processing_step3p7 import Step3p7ImageProcessor
from transformers.models.step3p7.processing_step3p7 import Step3p7Processor

HERE = pathlib.Path(__file__).parent
OUT = HERE / "step3p7"
PAD, END = 316, 318
AROUND = ["<im_patch>", "<patch_start>", "<patch_end>", "<patch_newline>", "<im_start>", "<im_end>"]
SMALL = {"size": {"height": 32, "width": 32}, "patch_size": 24, "max_image_size": 44, "vision_patch_size": 2}
TEMPLATE = (
    "{%- for m in messages %}{{- '<|im_start|>' ~ m.role ~ '\\n' }}{%- if m.content is string %}{{- m.content }}"
    "{%- else %}{%- for item in m.content %}{{- '<im_patch>' if item.type == 'image' else item.text }}{%- endfor %}"
    "{%- endif %}{{- '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- endif %}"
)
KINDS = ["full_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
CONFIG = {
    "model_type": "step3p7", "architectures": ["Step3p7ForConditionalGeneration"], "projector_bias": False,
    "tie_word_embeddings": False, "understand_projector_stride": 2, "dtype": "float32",
    "vision_config": {"model_type": "perception_encoder", "width": 16, "layers": 2, "heads": 2, "mlp_ratio": 2.0,
                      "image_size": 32, "patch_size": 2, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
                      "ls_init_value": 0.1, "use_cls_token": False, "use_ln_pre": True, "use_ln_post": False,
                      "use_abs_posemb": True, "use_rope2d": True},
    "text_config": {
        "model_type": "step3p5", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_attention_groups": 2, "head_dim": 8, "vocab_size": 336, "moe_num_experts": 4,
        "moe_top_k": 2, "moe_intermediate_size": 16, "share_expert_dim": 24, "moe_router_activation": "sigmoid",
        "moe_router_scaling_factor": 2.0, "use_moe_router_bias": True, "norm_expert_weight": True, "use_qk_norm": True,
        "use_head_wise_attn_gate": True, "zero_centered": True, "moe_layers_enum": "1,2", "num_nextn_predict_layers": 1,
        "layer_types": KINDS, "sliding_window": 24, "rope_theta": [5e4, 1e4, 1e4, 5e4, 1e4],
        "partial_rotary_factors": [0.5, 1.0, 1.0, 0.5, 1.0], "yarn_only_types": ["full_attention"],
        "rope_scaling": {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 64,
                         "low_freq_factor": 1.0, "high_freq_factor": 32.0},
        "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "pad_token_id": PAD, "eos_token_id": END,
        "attention_other_setting": {"attention_type": "sliding_attention", "num_attention_heads": 6,
                                    "num_attention_groups": 2, "head_dim": 8},
        "swiglu_limits": [0.0, 0.5, 0.0, 0.0, 0.0], "swiglu_limits_shared": [0.0, 0.0, 0.7, 0.0, 0.0]},
}


def make_model(token, seed):
    torch.manual_seed(3)
    config = CONFIG | {"image_token_id": token}
    for name in ("config.json", "config.published.json"):  # the first is written again, as transformers spells it
        (OUT / name).write_text(json.dumps(config, indent=1))
    model = Step3p7ForConditionalGeneration(Step3p7Config.from_pretrained(OUT))
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, values in list(model.named_parameters()) + list(model.named_buffers()):
            noise = torch.rand(values.shape, generator=draw) * 2 - 1
            if "inv_freq" in name or "position_ids" in name:
                continue
            if "correction_bias" in name:
                values.copy_(0.2 * noise)
            elif "lambda" in name:
                values.copy_(0.7 + 0.3 * noise)
            elif values.ndim == 1:
                values.add_(0.17 * noise)
            else:
                fan = values[0].numel() if values.ndim != 3 else values.shape[-1]
                values.copy_(noise * (0.4 if "embed" in name else 1.7 / math.sqrt(fan)))
    model.save_pretrained(OUT)
    (OUT / "generation_config.json").unlink()


def open_model():
    return Step3p7ForConditionalGeneration.from_pretrained(OUT, dtype=torch.float32, attn_implementation="eager")


def rows(processor):
    """Two conversations to a batch. Answers and the tokens that end them are labels."""
    out = []
    for line in (HERE / "llava/samples.jsonl").read_text().splitlines():
        messages = json.loads(line)["conversation"]
        names = [part["image"] for m in messages for part in m["content"] if part["type"] == "image"]
        pictures = [Image.open(HERE / "llava" / name).convert("RGB") for name in names]
        text = processor.apply_chat_template(messages, tokenize=False)
        inputs = processor(text=[text], images=[pictures] if pictures else None)
        ids = list(inputs["input_ids"][0])
        begin = processor.tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
        labels, inside = [-100] * len(ids), False
        for i in range(len(ids)):
            if ids[max(i - len(begin), 0) : i] == begin:
                inside = True
            if inside:
                labels[i] = ids[i]
            inside = inside and ids[i] != END
        out.append({"input_ids": ids, "labels": labels, "pictures": names})
    return [out[i : i + 2] for i in range(0, 10, 2)]


def tensors(processor, batch):
    width = max(len(row["input_ids"]) for row in batch)
    fill = lambda key, with_: torch.tensor([row[key] + [with_] * (width - len(row[key])) for row in batch])
    out = {"input_ids": fill("input_ids", PAD), "labels": fill("labels", -100)}
    out["attention_mask"] = torch.tensor([[1] * len(r["input_ids"]) + [0] * (width - len(r["input_ids"])) for r in batch])
    pictures = [Image.open(HERE / "llava" / name).convert("RGB") for row in batch for name in row["pictures"]]
    if pictures:
        made = processor.image_processor(images=pictures, return_tensors="pt")
        out |= {key: made[key] for key in ("pixel_values", "pixel_values_local") if key in made}
        out["num_local_patches"] = made["num_local_patches"].tolist()
    return out


class Lora(torch.nn.Module):
    """A linear module and, beside it, the product of two matrices of rank 4 times 2, of which the second begins at 0."""

    def __init__(self, linear, first):
        super().__init__()
        self.linear, self.first = linear, torch.nn.Parameter(first)
        self.second = torch.nn.Parameter(torch.zeros(linear.out_features, first.shape[0]))

    def forward(self, x):
        return self.linear(x) + 2 * (x @ self.first.T @ self.second.T)


def adapted():
    """The model with adapters in its decoder, all else frozen; and their first matrices by our names of the modules."""
    model, draw, firsts = open_model().train().requires_grad_(False), torch.Generator().manual_seed(7), {}
    ends = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    for name, module in list(model.named_modules()):
        if "language_model" not in name or not name.endswith(ends):
            continue
        first = (torch.rand(4, module.in_features, generator=draw) * 2 - 1) / math.sqrt(module.in_features)
        parent, leaf = name.rsplit(".", 1)
        setattr(model.get_submodule(parent), leaf, Lora(module, first.clone()))
        firsts[name.replace("mlp.shared_experts", "share_expert") + ".lora_A.weight"] = first
    return model, firsts


def run(batches, order, clip, frozen, model=None):
    if model is None:
        model = open_model().train()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not (frozen and "vision" in name))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, betas=(0.9, 0.95),
                                  eps=1e-8, weight_decay=0.1, foreach=False)
    losses, norms = [], []
    for number in order:
        optimizer.zero_grad()
        loss = model(**batches[number], use_cache=False).loss
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), clip, foreach=False)))
        optimizer.step()
        losses.append(float(loss.detach()))
    with torch.no_grad():
        final = [float(model(**batch, use_cache=False).loss) for batch in batches]
    return {"losses": losses, "grad_norms": norms, "final_losses": final}


def gradients(batch):
    model = open_model().train()
    model(**batch, use_cache=False).loss.backward()
    other = copy.deepcopy(model)
    for mine, theirs in zip(other.parameters(), model.parameters()):
        mine.data = torch.zeros_like(theirs) if theirs.grad is None else theirs.grad.clone()
    folder = OUT / "gradients"
    other.save_pretrained(folder)
    out = {k: float(v.double().norm()) for k, v in sorted(load_file(folder / "model.safetensors").items())}
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    return {k: v for k, v in out.items() if not k.endswith("router_bias")}


def sizes_and_pixels():
    """Of pictures of many shapes: how they are cut; and of files: SHA-256 of the parts' pixels and then the whole's."""
    settings = ({}, SMALL, SMALL | {"resample": 1})  # the last with Lanczos's kernel
    usual, small, sharp = [Step3p7ImageProcessor(**each) for each in settings]
    cuts = []
    for processor, sides in ((usual, [1, 9, 31, 32, 100, 130, 405, 504, 600, 728, 729, 1009, 1110, 2500, 3024, 3025, 9000]),
                             (small, [1, 5, 16, 20, 24, 29, 32, 33, 44, 45, 53, 300])):
        for width in sides:
            for height in sides:
                planned = processor._plan_patches(width, height, processor.size["height"], processor.patch_size)
                reduced, cut, side, columns, rows, square = planned
                cuts.append([0 if processor is usual else 1, width, height, *reduced, *(cut if side else (0, 0)), side, columns, rows])
    pixels = []
    for name in ["llava/pictures/" + each for each in ("t00.png", "t01.png", "t03.png", "t04.png", "t06.png", "t09.png")]:
        picture = Image.open(HERE / name).convert("RGB")
        for number, processor in enumerate((usual, small, sharp)):
            for scale in (1, 20) if number == 0 else (1,):  # enlarged, as pictures above 728 pixels are cut
                given = picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)
                made = processor(images=[given], return_tensors="pt")
                parts = [made[key] for key in ("pixel_values_local", "pixel_values") if key in made]
                data = b"".join(part.contiguous().numpy().tobytes() for part in parts)
                pixels.append({"config": number, "file": name, "scale": scale, "sha256": hashlib.sha256(data).hexdigest()})
    return {"configs": [{"image_processor_type": "Step3p7ImageProcessor"} | c for c in settings], "cuts": cuts, "pixels": pixels}


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    token = tiny_tokenizer.write(OUT, AROUND, TEMPLATE, "<|im_end|>")
    settings = {"image_processor_type": "Step3p7ImageProcessor", "processor_class": "Step3p7Processor"} | SMALL
    (OUT / "preprocessor_config.json").write_text(json.dumps(settings, indent=1))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(OUT)
    processor = Step3p7Processor(Step3p7ImageProcessor(**SMALL), tokenizer, chat_template=TEMPLATE)
    kept = rows(processor)
    batches = [tensors(processor, batch) for batch in kept]
    order = [i % 5 for i in range(10)]
    for seed in range(5, 60):
        make_model(token, seed)
        apart = 0
        for frozen, lora, turn in itertools.product((False, True), (False, True), (0, 1)):
            if apart > 2e-5 or (frozen and lora):
                continue
            make = lambda: adapted()[0] if lora else open_model().train()
            runs, draw = [], torch.Generator().manual_seed(turn)
            for noise in (0, 1e-6):
                model = make()
                with torch.no_grad():
                    for each in model.parameters():
                        each.mul_(1 + noise * torch.randn(each.shape, generator=draw))
                if frozen:
                    model.model.vision_model.requires_grad_(False)
                runs.append(run(batches, order, math.inf, False, model))
            apart = max([apart] + [abs(x - y) for key in ("losses", "final_losses") for x, y in zip(runs[0][key], runs[1][key])])
        print(f"seed {seed}: weights with noise of 1e-6 are {apart:.1e} apart", flush=True)
        if apart < 2e-5:  # else rounding decides: a choice of experts, a clamp
            break
    with_adapters, firsts = adapted()
    save_file(firsts, OUT / "lora.safetensors")
    frozen = sorted(name for name in load_file(OUT / "model.safetensors") if name.startswith("vision_model."))
    reference = {
        "batches": kept, "batch_of_step": order, "pad_id": PAD, "position_ids": {}, "frozen_on_disk": frozen,
        "train": {"adamw": run(batches, order, math.inf, False), "adamw_clip1": run(batches, order, 1.0, False),
                  "adamw_frozen_vision": run(batches, order, math.inf, True),
                  "lora": run(batches, order, math.inf, False, with_adapters)},
        "grad_norms": gradients(batches[1]),
    }
    (OUT / "reference.json").write_text(json.dumps(reference, separators=(",", ":")))
    (OUT / "pictures.json").write_text(json.dumps(sizes_and_pixels(), separators=(",", ":")))
    print(reference["train"]["adamw"], [[len(r["input_ids"]) for r in b] for b in kept])


main()
