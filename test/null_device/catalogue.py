"""The models of recipes/models at their widths, of few layers: what a run holds is what counts, not how long it takes."""
import json
import pathlib

MODELS = pathlib.Path(__file__).resolve().parent.parent.parent / "recipes/models"
# Planned by their sizes; with pictures only; of too many weights for a test.
LEFT_OUT = {"planned_only", "qwen2_5_vl", "gemma4", "minimax_m3", "mixtral"}
NARROW = 1600


def narrow_models(layers=4):
    """Name and configuration of the narrowest model of each file; of those that a test can hold, where they are deep."""
    for path in sorted(MODELS.glob("*.json")):
        if path.stem in LEFT_OUT:
            continue
        config = few_layers(path, layers)
        if layers <= 4 or config.get("hidden_size", NARROW + 1) <= NARROW:
            yield path.stem, config


def few_layers(path, layers):
    """The narrowest model of a catalogue file, cut to so many layers, 16 experts and 32,000 tokens."""
    entries = [entry["config"].get("text_config") or entry["config"] for entry in json.loads(path.read_text())]
    config = min(entries, key=lambda entry: entry.get("hidden_size", 1 << 30))
    whole = config.get("num_hidden_layers") or config.get("n_layer")
    for key, value in config.items():
        if isinstance(value, list) and len(value) == whole:
            config[key] = value[:layers]
        elif key in ("num_hidden_layers", "n_layer"):
            config[key] = layers
        elif key in ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts") and value:
            config[key] = min(value, 16)
        elif key == "vocab_size":
            config[key] = min(value, 32000)
        elif key in ("max_position_embeddings", "n_positions"):
            config[key] = max(value, 4096)
    if "hybrid_override_pattern" in config:
        config["hybrid_override_pattern"] = config["hybrid_override_pattern"][:7]
        config["num_hidden_layers"] = 7
    if config.get("num_nextn_predict_layers"):
        config["num_nextn_predict_layers"] = 0
    if (config.get("n_group") or 0) > 4:
        config.update(n_group=4, topk_group=2)
    return config
