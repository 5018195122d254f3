#include "arch/towers.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

namespace automodel::arch {
namespace {

using Json = nlohmann::json;

/// Module names by model_type of the multimodal model.
struct Names {
  std::string_view model_type;
  std::string_view vision;
  std::string_view projector;
};
constexpr std::string_view kTower = "model.vision_tower", kProjector = "model.multi_modal_projector",
                           kVisual = "model.visual", kQwen = "Qwen ViT";
constexpr std::array kNames = {
    Names{"llava", kTower, kProjector},
    Names{"llava_next", kTower, kProjector},
    Names{"llava_onevision", kTower, kProjector},
    Names{"vipllava", kTower, kProjector},
    Names{"gemma3", kTower, kProjector},
    Names{"gemma4", kTower, "model.embed_vision"},
    Names{"paligemma", kTower, kProjector},
    Names{"mistral3", kTower, kProjector},
    Names{"step3p7", "model.vision_model", kProjector},
    Names{"internvl", kTower, kProjector},
    Names{"qwen2_vl", kVisual, ""},
    Names{"qwen2_5_vl", kVisual, ""},
    Names{"qwen3_vl", kVisual, ""},
    Names{"qwen3_vl_moe", kVisual, ""},
    Names{"qwen3_5", kVisual, ""},
    Names{"qwen3_5_moe", kVisual, ""},
    Names{"qwen3_omni_moe", kVisual, ""},
    Names{"cohere_compass", kVisual, ""},
    Names{"kimi_vl", kTower, kProjector},
    Names{"kimi_k25", kTower, kProjector},
    Names{"minimax_m3_vl", kTower, kProjector},
    Names{"muse_glimmer", kTower, "model.vision_adapter"},
};

struct DecoderName {
  std::string_view model_type;
  std::string_view family;
};
constexpr std::array kDecoders = {
    DecoderName{"step3p7", "step3p5"},     DecoderName{"minimax_m3_vl", "minimax_m3_vl_text"},
    DecoderName{"qwen2_vl", "qwen2"},      DecoderName{"qwen2_vl_text", "qwen2"},
    DecoderName{"qwen2_5_vl", "qwen2"},    DecoderName{"qwen2_5_vl_text", "qwen2"},
    DecoderName{"qwen3_vl_text", "qwen3"}, DecoderName{"qwen3_vl_moe_text", "qwen3_moe"},
};

constexpr std::int64_t kMostSize = std::int64_t{1} << 20;

/// Reads sizes from a section. A missing or out-of-range size makes everything derived from it unknown.
class Sizes {
 public:
  explicit Sizes(const Json& section) : section_(section) {}

  std::int64_t operator()(const char* key) {
    const auto found = section_.find(key);
    const bool good = found != section_.end() && found->is_number_integer() && found->get<double>() >= 1 &&
                      found->get<double>() <= static_cast<double>(kMostSize);
    known_ &= good;
    return good ? found->get<std::int64_t>() : 1;
  }
  std::int64_t operator()(const char* key, std::int64_t otherwise) {
    return section_.contains(key) ? (*this)(key) : otherwise;
  }
  bool flag(const char* key, bool otherwise) const {
    const auto found = section_.find(key);
    return found != section_.end() && found->is_boolean() ? found->get<bool>() : otherwise;
  }
  bool known() const { return known_; }

 private:
  const Json& section_;
  bool known_ = true;
};

std::string text(const Json& section, const char* key) {
  const auto found = section.find(key);
  return found != section.end() && found->is_string() ? found->get<std::string>() : "";
}

/// A transformer encoder with identical layers over the patches of an image.
struct Encoder {
  std::int64_t patch_weights = 0;  ///< of the patch-embedding convolution
  std::int64_t layer_weights = 0;  ///< matrices of one layer
  std::int64_t layer_rest = 0;     ///< its biases and norms
  std::int64_t rest = 0;           ///< positions, norms outside the layers, class token
  std::int64_t after = 0;          ///< matrices after the layers
  std::int64_t patches = 0;        ///< per image; 0: unknown
  std::int64_t class_tokens = 0;
};

void measure(Tower& tower, const Encoder& encoder, const Sizes& sizes) {
  if (!sizes.known()) return;
  const std::int64_t layers = tower.layers;
  tower.parameters =
      encoder.patch_weights + layers * (encoder.layer_weights + encoder.layer_rest) + encoder.rest + encoder.after;
  tower.token_flops = 2 * (static_cast<double>(encoder.patch_weights) +
                           static_cast<double>(layers) * static_cast<double>(encoder.layer_weights));
  if (encoder.patches > 0) tower.set_tokens(encoder.patches + encoder.class_tokens);
}

Tower named(std::string_view fqn, std::string_view what) {
  Tower out;
  out.fqn = fqn;
  out.what = what;
  return out;
}

/// Widths of the layers and their MLPs, and an encoder with the fields that follow from the image size. Also fills in
/// the tower's fields.
struct ImageSizes {
  std::int64_t hidden = 0, wide = 0;
  Encoder encoder = {};
};
ImageSizes image_sizes(Sizes& size, Tower& out) {
  const auto h = size("hidden_size"), f = size("intermediate_size"), patch = size("patch_size"),
             image = size("image_size"), channels = size("num_channels", 3);
  out.hidden = h;
  out.layers = static_cast<int>(size("num_hidden_layers"));
  return {h, f, {.patch_weights = channels * patch * patch * h, .patches = (image / patch) * (image / patch)}};
}

/// CLIP and SigLIP: LayerNorms, an ungated two-layer MLP, biases everywhere.
Tower two_product_vit(const Json& section, std::string_view fqn, bool clip) {
  auto out = named(fqn, clip ? "CLIP" : "SigLIP");
  Sizes size(section);
  auto [h, f, e] = image_sizes(size, out);
  e.class_tokens = clip ? 1 : 0;
  e.layer_weights = 4 * h * h + 2 * h * f;
  e.layer_rest = 4 * h + f + h + 4 * h;
  e.rest = (e.patches + e.class_tokens) * h + 2 * h;  // positions, last norm
  e.rest += clip ? h + 2 * h : h;                     // class token and first norm; patch bias
  if (!clip && size.flag("vision_use_head", true)) {  // attention pooling with one probe, and an MLP
    e.after = 4 * h * h + 2 * h * f;
    e.rest += h + 4 * h + 2 * h + f + h;
  }
  measure(out, e, size);
  return out;
}

/// RMSNorm, gated MLP, no biases; images of any size up to image_size.
Tower pixtral(const Json& section, std::string_view fqn) {
  auto out = named(fqn, "Pixtral");
  Sizes size(section);
  auto [h, f, e] = image_sizes(size, out);
  e.layer_weights = 4 * h * h + 3 * h * f;
  e.layer_rest = 2 * h;
  e.rest = h;
  measure(out, e, size);
  return out;
}

/// Qwen2-VL: ends in a merger that combines patches and projects them to the decoder's width.
Tower qwen2_vit(const Json& section, std::string_view fqn, std::int64_t text_hidden) {
  auto out = named(fqn, kQwen);
  Sizes size(section);
  const auto h = size("embed_dim"), patch = size("patch_size", 14), merge = size("spatial_merge_size", 2),
             frames = size("temporal_patch_size", 2), channels = size("in_channels", size("in_chans", 3)),
             f = size("mlp_ratio", 4) * h;
  out.hidden = h;
  out.layers = static_cast<int>(size("depth"));
  Encoder e;
  e.patch_weights = channels * frames * patch * patch * h;
  e.layer_weights = 4 * h * h + 2 * h * f;
  e.layer_rest = 4 * h + f + h + 4 * h;
  const auto wide = merge * merge * h;
  e.after = wide * wide + wide * text_hidden;
  e.rest = 2 * h + wide + text_hidden;
  measure(out, e, size);
  return out;
}

/// Qwen3-VL's, in models that are only planned: learned positions, and mergers behind some layers (DeepStack).
Tower qwen3_vit(const Json& section, std::string_view fqn, std::int64_t text_hidden) {
  auto out = named(fqn, kQwen);
  Sizes size(section);
  const auto h = size("hidden_size"), f = size("intermediate_size"), patch = size("patch_size"),
             merge = size("spatial_merge_size"), frames = size("temporal_patch_size"),
             positions = size("num_position_embeddings");
  out.hidden = h;
  out.layers = static_cast<int>(size("depth"));
  const auto deep = section.find("deepstack_visual_indexes");
  const auto more = deep != section.end() && deep->is_array() ? static_cast<std::int64_t>(deep->size()) : 0;
  const auto wide = merge * merge * h;
  Encoder e;
  e.patch_weights = size("in_channels", 3) * frames * patch * patch * h;
  e.layer_weights = 4 * h * h + 2 * h * f;
  e.layer_rest = 4 * h + f + h + 4 * h;
  e.after = (1 + more) * (wide * wide + wide * text_hidden);
  e.rest = h + positions * h + 2 * h + more * 2 * wide + (1 + more) * (wide + text_hidden);
  measure(out, e, size);
  return out;
}

/// Kimi's, in models that are only planned: LayerNorms, an ungated MLP, biases everywhere, a table of positions;
/// pictures of any size.
Tower moon_vit(const Json& section, std::string_view fqn) {
  auto out = named(fqn, "MoonViT");
  Sizes size(section);
  const auto h = size("hidden_size"), f = size("intermediate_size"), patch = size("patch_size"),
             frames = size("temporal_patch_size", 1);
  out.hidden = h;
  out.layers = static_cast<int>(size("num_hidden_layers"));
  Encoder e;
  e.patch_weights = size("num_channels", 3) * frames * patch * patch * h;
  e.layer_weights = 4 * h * h + 2 * h * f;
  e.layer_rest = 4 * h + f + h + 4 * h;
  e.rest = h + size("pos_emb_height") * size("pos_emb_width") * h + 2 * h;
  measure(out, e, size);
  return out;
}

Tower vision_of(const Json& section, const std::string& model_type, std::string_view fqn, std::int64_t text_hidden) {
  const auto kind = text(section, "model_type");
  if (model_type == "minimax_m3_vl") return named(fqn, "ViT");  // which its published config calls CLIP's
  if (kind == "clip_vision_model" || kind == "siglip_vision_model")
    return two_product_vit(section, fqn, kind == "clip_vision_model");
  if (kind == "pixtral") return pixtral(section, fqn);
  if (model_type == "qwen2_vl") return qwen2_vit(section, fqn, text_hidden);
  if (model_type == "qwen3_omni_moe" || model_type == "cohere_compass") return qwen3_vit(section, fqn, text_hidden);
  if (model_type == "kimi_vl" || model_type == "kimi_k25") return moon_vit(section, fqn);
  return named(fqn, fqn == kVisual ? kQwen : "vision");
}

/// The projector from the encoder's width to the decoder's.
Tower projector_of(const Json& config, const std::string& model_type, const Tower& vision, std::string_view fqn,
                   std::int64_t text) {
  auto out = named(fqn, "projector");
  const auto from = vision.hidden;
  if (!vision.parameters) return out;
  Sizes size(config);
  std::int64_t weights = 0, rest = 0, tokens = vision.tokens;
  if (model_type == "llava" || model_type == "llava_next") {
    const auto layers = config.find("vision_feature_layer");
    const auto joined = layers != config.end() && layers->is_array() ? static_cast<std::int64_t>(layers->size()) : 1;
    weights = joined * from * text + text * text;
    rest = size.flag("multimodal_projector_bias", true) ? 2 * text : 0;
  } else if (model_type == "gemma3") {
    weights = from * text;
    rest = from;
  } else if (model_type == "paligemma") {
    const auto wide = size("projection_dim", text);
    weights = from * wide;
    rest = wide;
  } else if (model_type == "mistral3") {
    const auto merge = size("spatial_merge_size", 2);
    tokens /= merge * merge;
    weights = merge * merge * from * from + from * text + text * text;
    rest = from + (size.flag("multimodal_projector_bias", false) ? 2 * text : 0);
  } else if (model_type == "kimi_vl" || model_type == "kimi_k25") {  // behind a norm; 2 x 2 patches become one row
    weights = 16 * from * from + 4 * from * text;
    rest = 2 * from + 4 * from + text;
  } else {
    return out;
  }
  if (!size.known()) return out;
  out.parameters = weights + rest;
  out.layers = 1;
  out.hidden = text;
  out.token_flops = 2 * static_cast<double>(weights);
  out.set_tokens(tokens);
  return out;
}

}  // namespace

void Tower::set_tokens(std::int64_t count) {
  tokens = count;
  const double scores = projects() ? 0 : 4.0 * layers * static_cast<double>(count) * static_cast<double>(hidden);
  flops = static_cast<double>(count) * (token_flops + scores);
}

std::string_view decoder_family(std::string_view model_type) {
  for (const auto& row : kDecoders)
    if (row.model_type == model_type) return row.family;
  return "";
}

std::vector<Tower> towers_of(std::string_view config_text, std::int64_t text_hidden) {
  const auto config = Json::parse(config_text, nullptr, false);
  std::vector<Tower> out;
  if (!config.is_object()) return out;
  const auto model_type = text(config, "model_type");
  const auto row =
      std::find_if(kNames.begin(), kNames.end(), [&](const Names& each) { return each.model_type == model_type; });
  const auto names = row != kNames.end() ? *row : Names{model_type, "", ""};
  if (const auto vision = config.find("vision_config"); vision != config.end() && vision->is_object()) {
    out.push_back(vision_of(*vision, model_type, names.vision, text_hidden));
    if (!names.projector.empty())
      out.push_back(projector_of(config, model_type, out.front(), names.projector, text_hidden));
    if (model_type == "muse_glimmer") out.push_back(named("model.vision_projection", "projector"));
    if (model_type == "llava_next") {  // a vector appended to each row of patches
      out.push_back(named("model.image_newline", "parameter"));
      out.back().parameters = text_hidden;
    }
  }
  if (const auto audio = config.find("audio_config"); audio != config.end() && audio->is_object())
    out.push_back(named("", "audio"));
  return out;
}

}  // namespace automodel::arch
