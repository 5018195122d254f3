#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/rope_config.h"
#include "base/expert_number.h"

namespace automodel::arch {
namespace deepseek_v4 {

constexpr std::string_view kSparse = "compressed_sparse_attention", kHeavy = "heavily_compressed_attention",
                           kWindow = "sliding_attention";

/// Rates by layer: `layer_types` with `compress_rates`, or `compress_ratios` as published, whose numbers stand for the
/// kinds. Source of the default: DeepseekV4Config of transformers 5.23.
void read_rates(ConfigReader& config, const ModelSpec& spec, CompressedAttention& out) {
  int sparse = 4, heavy = 128;
  if (auto rates = config.child("compress_rates")) {
    sparse = rates->integer({kSparse}, sparse, 1, kMostPositions);
    heavy = rates->integer({kHeavy}, heavy, 1, kMostPositions);
  }
  sparse = config.integer({"compress_rate_csa"}, sparse, 1, kMostPositions);
  heavy = config.integer({"compress_rate_hca"}, heavy, 1, kMostPositions);
  if (sparse == heavy)
    config.bad_value("compress_rates", fmt::format("both kinds of compressed attention have the rate {}", sparse),
                     "the rates must differ");
  out.sparse_rate = sparse;
  const auto types = names_of_layers(config, spec, "layer_types", {kWindow, kSparse, kHeavy});
  const auto numbers = config.integers("compress_ratios");
  for (int layer = 0; layer < spec.layers; ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    if (!types.empty()) {
      out.rates.push_back(types[at] == kSparse ? sparse : types[at] == kHeavy ? heavy : 0);
    } else if (at < numbers.size()) {
      const bool known = numbers[at] == 0 || numbers[at] == 4 || numbers[at] == 128;
      if (!known) {
        config.bad_value("compress_ratios", fmt::format("'compress_ratios' has {} for layer {}", numbers[at], layer),
                         "it must be 0, 4 or 128");
        out.rates.resize(static_cast<std::size_t>(spec.layers), 0);
        return;
      }
      out.rates.push_back(numbers[at] == 4 ? sparse : numbers[at] == 128 ? heavy : 0);
    } else {
      out.rates.push_back(layer >= 2 && layer % 2 == 1 ? sparse : heavy);
    }
  }
  if (!numbers.empty() && types.empty() && numbers.size() < static_cast<std::size_t>(spec.layers))
    config.bad_value("compress_ratios", fmt::format("'compress_ratios' has {} numbers", numbers.size()),
                     fmt::format("it must have one for each of the {} layers", spec.layers));
}

/// RoPE of layers without compression, and of the others with their entries. transformers 5 writes them as "main" and
/// "compress"; published configs have the settings of the second beside compress_rope_theta.
void read_ropes(ConfigReader& config, ModelSpec& spec, double partial) {
  const double theta = config.number({"compress_rope_theta"}, 160000.0);
  const RopeDefaults defaults{10000.0, spec.head_dim, spec.max_positions, partial};
  auto scaling = rope_settings(config);
  if (scaling && scaling->has("compress")) {
    spec.sliding_rope = read_rope(config, defaults, "main");
    spec.rope = read_rope(config, defaults, "compress");
  } else {
    spec.rope = read_rope(config, defaults);
    spec.sliding_rope =
        Rope{.theta = config.number({"rope_theta"}, defaults.theta), .rotary_dim = spec.rope.rotary_dim};
    spec.rope.theta = theta;
    // Not multiplied into cosines and sines, as DeepSeek's own code does not.
    if (spec.rope.kind == RopeKind::kYarn && !spec.rope.attention_factor) spec.rope.attention_factor = 1.0;
  }
  spec.rope.interleaved = spec.sliding_rope->interleaved = true;
}

void read_attention(ConfigReader& config, ModelSpec& spec) {
  auto& out = spec.compressed.emplace();
  out.q_rank = config.integer({"q_lora_rank"}, 1024, 1, kMostWidth);
  out.output_groups = config.integer({"o_groups"}, 8, 1, kMostWidth);
  out.output_rank = config.integer({"o_lora_rank"}, 1024, 1, kMostWidth);
  out.index_heads = config.integer({"index_n_heads"}, 64, 1, kMostWidth);
  out.index_dim = config.integer({"index_head_dim"}, 128, 1, kMostWidth);
  out.top_k = config.integer({"index_topk"}, 512, 1, kMostPositions);
  read_rates(config, spec, out);
  if (spec.kv_heads != 1)
    config.bad_value("num_key_value_heads", fmt::format("'num_key_value_heads' is {}", spec.kv_heads),
                     "all heads of this family share one key");
  if (spec.heads % out.output_groups != 0)
    config.refuse("indivisible", "o_groups")
        .says("num_attention_heads {} is not a multiple of o_groups {}", spec.heads, out.output_groups)
        .hint("each group has the same number of heads");
  if (out.index_dim < spec.rope.rotary_dim)
    config.bad_value("index_head_dim", fmt::format("'index_head_dim' is {}", out.index_dim),
                     fmt::format("RoPE rotates {} channels of it", spec.rope.rotary_dim));
  for (const auto* key : {"attention_bias", "mlp_bias"})
    if (config.boolean({key}, false))
      config.bad_value(key, fmt::format("'{}' is true", key), "linear layers of this family have no biases");
}

void read_moe(ConfigReader& config, ModelSpec& spec) {
  auto& moe = read_experts(config, spec, {"n_routed_experts", "num_local_experts"}, 0.001);
  moe.ffn = moe.shared_ffn = spec.ffn;
  moe.correction_bias = true;
  moe.normalize_added = 1e-20;
  moe.scaling = config.number({"routed_scaling_factor"}, 1.5);
  moe.swiglu_limit = config.number({"swiglu_limit"}, 10.0);
  const auto score = config.text({"scoring_func"}, "sqrtsoftplus");
  constexpr std::array<std::pair<std::string_view, RouterScore>, 3> kScores = {
      {{"sqrtsoftplus", RouterScore::kSqrtSoftplus},
       {"sigmoid", RouterScore::kSigmoid},
       {"softmax", RouterScore::kSoftmax}}};
  const auto found = std::ranges::find(kScores, score, &std::pair<std::string_view, RouterScore>::first);
  if (found == kScores.end())
    config.bad_value("scoring_func", fmt::format("unknown score '{}'", score), "known: sqrtsoftplus, sigmoid, softmax");
  else
    moe.score = found->second;
  if (moe.output_router_logits)
    config.bad_value("output_router_logits", "the auxiliary loss is not supported in this family", "leave it out");
  const auto types = names_of_layers(config, spec, "mlp_layer_types", {"hash_moe", "moe"});
  const int first = config.integer({"num_hash_layers"}, 3, 0, kMostLayers);
  for (int layer = 0; layer < spec.layers; ++layer)
    moe.table_layers.push_back(types.empty() ? layer < first : types[static_cast<std::size_t>(layer)] == "hash_moe");
  if (moe.experts > kMostNumberedExperts && std::ranges::find(moe.table_layers, true) != moe.table_layers.end())
    config.bad_value("n_routed_experts", fmt::format("'n_routed_experts' is {}", moe.experts),
                     fmt::format("a table of tokens numbers at most {} experts", kMostNumberedExperts));
  check_experts(config, spec);
}

/// Source: DeepseekV4Config of transformers 5.23; published configs have its older keys.
void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 1048576;
  defaults.rope_theta = 0;
  defaults.vocab = 129280;
  defaults.layers = 43;
  defaults.heads = 64;
  defaults.kv_heads = 1;
  defaults.head_dim = 512;
  defaults.ffn_key = "moe_intermediate_size";
  config.ignore({"n_shared_experts", "norm_topk_prob", "topk_method", "router_jitter_noise", "intermediate_size",
                 "pretraining_tp", "expert_dtype", "n_group", "topk_group"});
  read_decoder(config, spec, defaults);
  const int rotated = config.integer({"qk_rope_head_dim"}, 64, 1, kMostWidth);
  const double partial = config.number({"partial_rotary_factor"}, static_cast<double>(rotated) / spec.head_dim);
  read_ropes(config, spec, partial);
  spec.norm_scale = NormScale::kInFloat;
  spec.attention_sinks = true;
  spec.sliding_window = config.integer({"sliding_window"}, 128, 1, kMostPositions);
  spec.attention.assign(static_cast<std::size_t>(spec.layers), LayerAttention::kSliding);
  read_attention(config, spec);
  auto& hyper = spec.hyper.emplace();
  hyper.streams = config.integer({"hc_mult"}, 4, 1, 64);
  hyper.iterations = config.integer({"hc_sinkhorn_iters"}, 20, 1, 1000);
  hyper.eps = config.number({"hc_eps"}, 1e-6);
  read_moe(config, spec);
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"}, 1, 0, kMostLayers);
}

void lay_out_streams(const ModelSpec& spec, LayerBuilder& layer, const std::array<Part, 3>& parts,
                     const std::string& name) {
  const std::int64_t count = spec.hyper->streams, weights = count * (count + 2);
  layer.numbers(parts[0], name + "_fn", {weights, count * spec.hidden}, Initial::kNormal);
  layer.numbers(parts[1], name + "_base", {weights}, Initial::kZero);
  layer.numbers(parts[2], name + "_scale", {3}, Initial::kOne);
}

/// What entries of `width` channels are made of. Layers of the sparse kind have two series of them.
void lay_out_entries(const ModelSpec& spec, int number, LayerBuilder& layer, const std::array<Part, 4>& parts,
                     const std::string& module, std::int64_t width) {
  const std::int64_t wide = spec.compressed->is_sparse(number) ? 2 * width : width;
  layer.linear(parts[0], module + ".wkv", spec.hidden, wide);
  layer.linear(parts[1], module + ".wgate", spec.hidden, wide);
  layer.numbers(parts[2], module + ".ape", {spec.compression(number), wide}, Initial::kZero);
  layer.norm(parts[3], module + ".norm", width);
}

void lay_out_attention(const ModelSpec& spec, int number, LayerBuilder& layer) {
  const auto& attention = *spec.compressed;
  const std::int64_t heads = std::int64_t{spec.heads} * spec.head_dim,
                     low = std::int64_t{attention.output_groups} * attention.output_rank;
  layer.numbers(Part::kSinks, "attn.attn_sink", {spec.heads}, Initial::kZero);
  layer.linear(Part::kQueryDown, "attn.wq_a", spec.hidden, attention.q_rank);
  layer.norm(Part::kQueryDownNorm, "attn.q_norm", attention.q_rank);
  layer.linear(Part::kQueryUp, "attn.wq_b", attention.q_rank, heads);
  layer.linear(Part::kKeyValueDown, "attn.wkv", spec.hidden, spec.head_dim);
  layer.norm(Part::kKeyValueDownNorm, "attn.norm", spec.head_dim);
  layer.linear(Part::kOutDown, "attn.wo_a", heads / attention.output_groups, low);
  layer.linear(Part::kAttentionOut, "attn.wo_b", low, spec.hidden);
  if (spec.compression(number) == 0) return;
  lay_out_entries(spec, number, layer, {Part::kEntryValue, Part::kEntryLogits, Part::kEntryBias, Part::kEntryNorm},
                  "attn.compressor", spec.head_dim);
  if (!attention.is_sparse(number)) return;
  layer.linear(Part::kIndexQuery, "attn.indexer.wq_b", attention.q_rank,
               std::int64_t{attention.index_heads} * attention.index_dim);
  layer.linear(Part::kIndexWeights, "attn.indexer.weights_proj", spec.hidden, attention.index_heads);
  lay_out_entries(spec, number, layer,
                  {Part::kIndexEntryValue, Part::kIndexEntryLogits, Part::kIndexEntryBias, Part::kIndexEntryNorm},
                  "attn.indexer.compressor", attention.index_dim);
}

void lay_out_moe(const ModelSpec& spec, int number, LayerBuilder& layer) {
  const auto& moe = *spec.moe;
  layer.linear(Part::kRouter, "ffn.gate", spec.hidden, moe.experts);
  if (spec.has_expert_table(number))
    layer.tensor(Part::kRouterTable, "ffn.gate.tid2eid",
                 {.name = "ffn.gate.tid2eid",
                  .shape = {spec.vocab, moe.top_k},
                  .trainable = false,
                  .initial = Initial::kInTurn,
                  .start = static_cast<double>(moe.experts)});
  else
    layer.tensor(Part::kRouterBias, "ffn.gate.bias",
                 {.name = "ffn.gate.bias", .shape = {moe.experts}, .trainable = false, .initial = Initial::kZero});
  layer.copies(moe.experts);
  layer.linear(Part::kExpertGate, "ffn.experts.{}.w1", spec.hidden, moe.ffn);
  layer.linear(Part::kExpertUp, "ffn.experts.{}.w3", spec.hidden, moe.ffn);
  layer.linear(Part::kExpertDown, "ffn.experts.{}.w2", moe.ffn, spec.hidden);
  layer.copies(1);
  layer.linear(Part::kSharedGate, "ffn.shared_experts.w1", spec.hidden, moe.shared_ffn);
  layer.linear(Part::kSharedUp, "ffn.shared_experts.w3", spec.hidden, moe.shared_ffn);
  layer.linear(Part::kSharedDown, "ffn.shared_experts.w2", moe.shared_ffn, spec.hidden);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  lay_out_streams(spec, layer, {Part::kMixerStreams, Part::kMixerStreamsBias, Part::kMixerStreamsScale}, "hc_attn");
  layer.norm(Part::kMixerNorm, "attn_norm", spec.hidden);
  lay_out_attention(spec, number, layer);
  lay_out_streams(spec, layer, {Part::kFeedStreams, Part::kFeedStreamsBias, Part::kFeedStreamsScale}, "hc_ffn");
  layer.norm(Part::kFeedNorm, "ffn_norm", spec.hidden);
  lay_out_moe(spec, number, layer);
}

void lay_out_ends(const ModelSpec& spec, Layout& layout) {
  arch::lay_out_ends(spec, layout, {.head = "head"});
  const std::int64_t count = spec.hyper->streams;
  const auto add = [&](Part part, const char* name, Shape shape, Initial initial) {
    layout.norm_parameters.push_back({.name = layout.base + ".hc_head." + name,
                                      .shape = shape,
                                      .role = role_of(part),
                                      .part = part,
                                      .initial = initial});
  };
  add(Part::kEndStreams, "hc_fn", {count, count * spec.hidden}, Initial::kNormal);
  add(Part::kEndStreamsBias, "hc_base", {count}, Initial::kZero);
  add(Part::kEndStreamsScale, "hc_scale", {1}, Initial::kOne);
}

}  // namespace deepseek_v4

extern const Family kDeepseekV4 = {
    "deepseek_v4",
    "DeepseekV4ForCausalLM",
    "DeepSeek V4: hyper-connections, attention over a window and compressed entries, experts by a table of tokens",
    deepseek_v4::read,
    deepseek_v4::lay_out_layer,
    kNoTensorPlan,
    deepseek_v4::lay_out_ends};

}  // namespace automodel::arch
