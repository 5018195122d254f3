#include "arch/layout.h"

#include <array>

namespace automodel::arch {

namespace {

constexpr std::array<std::string_view, kRoleCount> kRoleNames = {
    "embedding", "positions", "norm", "attention", "mlp", "router", "experts", "shared experts", "head", "adapters"};

}  // namespace

std::string_view name_of(Role role) {
  return kRoleNames[static_cast<std::size_t>(role)];
}

void LayerBuilder::linear(std::string_view name, std::int64_t in, std::int64_t out, bool bias, Role role) {
  matrix(std::string(name) + ".weight", {out, in}, role);
  if (bias) tensor(std::string(name) + ".bias", {out}, role);
}

void LayerBuilder::conv1d(std::string_view name, std::int64_t in, std::int64_t out, Role role) {
  matrix(std::string(name) + ".weight", {in, out}, role);
  tensor(std::string(name) + ".bias", {out}, role);
}

void LayerBuilder::norm(std::string_view name, std::int64_t width, bool bias) {
  tensor(std::string(name) + ".weight", {width}, Role::kNorm);
  if (bias) tensor(std::string(name) + ".bias", {width}, Role::kNorm);
}

void LayerBuilder::matrix(std::string_view name, Shape shape, Role role) {
  out_.push_back({std::string(name), shape, role, copies_, true, true});
}

void LayerBuilder::tensor(std::string_view name, Shape shape, Role role, bool trainable) {
  out_.push_back({std::string(name), shape, role, copies_, false, trainable});
}

}  // namespace automodel::arch
