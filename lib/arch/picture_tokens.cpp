#include "arch/picture_tokens.h"

#include <string>

#include <nlohmann/json.hpp>

#include "base/json_depth.h"

namespace automodel::arch {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostSide = 1 << 14, kMostTokens = 1 << 16;  // pixels; tokens of a picture

/// A whole number from `least` to `most` below `key`; -1 if it is another or missing.
std::int64_t number(const Json& section, const char* key, std::int64_t least, std::int64_t most) {
  const auto found = section.find(key);
  const bool good = found != section.end() && found->is_number_integer() && *found >= least && *found <= most;
  return good ? found->get<std::int64_t>() : -1;
}

std::string word(const Json& section, const char* key, const char* otherwise) {
  const auto found = section.find(key);
  return found == section.end() ? otherwise : found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::optional<PictureTokens> picture_tokens(std::string_view config_text) {
  const auto config = nesting_of(config_text) > kDeepestJson ? Json() : Json::parse(config_text, nullptr, false);
  if (!config.is_object() || word(config, "model_type", "") != "llava") return std::nullopt;
  const auto vision = config.find("vision_config");
  if (vision == config.end() || !vision->is_object() || word(*vision, "model_type", "") != "clip_vision_model")
    return std::nullopt;
  const auto side = number(*vision, "image_size", 1, kMostSide), patch = number(*vision, "patch_size", 1, kMostSide);
  const auto id = number(config, config.contains("image_token_index") ? "image_token_index" : "image_token_id", 0,
                         std::int64_t{1} << 26);
  const auto strategy = word(config, "vision_feature_select_strategy", "default");
  if (side < 0 || patch < 0 || patch > side || id < 0 || (strategy != "default" && strategy != "full"))
    return std::nullopt;
  const auto across = side / patch;
  if (across * across >= kMostTokens) return std::nullopt;
  const auto tokens = across * across + (strategy == "full" ? 1 : 0);  // with the class token's row
  return PictureTokens{static_cast<std::int32_t>(id), static_cast<int>(tokens)};
}

}  // namespace automodel::arch
