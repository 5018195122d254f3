"""Models of families whose classes come with their checkpoints and not with transformers, written from their description.

Imported by record.py --classes; makes them known to transformers under the names that a config.json has. What they
compute equals NeMo AutoModel's classes of these families (losses within 1e-6 of each other when they were recorded)."""
import torch
import torch.nn.functional as F
import transformers
from torch import nn
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import Concatenate, MergeModulelist, WeightConverter, WeightRenaming
from transformers.modeling_outputs import CausalLMOutputWithPast


class RmsNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class Mlp(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(width, inner, False), nn.Linear(width, inner, False)
        self.down_proj = nn.Linear(inner, width, False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def turn(x, theta, width):
    """The first `width` elements of heads [rows, heads, tokens, size], halves against each other."""
    angle = torch.outer(torch.arange(x.shape[2], dtype=torch.float32), 1 / theta ** (torch.arange(0, width, 2).float() / width))
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., : width // 2], x[..., width // 2 : width]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., width:]], -1)


def attend(q, k, v):
    """Causal, [rows, heads, tokens, size]; fewer heads of keys and values serve runs of those of queries."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return (scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v).transpose(1, 2).flatten(2)


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


class Decoder(nn.Module):
    """`embedding`: the name of the table on disk."""

    def __init__(self, c, layers, embedding="embed_tokens"):
        super().__init__()
        self.add_module(embedding, nn.Embedding(c.vocab_size, c.hidden_size, getattr(c, "pad_token_id", None)))
        self.layers = nn.ModuleList(layers)
        self.norm = RmsNorm(c.hidden_size, c.rms_norm_eps)
        self.embedding = embedding

    def forward(self, ids):
        x = getattr(self, self.embedding)(ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class CausalModel(transformers.PreTrainedModel):
    _supports_sdpa = True

    def __init__(self, config):
        super().__init__(config)
        self.model = self.decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, False)
        self.post_init()

    def logits(self, ids):
        return self.lm_head(self.model(ids))

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.data.normal_(0, self.config.initializer_range)

    def forward(self, input_ids, labels=None, **_):
        logits = self.logits(input_ids)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        return CausalLMOutputWithPast(loss=loss, logits=logits)


# ---- Ling 2 (bailing_moe) -------------------------------------------------------------------------------------------

class BailingMoeConfig(transformers.PretrainedConfig):
    model_type = "bailing_moe"


class BailingAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, size = c, c.head_dim
        rows = (c.num_attention_heads + 2 * c.num_key_value_heads) * size
        self.query_key_value = nn.Linear(c.hidden_size, rows, c.use_qkv_bias)
        self.query_layernorm, self.key_layernorm = RmsNorm(size, c.rms_norm_eps), RmsNorm(size, c.rms_norm_eps)
        self.dense = nn.Linear(c.num_attention_heads * size, c.hidden_size, c.use_bias)

    def forward(self, x):
        c = self.c
        q, k, v = self.query_key_value(x).split([n * c.head_dim for n in (c.num_attention_heads, *[c.num_key_value_heads] * 2)], -1)
        q, k, v = heads(q, c.num_attention_heads), heads(k, c.num_key_value_heads), heads(v, c.num_key_value_heads)
        width = int(c.head_dim * c.partial_rotary_factor)
        q, k = (turn(norm(t), c.rope_theta, width) for t, norm in ((q, self.query_layernorm), (k, self.key_layernorm)))
        return self.dense(attend(q, k, v))


class BailingGate(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.weight = nn.Parameter(torch.randn(c.num_experts, c.hidden_size) * c.initializer_range)
        self.register_buffer("expert_bias", torch.zeros(c.num_experts))

    def forward(self, x):
        c, scores = self.c, torch.sigmoid(F.linear(x, self.weight))
        choice = (scores + self.expert_bias).unflatten(-1, (c.n_group, -1))
        best = choice.topk(2, -1).values.sum(-1).topk(c.topk_group, -1).indices
        kept = torch.zeros(choice.shape[:-1], dtype=torch.bool).scatter(-1, best, True)
        experts = choice.masked_fill(~kept.unsqueeze(-1), float("-inf")).flatten(-2).topk(c.num_experts_per_tok, -1).indices
        weights = scores.gather(-1, experts)
        return experts, weights / (weights.sum(-1, True) + 1e-20) * c.routed_scaling_factor


class BailingExperts(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate = BailingGate(c)
        self.experts = nn.ModuleList(Mlp(c.hidden_size, c.moe_intermediate_size) for _ in range(c.num_experts))
        self.shared_experts = Mlp(c.hidden_size, c.moe_intermediate_size * c.num_shared_experts)

    def forward(self, x):
        experts, weights = self.gate(x)
        out = self.shared_experts(x)
        for number, expert in enumerate(self.experts):
            out = out + expert(x) * (weights * (experts == number)).sum(-1, True)
        return out


class BailingLayer(nn.Module):
    def __init__(self, c, number):
        super().__init__()
        self.attention = BailingAttention(c)
        self.mlp = Mlp(c.hidden_size, c.intermediate_size) if number < c.first_k_dense_replace else BailingExperts(c)
        self.input_layernorm, self.post_attention_layernorm = (RmsNorm(c.hidden_size, c.rms_norm_eps) for _ in range(2))

    def forward(self, x):
        x = x + self.attention(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class BailingMoeV2ForCausalLM(CausalModel):
    config_class = BailingMoeConfig

    def decoder(self, c):
        return Decoder(c, (BailingLayer(c, i) for i in range(c.num_hidden_layers)), "word_embeddings")


# ---- Baichuan 2 -----------------------------------------------------------------------------------------------------

class BaichuanConfig(transformers.PretrainedConfig):
    model_type = "baichuan"


class BaichuanAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.count = c.num_attention_heads
        self.W_pack = nn.Linear(c.hidden_size, 3 * c.hidden_size, False)
        self.o_proj = nn.Linear(c.hidden_size, c.hidden_size, False)

    def forward(self, x):
        q, k, v = (heads(t, self.count) for t in self.W_pack(x).chunk(3, -1))
        return self.o_proj(attend(turn(q, 10000.0, q.shape[-1]), turn(k, 10000.0, k.shape[-1]), v))


class BaichuanLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn, self.mlp = BaichuanAttention(c), Mlp(c.hidden_size, c.intermediate_size)
        self.input_layernorm, self.post_attention_layernorm = (RmsNorm(c.hidden_size, c.rms_norm_eps) for _ in range(2))

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class BaichuanForCausalLM(CausalModel):
    config_class = BaichuanConfig

    def decoder(self, c):
        return Decoder(c, (BaichuanLayer(c) for _ in range(c.num_hidden_layers)))

    def logits(self, ids):
        return F.linear(self.model(ids), F.normalize(self.lm_head.weight))


# ---- Llama-Nemotron Super (nemotron-nas) ------------------------------------------------------------------------------

class DeciLMConfig(transformers.PretrainedConfig):
    model_type = "nemotron-nas"


class DeciLMAttention(nn.Module):
    def __init__(self, c, group):
        super().__init__()
        self.count, self.theta, self.kv = c.num_attention_heads, c.rope_theta, c.num_attention_heads // group
        self.q_proj = nn.Linear(c.hidden_size, c.hidden_size, False)
        self.k_proj, self.v_proj = (nn.Linear(c.hidden_size, c.hidden_size // group, False) for _ in range(2))
        self.o_proj = nn.Linear(c.hidden_size, c.hidden_size, False)

    def forward(self, x):
        q, k, v = heads(self.q_proj(x), self.count), heads(self.k_proj(x), self.kv), heads(self.v_proj(x), self.kv)
        return self.o_proj(attend(turn(q, self.theta, q.shape[-1]), turn(k, self.theta, k.shape[-1]), v))


class DeciLMLayer(nn.Module):
    """Llama's, without what block_configs calls no_op, which has no norm then either."""
    def __init__(self, c, block):
        super().__init__()
        self.self_attn = self.mlp = None
        if not block["attention"].get("no_op"):
            self.input_layernorm = RmsNorm(c.hidden_size, c.rms_norm_eps)
            self.self_attn = DeciLMAttention(c, block["attention"]["n_heads_in_group"])
        if not block["ffn"].get("no_op"):
            inner = int(2 * block["ffn"]["ffn_mult"] * c.hidden_size / 3)
            self.post_attention_layernorm = RmsNorm(c.hidden_size, c.rms_norm_eps)
            self.mlp = Mlp(c.hidden_size, -(-inner // 256) * 256)

    def forward(self, x):
        x = x if self.self_attn is None else x + self.self_attn(self.input_layernorm(x))
        return x if self.mlp is None else x + self.mlp(self.post_attention_layernorm(x))


class DeciLMForCausalLM(CausalModel):
    config_class = DeciLMConfig

    def decoder(self, c):
        return Decoder(c, (DeciLMLayer(c, block) for block in c.block_configs))


class MuseGlimmerTextForCausalLM(transformers.MuseGlimmerPreTrainedModel):
    """transformers has the text model within MuseGlimmerForConditionalGeneration only; this is its decoder and head."""
    config_class = transformers.MuseGlimmerTextConfig

    def __init__(self, config):
        super().__init__(config)
        self.model = transformers.MuseGlimmerTextModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, False)
        self.post_init()

    def forward(self, input_ids, labels, **rest):
        c = self.config
        x = self.lm_head(self.model(input_ids=input_ids, **rest).last_hidden_state) * c.output_multiplier
        logits = torch.tanh(x / c.final_logit_softcapping) * c.final_logit_softcapping
        return CausalLMOutputWithPast(loss=self.loss_function(logits, labels, c.vocab_size), logits=logits)


# ---- Step 3.5 -------------------------------------------------------------------------------------------------------

class Step3p5ForCausalLM(CausalModel):
    """transformers' text model, which it has in a model with pictures only. Experts apart, as this program holds them."""
    config_class = transformers.Step3p7TextConfig

    def __init__(self, config):
        super().__init__(config)
        self.model.config._attn_implementation = "eager"

    def decoder(self, c):
        return transformers.Step3p7TextModel._from_config(c, attn_implementation="eager")

    def logits(self, ids):
        return self.lm_head(self.model(ids, use_cache=False).last_hidden_state)

    def _init_weights(self, module):
        self.model._init_weights(module)


register_checkpoint_conversion_mapping("Step3p5ForCausalLM", [
    WeightRenaming(r"\.moe\.gate\.weight", ".mlp.gate.weight"),
    WeightRenaming(r"\.moe\.router_bias", ".mlp.gate.e_score_correction_bias"),
    WeightRenaming(r"\.share_expert\.", ".mlp.shared_experts."),
    WeightConverter(["moe.experts.*.gate_proj.weight", "moe.experts.*.up_proj.weight"], "mlp.experts.gate_up_proj",
                    [MergeModulelist(dim=0), Concatenate(dim=1)]),
    WeightConverter("moe.experts.*.down_proj.weight", "mlp.experts.down_proj", [MergeModulelist(dim=0)]),
])
setattr(transformers, "Step3p5ForCausalLM", Step3p5ForCausalLM)

# MiniMax-M3's text model as its published folders name it, experts and gates apart, as this program holds them.
register_checkpoint_conversion_mapping("minimax_m3_vl_text", [
    WeightRenaming(r"\.block_sparse_moe\.(experts|gate|shared_experts)\.", r"\.mlp\.\1\."),
    WeightRenaming(r"\.block_sparse_moe\.e_score_correction_bias", r"\.mlp\.gate\.e_score_correction_bias"),
    *(WeightRenaming(rf"\.self_attn\.index_{name}\.", f".self_attn.indexer.{name}.")
      for name in ("q_proj", "k_proj", "q_norm", "k_norm")),
    WeightConverter([r"\.experts.*.w1.weight", r"\.experts.*.w3.weight"], r"\.experts.gate_up_proj",
                    [MergeModulelist(dim=0), Concatenate(dim=1)]),
    WeightConverter(r"\.experts.*.w2.weight", r"\.experts.down_proj", [MergeModulelist(dim=0)]),
    WeightConverter([r"\.gate_proj.weight", r"\.up_proj.weight"], r"\.gate_up_proj.weight", [Concatenate(dim=0)]),
])

for config, model in ((BailingMoeConfig, BailingMoeV2ForCausalLM), (BaichuanConfig, BaichuanForCausalLM),
                      (DeciLMConfig, DeciLMForCausalLM),
                      (transformers.MuseGlimmerTextConfig, MuseGlimmerTextForCausalLM)):
    transformers.AutoConfig.register(config.model_type, config, exist_ok=True)
    setattr(transformers, model.__name__, model)
