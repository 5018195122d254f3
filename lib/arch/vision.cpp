#include "arch/vision.h"

#include <utility>

#include <fmt/format.h>

#include "arch/config_reader.h"
#include "arch/layout.h"

namespace automodel::arch {
namespace {

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
  void numbers(std::string name, Shape shape, Initial initial = Initial::kNormal) {
    out_.push_back(
        {.name = std::move(name), .shape = shape, .role = Role::kTower, .trainable = trained_, .initial = initial});
  }
  void linear(const std::string& name, std::int64_t in, std::int64_t out, bool bias = true) {
    numbers(name + ".weight", {out, in});
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

}  // namespace

std::optional<VisionSpec> read_vision(ConfigReader& config, std::string& why) {
  const auto refuse = [&](std::string reason) {
    why = std::move(reason);
    return std::nullopt;
  };
  const auto kind = config.text({"model_type"}, "");
  if (kind != "llava") return refuse(fmt::format("its text part is that of a {} model", kind));
  auto section = config.child("vision_config");
  if (!section) return refuse("it has no vision_config");
  const auto tower = section->text({"model_type"}, "clip_vision_model");
  if (tower != "clip_vision_model") return refuse(fmt::format("its vision tower is a {}", tower));
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "image_size", "patch_size"})
    if (!section->has(key)) return refuse(fmt::format("its vision_config has no {}", key));
  VisionSpec out;
  out.hidden = section->required({"hidden_size"}, 1, kMostWidth);
  out.ffn = section->required({"intermediate_size"}, 1, kMostWidth);
  out.layers = section->required({"num_hidden_layers"}, 1, kMostLayers);
  out.heads = section->required({"num_attention_heads"}, 1, kMostWidth);
  out.image = section->required({"image_size"}, 1, 1 << 14);
  out.patch = section->required({"patch_size"}, 1, 1 << 14);
  out.eps = section->number({"layer_norm_eps"}, 1e-5);
  out.image_token = config.integer({"image_token_index", "image_token_id"}, 32000, 0, kMostVocab);
  out.projector_bias = config.boolean({"multimodal_projector_bias"}, true);
  if (out.heads < 1 || out.hidden % out.heads != 0) return refuse("its tower's heads do not divide its width");
  if (out.patch > out.image) return refuse("its patches are larger than its pictures");
  if (out.patches() >= kMostTokens) return refuse(fmt::format("a picture has {} patches or more", kMostTokens));
  if (section->integer({"num_channels"}, 3, 1, 1 << 10) != VisionSpec::kChannels)
    return refuse("its pictures do not have 3 channels");
  if (const auto act = section->text({"hidden_act"}, "quick_gelu"); act != "quick_gelu")
    return refuse(fmt::format("its tower's activation is {}", act));
  if (section->number({"attention_dropout"}, 0) != 0) return refuse("its tower has dropout");
  if (const auto act = config.text({"projector_hidden_act"}, "gelu"); act != "gelu")
    return refuse(fmt::format("its projector's activation is {}", act));
  const auto strategy = config.text({"vision_feature_select_strategy"}, "default");
  if (strategy != "default" && strategy != "full")
    return refuse(fmt::format("its vision_feature_select_strategy is {}", strategy));
  out.class_row = strategy == "full";
  if (config.is_list("vision_feature_layer")) return refuse("several layers of its tower are joined");
  const auto used = used_layers(config.integer({"vision_feature_layer"}, -2, -kMostLayers, kMostLayers), out.layers);
  if (!used) return refuse("its vision_feature_layer is not between the first layer and the last but one");
  out.used_layers = *used;
  return out;
}

void lay_out_vision(const VisionSpec& vision, std::int64_t text_hidden, Layout& layout) {
  const std::string tower(kTowerModule), projector(kProjectorModule);
  const std::int64_t width = vision.hidden;
  TowerBuilder add(layout.tower_parameters);
  add.numbers(tower + ".embeddings.class_embedding", {width});
  add.numbers(tower + ".embeddings.patch_embedding.weight", {width, VisionSpec::kChannels, vision.patch, vision.patch});
  add.numbers(tower + ".embeddings.position_embedding.weight", {vision.patches() + 1, width});
  add.norm(tower + ".pre_layrnorm", width);  // spelt so in transformers
  for (int layer = 0; layer < vision.layers; ++layer) {
    add.trained(layer < vision.used_layers);
    const auto prefix = fmt::format("{}.encoder.layers.{}.", tower, layer);
    add.norm(prefix + "layer_norm1", width);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
      add.linear(prefix + "self_attn." + name, width, width);
    add.norm(prefix + "layer_norm2", width);
    add.linear(prefix + "mlp.fc1", width, vision.ffn);
    add.linear(prefix + "mlp.fc2", vision.ffn, width);
  }
  add.trained(false);
  add.norm(tower + ".post_layernorm", width);
  add.trained(true);
  add.linear(projector + ".linear_1", width, text_hidden, vision.projector_bias);
  add.linear(projector + ".linear_2", text_hidden, text_hidden, vision.projector_bias);
}

}  // namespace automodel::arch
