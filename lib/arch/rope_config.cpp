#include "arch/rope_config.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "arch/model_spec.h"
#include "base/spelling.h"

namespace automodel::arch {
namespace {

constexpr std::array<std::pair<std::string_view, RopeKind>, 9> kKinds = {{
    {"default", RopeKind::kDefault},
    {"linear", RopeKind::kLinear},
    {"dynamic", RopeKind::kDynamic},
    {"llama3", RopeKind::kLlama3},
    {"yarn", RopeKind::kYarn},
    {"longrope", RopeKind::kLongRope},
    {"su", RopeKind::kLongRope},  // longrope's name in the first Phi-3 configs
    {"proportional", RopeKind::kProportional},
    {"mrope", RopeKind::kDefault},  // for text, all three position axes are equal
}};

RopeKind read_kind(ConfigReader& scaling) {
  const auto name = scaling.text({"rope_type", "type"}, "default");
  std::vector<std::string_view> known;
  for (const auto& [text, kind] : kKinds) {
    if (text == name) return kind;
    known.push_back(text);
  }
  scaling.bad_value(scaling.has("rope_type") ? "rope_type" : "type", fmt::format("unknown RoPE kind '{}'", name),
                    suggestion(name, known));
  return RopeKind::kDefault;
}

double required_number(ConfigReader& scaling, std::string_view key, RopeKind kind) {
  const auto value = scaling.number(key);
  if (value && *value > 0) return *value;
  const auto help = fmt::format("RoPE of kind {} needs it, a number above 0", name_of(kind));
  if (value)
    scaling.bad_value(key, fmt::format("'{}' is {}", key, *value), help);
  else if (!scaling.has(key))
    scaling.refuse("missing-key", key).says("'{}' is missing", key).hint(help);
  return 1.0;
}

/// Treats 0 as absent, as Python's `or` does.
std::optional<double> nonzero(std::optional<double> number) {
  return number && *number != 0 ? number : std::nullopt;
}

std::vector<double> read_factors(ConfigReader& scaling, std::string_view key, int rotary_dim) {
  auto out = scaling.numbers(key);
  const auto wanted = static_cast<std::size_t>(rotary_dim / 2);
  if (out.empty() && !scaling.has(key))
    scaling.refuse("missing-key", key)
        .says("'{}' is missing", key)
        .hint("longrope needs it: a list of {} numbers", wanted);
  else if (out.size() != wanted)
    scaling.bad_value(key, fmt::format("'{}' has {} numbers", key, out.size()),
                      fmt::format("it needs one for each pair of rotated dimensions: {}", wanted));
  return out;
}

/// Reads the settings specific to a kind.
void read_kind_numbers(ConfigReader& scaling, Rope& rope) {
  switch (rope.kind) {
    case RopeKind::kNone:
    case RopeKind::kDefault: return;
    case RopeKind::kProportional:
      rope.factor = scaling.number({"factor"}, 1);
      if (scaling.good({"factor"}) && rope.factor <= 0)
        scaling.bad_value("factor", fmt::format("'factor' is {}", rope.factor), "it must be more than 0");
      return;
    case RopeKind::kLinear:
    case RopeKind::kDynamic: rope.factor = required_number(scaling, "factor", rope.kind); return;
    case RopeKind::kLlama3:
      rope.factor = required_number(scaling, "factor", rope.kind);
      rope.low_freq_factor = required_number(scaling, "low_freq_factor", rope.kind);
      rope.high_freq_factor = required_number(scaling, "high_freq_factor", rope.kind);
      if (scaling.good({"low_freq_factor", "high_freq_factor"}) && rope.high_freq_factor <= rope.low_freq_factor)
        scaling.bad_value(
            "high_freq_factor",
            fmt::format("'high_freq_factor' is {}, 'low_freq_factor' {}", rope.high_freq_factor, rope.low_freq_factor),
            "high_freq_factor must be the larger one");
      return;
    case RopeKind::kYarn:
      rope.factor = required_number(scaling, "factor", rope.kind);
      rope.beta_fast = scaling.number({"beta_fast"}, 32.0);
      rope.beta_slow = scaling.number({"beta_slow"}, 1.0);
      rope.truncate = scaling.boolean({"truncate"}, true);
      rope.mscale = nonzero(scaling.number("mscale"));
      rope.mscale_all_dim = nonzero(scaling.number("mscale_all_dim"));
      rope.attention_factor = scaling.number("attention_factor");
      return;
    case RopeKind::kLongRope: break;
  }
  rope.short_factor = read_factors(scaling, "short_factor", rope.rotary_dim);
  rope.long_factor = read_factors(scaling, "long_factor", rope.rotary_dim);
  rope.attention_factor = scaling.number("attention_factor");
}

/// M-RoPE (Qwen2-VL): sections of the frequencies, which rotate by different axes of a picture. They mean nothing for
/// text alone; a model with pictures checks them (vision.cpp).
void read_sections(ConfigReader& scaling, Rope& rope) {
  scaling.ignore({"mrope_section", "mrope_interleaved"});
  const auto sections = scaling.numbers("mrope_section");
  if (sections.size() != rope.sections.size() ||
      std::any_of(sections.begin(), sections.end(), [](double each) { return !(each >= 0 && each <= kMostWidth); }))
    return;
  rope.sections_alternate = scaling.boolean({"mrope_interleaved"}, false);
  for (std::size_t i = 0; i < sections.size(); ++i) rope.sections[i] = static_cast<int>(sections[i]);
}

bool extends_context(RopeKind kind) {
  return kind == RopeKind::kLlama3 || kind == RopeKind::kYarn || kind == RopeKind::kLongRope;
}

}  // namespace

std::optional<ConfigReader> rope_settings(ConfigReader& config) {
  return config.child(config.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
}

Rope read_rope(ConfigReader& config, const RopeDefaults& defaults, std::string_view layer_type) {
  config.ignore({"rope_scaling", "rope_parameters"});
  auto scaling = rope_settings(config);
  if (scaling && scaling->has(layer_type)) scaling = scaling->child(layer_type);

  Rope rope;
  const auto beside = defaults.lists ? std::nullopt : config.number("rope_theta");
  rope.theta = beside.value_or(defaults.theta);
  double partial = config.number({"partial_rotary_factor"}, defaults.partial.value_or(1.0));
  const int original_beside = config.integer({"original_max_position_embeddings"}, 0, 1, kMostPositions);
  if (scaling) {
    rope.kind = read_kind(*scaling);
    rope.theta = scaling->number({"rope_theta"}, rope.theta);
    partial = scaling->number({"partial_rotary_factor"}, partial);
  }
  if (rope.theta <= 0)
    config.bad_value("rope_theta", fmt::format("'rope_theta' is {}", rope.theta), "it must be above 0");
  if (partial <= 0 || partial > 1) {
    config.bad_value("partial_rotary_factor", fmt::format("'partial_rotary_factor' is {}", partial),
                     "it must be above 0 and at most 1");
    partial = 1;
  } else if (!defaults.partial && partial != 1) {
    config.bad_value("partial_rotary_factor", fmt::format("'partial_rotary_factor' is {}", partial),
                     "models of this family rotate whole heads, and transformers does not read the key: leave it out");
  }
  const bool whole = rope.kind == RopeKind::kProportional;
  rope.rotary_dim = whole ? defaults.head_dim : static_cast<int>(defaults.head_dim * partial);
  if (whole) rope.share = partial;
  if (!scaling) return rope;
  scaling->ignore({"original_max_position_embeddings"});  // no meaning for kinds that do not extend the context
  read_sections(*scaling, rope);
  read_kind_numbers(*scaling, rope);
  if (extends_context(rope.kind)) {
    const int original = scaling->integer({"original_max_position_embeddings"}, 0, 1, kMostPositions);
    rope.original_max_positions = original_beside > 0 ? original_beside
                                  : original > 0      ? original
                                                      : defaults.max_positions;
  } else if (rope.kind == RopeKind::kDynamic) {
    rope.original_max_positions = defaults.max_positions;
  }
  if (rope.kind == RopeKind::kLongRope)
    rope.factor =
        scaling->number({"factor"}, static_cast<double>(defaults.max_positions) / rope.original_max_positions);
  return rope;
}

bool has_partial_rotary(ConfigReader& config) {
  const auto rope = rope_settings(config);
  return config.has("partial_rotary_factor") || (rope && rope->has("partial_rotary_factor"));
}

}  // namespace automodel::arch
