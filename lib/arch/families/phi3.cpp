#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 4096;
  defaults.norm_eps = 1e-5;
  read_decoder(config, spec, defaults);
  read_uniform_window(config, spec, 0);
  spec.embedding_dropout = config.number({"embd_pdrop"}, 0.0);
  spec.residual_dropout = config.number({"resid_pdrop"}, 0.0);
}

void lay_out_layer(const ModelSpec& spec, bool /*moe*/, LayerBuilder& layer) {
  const auto query = std::int64_t{spec.heads} * spec.head_dim;
  const auto key = std::int64_t{spec.kv_heads} * spec.head_dim;
  layer.norm("input_layernorm", spec.hidden);
  layer.linear("self_attn.qkv_proj", spec.hidden, query + 2 * key, false, Role::kAttention);
  layer.linear("self_attn.o_proj", query, spec.hidden, false, Role::kAttention);
  layer.norm("post_attention_layernorm", spec.hidden);
  layer.linear("mlp.gate_up_proj", spec.hidden, std::int64_t{2} * spec.ffn, false, Role::kMlp);
  layer.linear("mlp.down_proj", spec.ffn, spec.hidden, false, Role::kMlp);
}

}  // namespace

extern const Family kPhi3 = {"phi3", "Phi3ForCausalLM", "Phi 3 and 4: Llama with fused projections and LongRoPE", read,
                             lay_out_layer};

}  // namespace automodel::arch
