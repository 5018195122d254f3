#include "arch/vision.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "arch/config_reader.h"
#include "arch/layout.h"
#include "arch/model_spec.h"

namespace automodel::arch {
namespace {

constexpr int kMostSide = 1 << 14;    // in pixels
constexpr int kMostTokens = 1 << 16;  // of a picture, as every position of a model is counted

/// How many layers run for `vision_feature_layer`: transformers counts the embeddings as layer 0, and from the end.
/// Without the last layer, whose output transformers 5 normalises.
std::optional<int> used_layers(int feature_layer, int layers) {
  const int used = feature_layer < 0 ? layers + 1 + feature_layer : feature_layer;
  return used >= 1 && used < layers ? std::optional(used) : std::nullopt;
}

/// Appends parameters of the tower; those of what never runs are only stored.
class TowerBuilder {
 public:
  explicit TowerBuilder(std::vector<ParameterTemplate>& out) : out_(out) {}
  void trained(bool trained) { trained_ = trained; }
  void numbers(std::string name, Shape shape, Initial initial = Initial::kNormal, double start = 0,
               Part part = Part::kNone) {
    out_.push_back({.name = std::move(name),
                    .shape = shape,
                    .role = Role::kTower,
                    .part = part,
                    .trainable = trained_,
                    .initial = initial,
                    .start = start});
  }
  void linear(const std::string& name, std::int64_t in, std::int64_t out, bool bias = true) {
    numbers(name + ".weight", {out, in}, Initial::kNormal, 0, Part::kTowerProduct);
    if (bias) numbers(name + ".bias", {out}, Initial::kZero);
  }
  void norm(const std::string& name, std::int64_t width) {
    numbers(name + ".weight", {width}, Initial::kOne);
    numbers(name + ".bias", {width}, Initial::kZero);
  }

 private:
  std::vector<ParameterTemplate>& out_;
  bool trained_ = true;
};

/// Reads a tower's section. Thrown within this file only.
struct Refused {
  std::string why;
};

/// Sizes that every tower has, under the names of its section.
struct SizeKeys {
  std::string_view layers, heads;
};
VisionSpec read_sizes(ConfigReader& section, const SizeKeys& keys) {
  for (const std::string_view key : {std::string_view("hidden_size"), std::string_view("intermediate_size"),
                                     keys.layers, keys.heads, std::string_view("patch_size")})
    if (!section.has(key)) throw Refused{fmt::format("its vision_config has no {}", key)};
  VisionSpec out;
  out.hidden = section.required({"hidden_size"}, 1, kMostWidth);
  out.ffn = section.required({"intermediate_size"}, 1, kMostWidth);
  out.layers = section.required({keys.layers}, 1, kMostLayers);
  out.heads = section.required({keys.heads}, 1, kMostWidth);
  out.patch = section.required({"patch_size"}, 1, kMostSide);
  if (out.heads < 1 || out.hidden % out.heads != 0) throw Refused{"its tower's heads do not divide its width"};
  return out;
}

void require_colours(ConfigReader& section, Keys keys = {"num_channels"}) {
  if (section.integer(keys, 3, 1, 1 << 10) != VisionSpec::kChannels)
    throw Refused{"its pictures do not have 3 channels"};
}

/// `module`: "tower" or "projector". Absent, the activation is the wanted one.
void require_activation(ConfigReader& section, std::string_view wanted, std::string_view key = "hidden_act",
                        std::string_view module = "tower") {
  if (const auto given = section.text({key}, wanted); given != wanted)
    throw Refused{fmt::format("its {}'s activation is {}", module, given)};
}

/// A tower for pictures of one size, without what follows it. Source: CLIPVisionConfig and SiglipVisionConfig.
VisionSpec read_vit(ConfigReader& section, std::string_view usual) {
  const auto tower = section.text({"model_type"}, usual);
  const bool clip = tower == "clip_vision_model";
  if (!clip && tower != "siglip_vision_model") throw Refused{fmt::format("its vision tower is a {}", tower)};
  auto out = read_sizes(section, {"num_hidden_layers", "num_attention_heads"});
  if (!section.has("image_size")) throw Refused{"its vision_config has no image_size"};
  out.kind = clip ? TowerKind::kClip : TowerKind::kSiglip;
  out.image = section.required({"image_size"}, 1, kMostSide);
  out.eps = section.number({"layer_norm_eps"}, clip ? 1e-5 : 1e-6);
  out.pooling_head = !clip && section.boolean({"vision_use_head"}, true);
  if (out.patch > out.image) throw Refused{"its patches are larger than its pictures"};
  if (out.patches() >= kMostTokens) throw Refused{fmt::format("a picture has {} patches or more", kMostTokens)};
  require_colours(section);
  require_activation(section, clip ? "quick_gelu" : "gelu_pytorch_tanh");
  if (section.number({"attention_dropout"}, 0) != 0) throw Refused{"its tower has dropout"};
  return out;
}

VisionSpec read_llava(ConfigReader& config, ConfigReader& section) {
  auto out = read_vit(section, "clip_vision_model");
  out.image_token = config.integer({"image_token_index", "image_token_id"}, 32000, 0, kMostVocab);
  out.projector_bias = config.boolean({"multimodal_projector_bias"}, true);
  require_activation(config, "gelu", "projector_hidden_act", "projector");
  const auto strategy = config.text({"vision_feature_select_strategy"}, "default");
  if (strategy != "default" && strategy != "full")
    throw Refused{fmt::format("its vision_feature_select_strategy is {}", strategy)};
  out.drops_first = strategy == "default";
  if (config.is_list("vision_feature_layer")) throw Refused{"several layers of its tower are joined"};
  const auto used = used_layers(config.integer({"vision_feature_layer"}, -2, -kMostLayers, kMostLayers), out.layers);
  if (!used) throw Refused{"its vision_feature_layer is not between the first layer and the last but one"};
  out.used_layers = *used;
  return out;
}

VisionSpec read_gemma3(ConfigReader& config, ConfigReader& section) {
  auto out = read_vit(section, "siglip_vision_model");
  if (out.kind != TowerKind::kSiglip) throw Refused{"its vision tower is not SigLIP"};
  out.used_layers = out.layers;
  out.image_token = config.integer({"image_token_index", "image_token_id"}, 262144, 0, kMostVocab);
  out.begin_token = config.integer({"boi_token_index"}, 255999, 0, kMostVocab);
  out.end_token = config.integer({"eoi_token_index"}, 256000, 0, kMostVocab);
  out.both_ways = true;
  const int tokens = config.integer({"mm_tokens_per_image"}, 256, 1, kMostTokens);
  out.pooled = static_cast<int>(std::lround(std::sqrt(tokens)));
  const int side = out.image / out.patch;
  if (out.pooled * out.pooled != tokens || side % out.pooled != 0)
    throw Refused{fmt::format("its {} x {} patches cannot be averaged to {} tokens", side, side, tokens)};
  return out;
}

/// Layers of a tower by number. Without the key: `otherwise`.
std::vector<int> layer_list(ConfigReader& section, std::string_view key, std::vector<int> otherwise, int layers) {
  if (section.has(key)) {
    otherwise.clear();
    for (const double each : section.numbers(key)) otherwise.push_back(static_cast<int>(std::clamp(each, -1.0, 1e6)));
  }
  for (const int each : otherwise)
    if (each < 0 || each >= layers) throw Refused{fmt::format("its {} names a layer that the tower lacks", key)};
  return otherwise;
}

/// Source of names and defaults: the configurations of transformers 5.23.
VisionSpec read_qwen(ConfigReader& config, ConfigReader& section, std::string_view kind, const ModelSpec& decoder) {
  auto out = read_sizes(section, {"depth", "num_heads"});
  const bool windows = kind == "qwen2_5_vl";
  out.kind = windows ? TowerKind::kQwen25 : TowerKind::kQwen3;
  out.eps = 1e-6;
  out.used_layers = out.layers;
  out.merge = section.integer({"spatial_merge_size"}, 2, 1, kMostSide);
  out.frames = section.integer({"temporal_patch_size"}, 2, 1, 1 << 10);
  const int usual_token = kind.starts_with("qwen3_5") ? 248056 : 151655;
  out.image_token = config.integer({"image_token_id", "image_token_index"}, usual_token, 0, kMostVocab);
  require_colours(section, {"in_channels", "in_chans"});
  if (const int width = section.integer({"out_hidden_size"}, decoder.hidden, 1, kMostWidth); width != decoder.hidden)
    throw Refused{fmt::format("its tower gives rows of {} numbers, the decoder takes {}", width, decoder.hidden)};
  if (out.hidden / out.heads % 4 != 0) throw Refused{"its tower's heads cannot be rotated by two axes"};
  require_activation(section, windows ? "silu" : "gelu_pytorch_tanh");
  if (windows) {
    out.window = section.integer({"window_size"}, 112, 1, kMostSide) / (out.merge * out.patch);
    if (out.window < 1) throw Refused{"its windows are smaller than a row of the decoder"};
    out.whole_layers = layer_list(section, "fullatt_block_indexes", {7, 15, 23, 31}, out.layers);
  } else {
    const int rows = section.integer({"num_position_embeddings"}, 2304, 1, kMostTokens);
    out.table = static_cast<int>(std::lround(std::sqrt(rows)));
    if (out.table * out.table != rows) throw Refused{"its num_position_embeddings is not a square"};
    if (kind.starts_with("qwen3_vl"))
      out.deep_layers = layer_list(section, "deepstack_visual_indexes", {8, 16, 24}, out.layers);
    if (std::ssize(out.deep_layers) > decoder.layers) throw Refused{"it has fewer decoder layers than deepstack rows"};
    if (!std::is_sorted(out.deep_layers.begin(), out.deep_layers.end()))
      throw Refused{"its deepstack_visual_indexes are not sorted"};
  }
  const auto& sections = decoder.rope.sections;
  if (sections[0] + sections[1] + sections[2] != decoder.rope.rotary_dim / 2)
    throw Refused{"its decoder has no mrope_section whose parts sum to half of the rotated dimensions"};
  return out;
}

/// Source of names and defaults: Mistral3Config and PixtralVisionConfig of transformers 5.23.
VisionSpec read_mistral3(ConfigReader& config, ConfigReader& section, const ModelSpec& decoder) {
  if (const auto tower = section.text({"model_type"}, "pixtral"); tower != "pixtral")
    throw Refused{fmt::format("its vision tower is a {}", tower)};
  if (decoder.model_type != "mistral" && decoder.model_type != "ministral3")
    throw Refused{fmt::format("its decoder is a {}", decoder.model_type)};
  auto out = read_sizes(section, {"num_hidden_layers", "num_attention_heads"});
  out.kind = TowerKind::kPixtral;
  out.image = section.integer({"image_size"}, 1024, 1, kMostSide);
  out.merge = config.integer({"spatial_merge_size"}, 2, 1, kMostSide);
  if (std::int64_t{out.merge} * out.patch > kMostSide) throw Refused{"its merged patches are larger than pictures"};
  out.image_token = config.integer({"image_token_index", "image_token_id"}, 10, 0, kMostVocab);
  out.projector_bias = config.boolean({"multimodal_projector_bias"}, false);
  out.projector_eps = decoder.norm_eps;
  require_colours(section);
  if (out.hidden / out.heads % 4 != 0) throw Refused{"its tower's heads cannot be rotated by two axes"};
  const auto act = section.text({"hidden_act"}, "gelu");
  if (act != "silu" && act != "gelu") throw Refused{fmt::format("its tower's activation is {}", act)};
  out.gelu = act == "gelu";
  if (section.number({"attention_dropout"}, 0) != 0) throw Refused{"its tower has dropout"};
  auto rope = section.child("rope_parameters");
  out.theta = rope && rope->has("rope_theta") ? rope->number({"rope_theta"}, 1e4) : section.number({"rope_theta"}, 1e4);
  if (!(out.theta > 1)) throw Refused{"its tower's rope_theta is not above 1"};
  if (const auto projector = config.text({"projector_hidden_act"}, "gelu"); projector != "gelu")
    throw Refused{fmt::format("its projector's activation is {}", projector)};
  if (config.is_list("vision_feature_layer")) throw Refused{"several layers of its tower are joined"};
  const int layer = config.integer({"vision_feature_layer"}, -1, -kMostLayers, kMostLayers);
  out.used_layers = layer < 0 ? out.layers + 1 + layer : layer;
  if (out.used_layers < 1 || out.used_layers > out.layers)
    throw Refused{"its vision_feature_layer is not one of the tower's layers"};
  return out;
}

/// Base of the rotation by two axes; `kinds`: rope_types that mean it.
double read_axial_theta(ConfigReader& section, double usual, std::initializer_list<std::string_view> kinds) {
  auto rope = section.child("rope_parameters");
  if (!rope) return usual;
  if (const auto kind = rope->text({"rope_type"}, "axial"); std::ranges::find(kinds, kind) == kinds.end())
    throw Refused{fmt::format("its tower's rope_type is {}", kind)};
  const double theta = rope->number({"rope_theta"}, usual);
  if (!(theta > 1)) throw Refused{"its tower's rope_theta is not above 1"};
  return theta;
}

/// Source of names and defaults: Gemma4Config and Gemma4VisionConfig of transformers 5.23.
VisionSpec read_gemma4(ConfigReader& config, ConfigReader& section, const ModelSpec& decoder) {
  if (const auto tower = section.text({"model_type"}, "gemma4_vision"); tower != "gemma4_vision")
    throw Refused{fmt::format("its vision tower is a {}", tower)};
  if (decoder.model_type != "gemma4_text") throw Refused{fmt::format("its decoder is a {}", decoder.model_type)};
  auto out = read_sizes(section, {"num_hidden_layers", "num_attention_heads"});
  out.kind = TowerKind::kGemma4;
  out.used_layers = out.layers;
  out.eps = section.number({"rms_norm_eps"}, 1e-6);
  out.merge = section.integer({"pooling_kernel_size"}, 3, 1, kMostSide);
  out.table = section.integer({"position_embedding_size"}, 10240, 1, kMostTokens);
  out.clipped = section.boolean({"use_clipped_linears"}, false);
  out.standardized = section.boolean({"standardize"}, false);
  out.image_token = config.integer({"image_token_id"}, 258880, 0, kMostVocab);
  out.begin_token = config.integer({"boi_token_id"}, 255999, 0, kMostVocab);
  out.end_token = config.integer({"eoi_token_id"}, 258882, 0, kMostVocab);
  if (auto text = config.child("text_config"))
    out.both_ways = out.windows_only = text->text({"use_bidirectional_attention"}, "") == "vision";
  if (section.integer({"head_dim"}, 64, 1, kMostWidth) * out.heads != out.hidden)
    throw Refused{"its tower's heads together are not as wide as its rows"};
  if (section.integer({"num_key_value_heads"}, 12, 1, kMostWidth) != out.heads)
    throw Refused{"its tower's heads share keys"};
  if (out.hidden / out.heads % 4 != 0) throw Refused{"its tower's heads cannot be rotated by two axes"};
  require_activation(section, "gelu_pytorch_tanh", "hidden_activation");
  if (section.boolean({"attention_bias"}, false)) throw Refused{"its tower's attention has biases"};
  if (section.number({"attention_dropout"}, 0) != 0) throw Refused{"its tower has dropout"};
  out.theta = read_axial_theta(section, 100, {"axial", "default"});
  return out;
}

/// Source of names and defaults: Step3p7VisionConfig of transformers 5.23, which takes those of published configs, too.
VisionSpec read_step(ConfigReader& config, ConfigReader& section, const ModelSpec& decoder) {
  if (decoder.model_type != "step3p5") throw Refused{fmt::format("its decoder is a {}", decoder.model_type)};
  VisionSpec out;
  out.kind = TowerKind::kStep;
  out.hidden = section.integer({"width", "hidden_size"}, 1536, 1, kMostWidth);
  out.layers = out.used_layers = section.integer({"layers", "num_hidden_layers"}, 47, 1, kMostLayers);
  out.heads = section.integer({"heads", "num_attention_heads"}, 16, 1, kMostWidth);
  out.ffn = static_cast<int>(out.hidden * std::clamp(section.number({"mlp_ratio"}, 8960.0 / 1536), 0.0, 64.0));
  out.patch = section.integer({"patch_size"}, 14, 1, kMostSide);
  out.image = section.integer({"image_size"}, 728, 1, kMostSide);
  out.eps = section.number({"layer_norm_eps"}, 1e-5);
  out.layer_scale = section.number({"ls_init_value", "layer_scale_init_value"}, 0.1);
  out.merge = 4;  // two convolutions with steps of two
  out.table = out.image / out.patch;
  out.image_token = config.integer({"image_token_id"}, 151679, 0, kMostVocab);
  out.projector_bias = config.boolean({"projector_bias"}, false);
  if (out.ffn < 1) throw Refused{"its mlp_ratio leaves no inner rows"};
  if (out.table < 1) throw Refused{"its patches are larger than its pictures"};
  if (out.hidden % out.heads != 0 || out.hidden / out.heads % 4 != 0)
    throw Refused{"its tower's heads cannot be rotated by two axes"};
  require_colours(section);
  require_activation(section, "quick_gelu");
  if (section.number({"attention_dropout"}, 0) != 0) throw Refused{"its tower has dropout"};
  out.theta = read_axial_theta(section, 1e4, {"axial"});
  return out;
}

/// Source of names and defaults: MiniMaxM3VLConfig and MiniMaxM3VLVisionConfig of transformers 5.23, and the published
/// config, which calls the section CLIP's and has sizes of its merging in a section that transformers does not read.
VisionSpec read_minimax(ConfigReader& config, ConfigReader& section, const ModelSpec& decoder) {
  const auto tower = section.text({"model_type"}, "minimax_m3_vl_vision");
  if (tower != "minimax_m3_vl_vision" && tower != "clip_vision_model")
    throw Refused{fmt::format("its vision tower is a {}", tower)};
  if (decoder.model_type != "minimax_m3_vl_text") throw Refused{fmt::format("its decoder is a {}", decoder.model_type)};
  auto out = read_sizes(section, {"num_hidden_layers", "num_attention_heads"});
  out.kind = TowerKind::kMiniMax;
  out.used_layers = out.layers;
  out.eps = section.number({"layer_norm_eps"}, 1e-5);
  out.merge = section.integer({"spatial_merge_size"}, 2, 1, 1 << 7);
  out.frames = section.integer({"temporal_patch_size"}, 2, 1, 1 << 10);
  for (auto* around : {&section, &config})
    if (auto merging = around->child("img_token_compression_config");
        merging && (merging->integer({"spatial_merge_size"}, out.merge, 1, kMostSide) != out.merge ||
                    merging->integer({"temporal_patch_size"}, out.frames, 1, kMostSide) != out.frames))
      throw Refused{"its img_token_compression_config has other sizes than its vision_config"};
  out.image_token = config.integer({"image_token_index", "image_token_id"}, 200025, 0, kMostVocab);
  out.projector_width = config.integer({"projector_hidden_size"}, 6144, 1, kMostWidth);
  out.theta = read_axial_theta(section, section.number({"rope_theta"}, 1e4), {"axial"});
  if (out.hidden / out.heads < 6) throw Refused{"its tower's heads cannot be rotated by three axes"};
  require_colours(section);
  require_activation(section, "gelu");
  if (section.number({"attention_dropout"}, 0) != 0) throw Refused{"its tower has dropout"};
  if (const auto mode = section.text({"rope_mode"}, "3d"); mode != "3d")
    throw Refused{fmt::format("its tower's rope_mode is {}", mode)};
  require_activation(config, "gelu", "projector_hidden_act", "projector");
  if (!config.boolean({"multimodal_projector_bias"}, true)) throw Refused{"its projector has no biases"};
  if (config.integer({"vision_feature_layer"}, -1, -kMostLayers, kMostLayers) != -1)
    throw Refused{"its vision_feature_layer is not the last"};
  return out;
}

/// Source of names and defaults: MuseGlimmerConfig and MuseGlimmerVisionConfig of transformers 5.23.
VisionSpec read_muse(ConfigReader& config, ConfigReader& section, const ModelSpec& decoder) {
  if (const auto tower = section.text({"model_type"}, "muse_glimmer_vision"); tower != "muse_glimmer_vision")
    throw Refused{fmt::format("its vision tower is a {}", tower)};
  if (decoder.model_type != "muse_glimmer_text") throw Refused{fmt::format("its decoder is a {}", decoder.model_type)};
  auto out = read_sizes(section, {"num_hidden_layers", "num_attention_heads"});
  out.kind = TowerKind::kMuse;
  out.used_layers = out.layers;
  out.eps = section.number({"layer_norm_eps"}, 1e-5);
  out.merge = section.integer({"merge_size"}, 2, 1, 1 << 7);
  out.frames = section.integer({"patch_temporal"}, 2, 1, 1 << 10);
  out.table = out.window = section.integer({"pos_emb_height"}, 32, 1, 1 << 8);
  out.image_token = config.integer({"image_token_id"}, 200092, 0, kMostVocab);
  out.projector_width = config.integer({"projector_hidden_size"}, 4096, 1, kMostWidth);
  out.projector_eps = decoder.norm_eps;
  if (const int width = section.integer({"pos_emb_width"}, 32, 1, 1 << 8); width != out.table)
    throw Refused{fmt::format("its table of positions is {} x {}, not square", out.table, width)};
  const std::int64_t joined = std::int64_t{out.hidden} * out.merge * out.merge;
  if (const int width = config.integer({"out_hidden_size"}, 6144, 1, kMostWidth); width != joined)
    throw Refused{fmt::format("its tower gives rows of {} numbers, the projector takes {}", joined, width)};
  if (out.hidden / out.heads % 4 != 0) throw Refused{"its tower's heads cannot be rotated by two axes"};
  require_activation(section, "gelu");
  require_activation(config, "gelu", "projector_hidden_act", "projector");
  out.theta = read_axial_theta(section, 1e4, {"axial"});
  const auto types = section.texts("layer_types");
  if (!types.empty() && std::ssize(types) != out.layers) throw Refused{"its tower's layer_types are not one a layer"};
  constexpr int kPattern = 4;  // every fourth layer and the last
  for (int layer = 0; layer < out.layers; ++layer) {
    const auto& type = types.empty() ? "" : types[static_cast<std::size_t>(layer)];
    if (type == "full_attention" || (types.empty() && ((layer + 1) % kPattern == 0 || layer + 1 == out.layers)))
      out.whole_layers.push_back(layer);
    else if (!types.empty() && type != "window_attention")
      throw Refused{fmt::format("a layer of its tower is a {}", type)};
  }
  return out;
}

}  // namespace

std::string_view name_of(TowerKind kind) {
  switch (kind) {
    case TowerKind::kClip: return "CLIP";
    case TowerKind::kSiglip: return "SigLIP";
    case TowerKind::kPixtral: return "Pixtral";
    case TowerKind::kGemma4: return "Gemma 4's ViT";
    case TowerKind::kMuse: return "Muse-Glimmer's ViT";
    case TowerKind::kMiniMax: return "MiniMax's ViT";
    case TowerKind::kStep: return "Step's ViT";
    case TowerKind::kQwen25:
    case TowerKind::kQwen3: break;
  }
  return "Qwen ViT";
}

std::optional<VisionSpec> read_vision(ConfigReader& config, const ModelSpec& decoder, std::string& why) {
  constexpr std::array<std::string_view, 5> kQwen = {"qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5",
                                                     "qwen3_5_moe"};
  const auto kind = config.text({"model_type"}, "");
  const bool qwen = std::find(kQwen.begin(), kQwen.end(), kind) != kQwen.end();
  try {
    if (kind != "llava" && kind != "gemma3" && kind != "gemma4" && kind != "mistral3" && kind != "muse_glimmer" &&
        kind != "step3p7" && kind != "minimax_m3_vl" && !qwen)
      throw Refused{fmt::format("no {} is trained with pictures", kind)};
    auto section = config.child("vision_config");
    if (!section) throw Refused{"it has no vision_config"};
    if (qwen) return read_qwen(config, *section, kind, decoder);
    if (kind == "mistral3") return read_mistral3(config, *section, decoder);
    if (kind == "gemma4") return read_gemma4(config, *section, decoder);
    if (kind == "muse_glimmer") return read_muse(config, *section, decoder);
    if (kind == "minimax_m3_vl") return read_minimax(config, *section, decoder);
    if (kind == "step3p7") return read_step(config, *section, decoder);
    return kind == "llava" ? read_llava(config, *section) : read_gemma3(config, *section);
  } catch (const Refused& refused) {
    why = refused.why;
    return std::nullopt;
  }
}

namespace {

void lay_out_clip_layer(const std::string& prefix, const VisionSpec& vision, TowerBuilder& add) {
  const std::int64_t width = vision.hidden;
  add.norm(prefix + "layer_norm1", width);
  for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
    add.linear(prefix + "self_attn." + name, width, width);
  add.norm(prefix + "layer_norm2", width);
  add.linear(prefix + "mlp.fc1", width, vision.ffn);
  add.linear(prefix + "mlp.fc2", vision.ffn, width);
}

/// CLIP and SigLIP, and what follows them.
void lay_out_vit(const VisionSpec& vision, std::int64_t text_hidden, Layout& layout) {
  const std::string tower(kTowerModule), projector(kProjectorModule);
  const std::int64_t width = vision.hidden;
  const bool clip = vision.kind == TowerKind::kClip;
  TowerBuilder add(layout.tower_parameters);
  if (clip) add.numbers(tower + ".embeddings.class_embedding", {width});
  add.numbers(tower + ".embeddings.patch_embedding.weight", {width, VisionSpec::kChannels, vision.patch, vision.patch});
  if (!clip) add.numbers(tower + ".embeddings.patch_embedding.bias", {width}, Initial::kZero);
  add.numbers(tower + ".embeddings.position_embedding.weight", {vision.rows(), width});
  if (clip) add.norm(tower + ".pre_layrnorm", width);  // spelt so in transformers
  for (int layer = 0; layer < vision.layers; ++layer) {
    add.trained(layer < vision.used_layers);
    lay_out_clip_layer(fmt::format("{}.encoder.layers.{}.", tower, layer), vision, add);
  }
  add.trained(vision.pooled > 0);
  add.norm(tower + ".post_layernorm", width);
  add.trained(false);
  if (vision.pooling_head) {
    add.numbers(tower + ".head.probe", {1, 1, width});
    add.numbers(tower + ".head.attention.in_proj_weight", {3 * width, width});
    add.numbers(tower + ".head.attention.in_proj_bias", {3 * width}, Initial::kZero);
    add.linear(tower + ".head.attention.out_proj", width, width);
    add.norm(tower + ".head.layernorm", width);
    add.linear(tower + ".head.mlp.fc1", width, vision.ffn);
    add.linear(tower + ".head.mlp.fc2", vision.ffn, width);
  }
  add.trained(true);
  if (vision.pooled > 0) {
    add.numbers(projector + ".mm_input_projection_weight", {width, text_hidden});
    add.numbers(projector + ".mm_soft_emb_norm.weight", {width}, Initial::kZero);  // a norm with 1 + weight
    return;
  }
  add.linear(projector + ".linear_1", width, text_hidden, vision.projector_bias);
  add.linear(projector + ".linear_2", text_hidden, text_hidden, vision.projector_bias);
}

void lay_out_qwen(const VisionSpec& vision, std::int64_t text_hidden, Layout& layout) {
  const std::string tower(kVisualModule);
  const std::int64_t width = vision.hidden, joined = width * vision.merge * vision.merge;
  const bool old = vision.kind == TowerKind::kQwen25;
  TowerBuilder add(layout.tower_parameters);
  const Shape patch = {width, VisionSpec::kChannels, vision.frames, vision.patch, vision.patch};
  add.numbers(tower + ".patch_embed.proj.weight", patch);
  const auto norm = [&](const std::string& name, std::int64_t size) {
    old ? add.numbers(name + ".weight", {size}, Initial::kOne) : add.norm(name, size);
  };
  if (!old) {
    add.numbers(tower + ".patch_embed.proj.bias", {width}, Initial::kZero);
    add.numbers(tower + ".pos_embed.weight", {std::int64_t{vision.table} * vision.table, width});
  }
  for (int layer = 0; layer < vision.layers; ++layer) {
    const auto prefix = fmt::format("{}.blocks.{}.", tower, layer);
    norm(prefix + "norm1", width);
    add.linear(prefix + "attn.qkv", width, 3 * width);
    add.linear(prefix + "attn.proj", width, width);
    norm(prefix + "norm2", width);
    if (old) add.linear(prefix + "mlp.gate_proj", width, vision.ffn);
    add.linear(prefix + (old ? "mlp.up_proj" : "mlp.linear_fc1"), width, vision.ffn);
    add.linear(prefix + (old ? "mlp.down_proj" : "mlp.linear_fc2"), vision.ffn, width);
  }
  const auto merger = [&](const std::string& name, std::int64_t normed) {
    norm(name + (old ? ".ln_q" : ".norm"), normed);
    add.linear(name + (old ? ".mlp.0" : ".linear_fc1"), joined, joined);
    add.linear(name + (old ? ".mlp.2" : ".linear_fc2"), joined, text_hidden);
  };
  merger(tower + ".merger", width);
  for (std::size_t j = 0; j < vision.deep_layers.size(); ++j)
    merger(fmt::format("{}.deepstack_merger_list.{}", tower, j), joined);
}

void lay_out_pixtral(const VisionSpec& vision, std::int64_t text_hidden, Layout& layout) {
  const std::string tower(kTowerModule), projector(kProjectorModule);
  const std::int64_t width = vision.hidden;
  TowerBuilder add(layout.tower_parameters);
  const auto norm = [&](const std::string& name) { add.numbers(name + ".weight", {width}, Initial::kOne); };
  add.numbers(tower + ".patch_conv.weight", {width, VisionSpec::kChannels, vision.patch, vision.patch});
  norm(tower + ".ln_pre");
  for (int layer = 0; layer < vision.layers; ++layer) {
    add.trained(layer < vision.used_layers);
    const auto prefix = fmt::format("{}.transformer.layers.{}.", tower, layer);
    norm(prefix + "attention_norm");
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
      add.linear(prefix + "attention." + name, width, width, false);
    norm(prefix + "ffn_norm");
    add.linear(prefix + "feed_forward.gate_proj", width, vision.ffn, false);
    add.linear(prefix + "feed_forward.up_proj", width, vision.ffn, false);
    add.linear(prefix + "feed_forward.down_proj", vision.ffn, width, false);
  }
  add.trained(true);
  norm(projector + ".norm");
  add.linear(projector + ".patch_merger.merging_layer", width * vision.merge * vision.merge, width, false);
  add.linear(projector + ".linear_1", width, text_hidden, vision.projector_bias);
  add.linear(projector + ".linear_2", text_hidden, text_hidden, vision.projector_bias);
}

void lay_out_gemma4(const VisionSpec& vision, std::int64_t text_hidden, Layout& layout) {
  const std::string tower(kTowerModule);
  const std::int64_t width = vision.hidden, head = width / vision.heads;
  TowerBuilder add(layout.tower_parameters);
  const auto norm = [&](const std::string& name, std::int64_t size) {
    add.numbers(name + ".weight", {size}, Initial::kOne);
  };
  const auto linear = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    add.linear(name + ".linear", in, out, false);
    if (!vision.clipped) return;
    add.trained(false);
    constexpr double kAny = std::numeric_limits<double>::infinity();
    for (const char* side : {".input", ".output"}) {
      add.numbers(name + side + "_min", {}, Initial::kValue, -kAny);
      add.numbers(name + side + "_max", {}, Initial::kValue, kAny);
    }
    add.trained(true);
  };
  add.linear(tower + ".patch_embedder.input_proj", VisionSpec::kChannels * vision.patch * vision.patch, width, false);
  add.numbers(tower + ".patch_embedder.position_embedding_table", {2, vision.table, width}, Initial::kOne);
  for (int layer = 0; layer < vision.layers; ++layer) {
    const auto prefix = fmt::format("{}.encoder.layers.{}.", tower, layer);
    norm(prefix + "input_layernorm", width);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
      linear(prefix + "self_attn." + name, width, width);
    norm(prefix + "self_attn.q_norm", head);
    norm(prefix + "self_attn.k_norm", head);
    norm(prefix + "post_attention_layernorm", width);
    norm(prefix + "pre_feedforward_layernorm", width);
    linear(prefix + "mlp.gate_proj", width, vision.ffn);
    linear(prefix + "mlp.up_proj", width, vision.ffn);
    linear(prefix + "mlp.down_proj", vision.ffn, width);
    norm(prefix + "post_feedforward_layernorm", width);
  }
  if (vision.standardized) {
    add.trained(false);
    add.numbers(tower + ".std_bias", {width}, Initial::kZero);
    add.numbers(tower + ".std_scale", {width}, Initial::kOne);
    add.trained(true);
  }
  add.linear(std::string(kEmbedderModule) + ".embedding_projection", width, text_hidden, false);
}

/// Published names: transformers takes the queries, keys and values apart, and saves them joined again.
void lay_out_step(const VisionSpec& vision, std::int64_t text_hidden, Layout& layout) {
  const std::string tower(kStepModule);
  const std::int64_t width = vision.hidden;
  TowerBuilder add(layout.tower_parameters);
  add.numbers(tower + ".conv1.weight", {width, VisionSpec::kChannels, vision.patch, vision.patch});
  add.numbers(tower + ".positional_embedding", {std::int64_t{vision.table} * vision.table, width});
  add.norm(tower + ".ln_pre", width);
  for (int layer = 0; layer < vision.layers; ++layer) {
    const auto prefix = fmt::format("{}.transformer.resblocks.{}.", tower, layer);
    add.norm(prefix + "ln_1", width);
    add.numbers(prefix + "attn.in_proj_weight", {3 * width, width});
    add.numbers(prefix + "attn.in_proj_bias", {3 * width}, Initial::kZero);
    add.linear(prefix + "attn.out_proj", width, width);
    add.numbers(prefix + "ls_1.gamma", {width}, Initial::kValue, vision.layer_scale);
    add.norm(prefix + "ln_2", width);
    add.linear(prefix + "mlp.c_fc", width, vision.ffn);
    add.linear(prefix + "mlp.c_proj", vision.ffn, width);
    add.numbers(prefix + "ls_2.gamma", {width}, Initial::kValue, vision.layer_scale);
  }
  for (int turn = 1; turn <= 2; ++turn) {
    const auto name = fmt::format("{}.vit_downsampler{}", tower, turn);
    add.numbers(name + ".weight", {2 * turn * width, turn * width, 3, 3});
    add.numbers(name + ".bias", {2 * turn * width}, Initial::kZero);
  }
  add.linear(std::string(kProjectorModule), vision.out_width(), text_hidden, vision.projector_bias);
}

void lay_out_minimax(const VisionSpec& vision, std::int64_t text_hidden, Layout& layout) {
  const std::string tower(kTowerModule), projector(kProjectorModule);
  const std::int64_t width = vision.hidden, wide = vision.projector_width;
  TowerBuilder add(layout.tower_parameters);
  add.numbers(tower + ".embeddings.proj.weight",
              {width, VisionSpec::kChannels, vision.frames, vision.patch, vision.patch});
  add.norm(tower + ".pre_layrnorm", width);
  for (int layer = 0; layer < vision.layers; ++layer)
    lay_out_clip_layer(fmt::format("{}.layers.{}.", tower, layer), vision, add);
  add.linear(projector + ".linear_1", width, wide);
  add.linear(projector + ".linear_2", wide, text_hidden);
  add.linear(projector + ".merge_linear_1", text_hidden * vision.merge * vision.merge, wide);
  add.linear(projector + ".merge_linear_2", wide, text_hidden);
}

void lay_out_muse(const VisionSpec& vision, std::int64_t text_hidden, Layout& layout) {
  const std::string tower(kTowerModule), adapter(kAdapterModule), embedder = tower + ".patch_embedder.";
  const std::int64_t width = vision.hidden, wide = vision.projector_width;
  TowerBuilder add(layout.tower_parameters);
  add.linear(embedder + "patch_embedding",
             std::int64_t{VisionSpec::kChannels} * vision.frames * vision.patch * vision.patch, width, false);
  add.numbers(embedder + "position_embedding_table.weight", {std::int64_t{vision.table} * vision.table, width});
  add.norm(tower + ".ln_pre", width);
  for (int layer = 0; layer < vision.layers; ++layer) {
    const auto prefix = fmt::format("{}.layers.{}.", tower, layer);
    add.norm(prefix + "norm1", width);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "proj"}) add.linear(prefix + "attn." + name, width, width);
    add.norm(prefix + "norm2", width);
    add.linear(prefix + "mlp.fc1", width, vision.ffn);
    add.linear(prefix + "mlp.fc2", vision.ffn, width);
  }
  add.norm(tower + ".ln_post", width);
  add.linear(adapter + ".fc1", width * vision.merge * vision.merge, wide, false);
  add.linear(adapter + ".fc2", wide, wide, false);
  add.linear(std::string(kProjectionModule), wide, text_hidden, false);
}

}  // namespace

void lay_out_vision(const VisionSpec& vision, std::int64_t text_hidden, Layout& layout) {
  if (vision.kind == TowerKind::kMiniMax) return lay_out_minimax(vision, text_hidden, layout);
  if (vision.kind == TowerKind::kStep) return lay_out_step(vision, text_hidden, layout);
  if (vision.kind == TowerKind::kGemma4) return lay_out_gemma4(vision, text_hidden, layout);
  if (vision.kind == TowerKind::kPixtral) return lay_out_pixtral(vision, text_hidden, layout);
  if (vision.kind == TowerKind::kMuse) return lay_out_muse(vision, text_hidden, layout);
  vision.qwen() ? lay_out_qwen(vision, text_hidden, layout) : lay_out_vit(vision, text_hidden, layout);
}

}  // namespace automodel::arch
