#include "arch/layout.h"

#include "base/error.h"

namespace automodel::arch {
void LayerBuilder::name(Part part, std::string_view module) {
  auto& slot = out_.modules[static_cast<std::size_t>(part)];
  AUTOMODEL_CHECK(slot.empty() || slot == module, "two modules have the same role in a layer");
  slot = module;
}

void LayerBuilder::add(Part part, ParameterTemplate parameter) {
  parameter.role = role_of(part);
  parameter.part = part;
  parameter.copies = copies_;
  out_.parameters.push_back(std::move(parameter));
}

void LayerBuilder::linear(Part part, std::string_view module, std::int64_t in, std::int64_t out, bool bias) {
  const std::string prefix(module);
  name(part, module);
  add(part, {.name = prefix + ".weight", .shape = {out, in}, .matrix = true});
  if (bias) add(part, {.name = prefix + ".bias", .shape = {out}, .initial = Initial::kZero});
}

void LayerBuilder::transposed(Part part, std::string_view module, std::int64_t in, std::int64_t out) {
  const std::string prefix(module);
  name(part, module);
  add(part, {.name = prefix + ".weight", .shape = {in, out}, .matrix = true, .transposed = true});
  add(part, {.name = prefix + ".bias", .shape = {out}, .initial = Initial::kZero});
}

void LayerBuilder::norm(Part part, std::string_view module, std::int64_t width) {
  name(part, module);
  for (auto& parameter : norm_parameters(spec_, module, width)) add(part, std::move(parameter));
}

void LayerBuilder::head_norms(std::string_view query, std::string_view key) {
  if (!spec_.head_norm || !spec_.head_norm->weight) return;
  const auto& norm = *spec_.head_norm;
  const bool plus = norm.kind == NormKind::kRmsNorm && spec_.norm_scale == NormScale::kOnePlusInFloat;
  const auto add_norm = [&](Part part, std::string_view module, std::int64_t heads) {
    const std::string prefix(module);
    const bool apart = module.find("{}") != std::string_view::npos;
    auto shape = Shape{spec_.head_dim};
    if (norm.span == HeadNorm::Span::kEachHead && !apart) shape = {heads, spec_.head_dim};
    if (norm.span == HeadNorm::Span::kAllHeads) shape = {heads * spec_.head_dim};
    if (apart) copies(static_cast<int>(heads));
    name(part, module);
    add(part, {.name = prefix + ".weight", .shape = shape, .initial = plus ? Initial::kZero : Initial::kOne});
    if (norm.bias) add(part, {.name = prefix + ".bias", .shape = shape, .initial = Initial::kZero});
    copies(1);
  };
  add_norm(Part::kQueryNorm, query, spec_.heads);
  add_norm(Part::kKeyNorm, key, spec_.kv_heads);
}

void LayerBuilder::rms_norm(Part part, std::string_view module, std::int64_t width) {
  const auto start = spec_.norm_scale == NormScale::kOnePlusInFloat ? Initial::kZero : Initial::kOne;
  name(part, module);
  add(part, {.name = std::string(module) + ".weight", .shape = {width}, .initial = start});
}

void LayerBuilder::layer_norm(Part part, std::string_view module, std::int64_t width) {
  const std::string prefix(module);
  name(part, module);
  add(part, {.name = prefix + ".weight", .shape = {width}, .initial = Initial::kOne});
  add(part, {.name = prefix + ".bias", .shape = {width}, .initial = Initial::kZero});
}

void LayerBuilder::conv(Part part, std::string_view module, std::int64_t channels, int taps, bool bias) {
  const std::string prefix(module);
  name(part, module);
  add(part, {.name = prefix + ".weight", .shape = {channels, 1, taps}});
  if (bias) add(part, {.name = prefix + ".bias", .shape = {channels}, .initial = Initial::kZero});
}

void LayerBuilder::numbers(Part part, std::string_view tensor_name, Shape shape, Initial initial, double start) {
  tensor(part, tensor_name, {.name = std::string(tensor_name), .shape = shape, .initial = initial, .start = start});
}

void LayerBuilder::tensor(Part part, std::string_view module, ParameterTemplate parameter) {
  name(part, module);
  add(part, std::move(parameter));
}

ParameterTemplate table(std::string name, std::int64_t rows, std::int64_t width, Role role) {
  return {.name = std::move(name), .shape = {rows, width}, .role = role};
}

std::vector<ParameterTemplate> norm_parameters(const ModelSpec& spec, std::string_view name, std::int64_t width) {
  std::vector<ParameterTemplate> out;
  const std::string prefix(name);
  const auto start = spec.norm_scale == NormScale::kOnePlusInFloat ? Initial::kZero : Initial::kOne;
  if (spec.norm_weight)
    out.push_back({.name = prefix + ".weight", .shape = {width}, .role = Role::kNorm, .initial = start});
  if (spec.norm_bias)
    out.push_back({.name = prefix + ".bias", .shape = {width}, .role = Role::kNorm, .initial = Initial::kZero});
  return out;
}

}  // namespace automodel::arch
