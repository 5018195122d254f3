#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace gpt_neox {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.norm_key = "layer_norm_eps";
  defaults.norm_eps = 1e-5;
  defaults.partial_rotary = config.number({"rotary_pct"}, 0.25);
  defaults.rope_theta = config.number({"rotary_emb_base"}, 10000.0);
  defaults.activation = "gelu";
  read_decoder(config, spec, defaults);
  spec.kv_heads = spec.heads;
  spec.norm = NormKind::kLayerNorm;
  spec.norm_bias = true;
  spec.parallel_blocks = config.boolean({"use_parallel_residual"}, true);
  spec.gated_mlp = false;
  spec.qkv_order = QkvOrder::kGroups;
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, true);
  spec.mlp_bias = true;
  spec.residual_dropout = config.number({"hidden_dropout"}, 0.0);
  config.ignore({"classifier_dropout"});
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(
      spec, layer, {},
      [](const ModelSpec& of, LayerBuilder& to) {
        to.linear(Part::kUp, "mlp.dense_h_to_4h", of.hidden, of.ffn, true);
        to.linear(Part::kDown, "mlp.dense_4h_to_h", of.ffn, of.hidden, true);
      },
      [](const ModelSpec& of, LayerBuilder& to) {
        const auto width = std::int64_t{of.heads} * of.head_dim;
        to.linear(Part::kQkv, "attention.query_key_value", of.hidden, 3 * width, of.qkv_bias);
        to.linear(Part::kAttentionOut, "attention.dense", width, of.hidden, of.output_bias);
      });
}

void lay_out_names(const ModelSpec& spec, Layout& layout) {
  lay_out_ends(spec, layout,
               {.base = "gpt_neox", .embedding = "embed_in", .norm = "final_layer_norm", .head = "embed_out"});
}

}  // namespace gpt_neox

extern const Family kGptNeox = {"gpt_neox",
                                "GPTNeoXForCausalLM",
                                "GPT-NeoX, Pythia: parallel blocks with a LayerNorm each, joined projections by head",
                                gpt_neox::read,
                                gpt_neox::lay_out_layer,
                                kNoTensorPlan,
                                gpt_neox::lay_out_names};

}  // namespace automodel::arch
