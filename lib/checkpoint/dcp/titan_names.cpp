#include "checkpoint/dcp/titan_names.h"

#include <array>

namespace automodel::checkpoint {
namespace {

struct Row {
  std::string_view titan, hugging_face;
  bool rotated = false;
};

constexpr std::array kEnds = {Row{"tok_embeddings.weight", "model.embed_tokens.weight"},
                              Row{"norm.weight", "model.norm.weight"}, Row{"output.weight", "lm_head.weight"},
                              Row{"lm_head.weight", "lm_head.weight"}};
// "attention.wq" until 2025, "attention.qkv_linear.wq" since.
constexpr std::array kOfLayers = {Row{"attention.wq.", "self_attn.q_proj.", true},
                                  Row{"attention.wk.", "self_attn.k_proj.", true},
                                  Row{"attention.wv.", "self_attn.v_proj."},
                                  Row{"attention.qkv_linear.wq.", "self_attn.q_proj.", true},
                                  Row{"attention.qkv_linear.wk.", "self_attn.k_proj.", true},
                                  Row{"attention.qkv_linear.wv.", "self_attn.v_proj."},
                                  Row{"attention.wo.", "self_attn.o_proj."},
                                  Row{"attention.q_norm.", "self_attn.q_norm."},
                                  Row{"attention.k_norm.", "self_attn.k_norm."},
                                  Row{"feed_forward.w1.", "mlp.gate_proj."},
                                  Row{"feed_forward.w2.", "mlp.down_proj."},
                                  Row{"feed_forward.w3.", "mlp.up_proj."},
                                  Row{"attention_norm.", "input_layernorm."},
                                  Row{"ffn_norm.", "post_attention_layernorm."}};

}  // namespace

bool has_titan_names(std::string_view model_type) {
  return model_type == "llama" || model_type == "qwen3";
}

std::optional<Renamed> from_titan(std::string_view name, std::string_view model_type) {
  for (const auto& row : kEnds)
    if (row.titan == name) return Renamed{std::string(row.hugging_face)};
  constexpr std::string_view kLayers = "layers.";
  const auto dot = name.find('.', kLayers.size());
  if (!name.starts_with(kLayers) || dot == std::string_view::npos) return std::nullopt;
  const auto rest = name.substr(dot + 1);
  for (const auto& row : kOfLayers)
    if (rest.starts_with(row.titan))
      return Renamed{"model." + std::string(name.substr(0, dot + 1)) + std::string(row.hugging_face) +
                         std::string(rest.substr(row.titan.size())),
                     row.rotated && model_type == "llama"};  // Qwen3's RoPE takes halves there too
  return std::nullopt;
}

std::optional<Renamed> to_titan(std::string_view name, std::string_view model_type) {
  std::optional<Renamed> out;  // the last row is today's name
  for (const auto& row : kEnds)
    if (row.hugging_face == name) out = {std::string(row.titan)};
  constexpr std::string_view kModel = "model.", kLayers = "model.layers.";
  const auto dot = name.starts_with(kLayers) ? name.find('.', kLayers.size()) : std::string_view::npos;
  if (dot == std::string_view::npos) return out;
  const auto rest = name.substr(dot + 1);
  for (const auto& row : kOfLayers)
    if (rest.starts_with(row.hugging_face))
      out = {std::string(name.substr(kModel.size(), dot + 1 - kModel.size())) + std::string(row.titan) +
                 std::string(rest.substr(row.hugging_face.size())),
             row.rotated && model_type == "llama"};
  return out;
}

}  // namespace automodel::checkpoint
