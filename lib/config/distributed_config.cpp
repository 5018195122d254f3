#include "config/distributed_config.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "base/spelling.h"
#include "config/reader.h"
#include "config/scalar.h"

namespace automodel::config {
namespace {

constexpr std::array kScopes = {std::string_view("all"), std::string_view("audio"), std::string_view("language"),
                                std::string_view("multimodal"), std::string_view("vision")};

/// "Language+vision" -> language, vision.
std::vector<std::string> split_scopes(std::string_view text) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == ',' || c == '+')
      out.emplace_back();
    else if (std::isspace(static_cast<unsigned char>(c)) == 0)
      out.back() += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  std::erase(out, "");
  return out;
}

void read_scope(Reader& reader, const Node& node, const std::string& path, void* out) {
  std::vector<std::string> found;
  if (node.kind == Node::Kind::kMap) return reader.mismatch(node, path, "string or list of strings");
  if (node.kind == Node::Kind::kScalar && !node.is_null()) {
    if (scalar_value(node.text, node.quoted).string() == nullptr)
      return reader.mismatch(node, path, "string or list of strings");
    found = split_scopes(node.text);
  }
  for (const auto& item : node.items) {
    if (item.kind != Node::Kind::kScalar || to_value(item).string() == nullptr)
      return reader.mismatch(item, path, "string or list of strings");
    for (auto& scope : split_scopes(item.text)) found.push_back(std::move(scope));
  }
  for (auto& scope : found) {
    if (scope == "default" || scope == "auto") scope = "all";
    if (std::find(kScopes.begin(), kScopes.end(), scope) == kScopes.end())
      return void(reader.refuse("bad-value", path, node.where)
                      .says("{} has no scope '{}'", path, scope)
                      .hint(suggestion(scope, {kScopes.begin(), kScopes.end()})));
  }
  if (found.empty()) found = {"all"};
  if (found.size() > 1 && std::find(found.begin(), found.end(), "all") != found.end())
    return void(reader.refuse("bad-value", path, node.where)
                    .says("{}: 'all' cannot be combined with other scopes", path)
                    .hint("give 'all' alone, or name the towers"));
  static_cast<CheckpointingScope*>(out)->scopes = std::move(found);
}

struct LevelName {
  std::string_view name;
  int level;
  bool less = false;
};
/// The first four are the canonical names, in order of level.
constexpr std::array kLevels = {LevelName{"no_shard", 0},           LevelName{"optim", 1},
                                LevelName{"optim_grads", 2},        LevelName{"optim_grads_params", 3},
                                LevelName{"grads_params", 3, true}, LevelName{"params", 3, true}};

void read_level(Reader& reader, const Node& node, const std::string& path, void* out) {
  auto& level = *static_cast<ShardingLevel*>(out);
  const auto number = node.kind == Node::Kind::kScalar ? parse_integer(node.text) : std::nullopt;
  if (number && *number >= -1000 && *number <= 1000) return void(level = {.level = static_cast<int>(*number)});
  std::vector<std::string_view> names;
  for (const auto& each : kLevels) names.push_back(each.name);
  const int found = detail::read_word(reader, node, path, names);
  if (found < 0) return;
  const auto& chosen = kLevels[static_cast<std::size_t>(found)];
  level = {.level = chosen.level, .named_less = chosen.less};
}

void read_layers_per_stage(Reader& reader, const Node& node, const std::string& path, void* out) {
  auto& value = *static_cast<LayersPerStage*>(out);
  value = {};
  if (node.is_null()) return;
  if (node.kind == Node::Kind::kScalar && node.text == "auto") return void(value.automatic = true);
  const auto read_count = [&](const Node& item) -> std::optional<int> {
    const auto number = item.kind == Node::Kind::kScalar ? parse_integer(item.text) : std::nullopt;
    if (!number || *number < 1 || *number > 1'000'000) {
      reader.mismatch(item, path,
                      "a positive number of layers, auto, null, or a list of every stage's number of layers",
                      "write a whole number such as 4, auto, or a list such as [3, 5]");
      return std::nullopt;
    }
    return static_cast<int>(*number);
  };
  if (node.kind != Node::Kind::kList) return void(value.count = read_count(node));
  for (const auto& item : node.items) {
    const auto count = read_count(item);
    if (!count) return;
    value.counts.push_back(*count);
  }
}

}  // namespace

MixedPrecisionPolicy MixedPrecisionPolicy::standard() {
  MixedPrecisionPolicy policy;
  policy.param_dtype = DType::kBFloat16;
  policy.reduce_dtype = DType::kFloat32;
  policy.cast_forward_inputs = false;
  return policy;
}

bool CheckpointingScope::covers_language() const {
  return std::any_of(scopes.begin(), scopes.end(),
                     [](const auto& scope) { return scope == "all" || scope == "language"; });
}

TypeInfo CheckpointingScope::config_type() {
  return {[]() -> std::string { return "string or list of strings"; }, read_scope,
          [](const void* value, Keys) -> Value {
            Value::List out;
            for (const auto& scope : static_cast<const CheckpointingScope*>(value)->scopes) out.emplace_back(scope);
            return out;
          },
          [] {
            Value out;
            out.set("type", Value::List{"string", "array", "null"});
            return out;
          }};
}

std::string_view name_of_level(int level) {
  return level < 0 || level > 3 ? std::string_view() : kLevels[static_cast<std::size_t>(level)].name;
}

TypeInfo ShardingLevel::config_type() {
  return {[]() -> std::string { return "integer or level"; }, read_level,
          [](const void* value, Keys) -> Value { return static_cast<const ShardingLevel*>(value)->level; },
          [] {
            Value::List names;
            for (int level = 0; level < 4; ++level) names.emplace_back(level);
            for (const auto& each : kLevels) names.emplace_back(each.name);
            Value out;
            out.set("enum", std::move(names));
            return out;
          }};
}

TypeInfo LayersPerStage::config_type() {
  return {[]() -> std::string { return "integer, auto, null or list of integers"; }, read_layers_per_stage,
          [](const void* value, Keys) -> Value {
            const auto& layers = *static_cast<const LayersPerStage*>(value);
            if (layers.automatic) return "auto";
            if (layers.count) return *layers.count;
            if (layers.counts.empty()) return nullptr;
            Value::List out;
            for (const int count : layers.counts) out.emplace_back(count);
            return out;
          },
          [] {
            Value out;
            out.set("type", Value::List{"integer", "string", "array", "null"});
            return out;
          }};
}

plan::Recompute DistributedConfig::asked_checkpointing() const {
  return std::visit([](const auto& held) { return held.activation_checkpointing(); }, strategy());
}

plan::Recompute DistributedConfig::checkpointing() const {
  const bool in_scope = std::visit(
      [](const auto& held) {
        if constexpr (requires { held.activation_checkpointing_scope; })
          return held.activation_checkpointing_scope().covers_language();
        return true;
      },
      strategy());
  return in_scope ? asked_checkpointing() : plan::Recompute::kNone;
}

std::string_view DistributedConfig::strategy_name() const {
  return std::visit([](const auto& held) { return std::remove_cvref_t<decltype(held)>::targets[0]; }, strategy());
}

std::string_view strategy_of(ManagerClass manager) {
  switch (manager) {
    case ManagerClass::kMegatronFsdp: return MegatronFSDPConfig::targets[0];
    case ManagerClass::kDdp: return DDPConfig::targets[0];
    case ManagerClass::kFsdp2: break;
  }
  return FSDP2Config::targets[0];
}

Diagnostics check(const DistributedConfig& config) {
  Diagnostics problems;
  const int pp = config.pp_size().value_or(1);
  if (pp > 1 && !config.pipeline())
    problems.add("missing-key", "pp_size")
        .says("pp_size is {} but there is no distributed.pipeline", pp)
        .hint("add 'pipeline: {}' for its defaults (1F1B, microbatches of one sequence), or remove pp_size");
  if (const auto* megatron = std::get_if<MegatronFSDPConfig>(&config.strategy())) {
    if (const int level = megatron->zero_dp_strategy(); name_of_level(level).empty())
      problems.add("bad-value", "zero_dp_strategy")
          .says("zero_dp_strategy must be 0, 1, 2 or 3, got {}", level)
          .hint("0 shards nothing, 1 optimizer states, 2 also gradients, 3 also parameters");
  }
  if (const auto* ddp = std::get_if<DDPConfig>(&config.strategy()))
    if (const auto& size = ddp->bucket_cap_mb(); size && !(*size > 0))
      problems.add("bad-value", "bucket_cap_mb")
          .says("bucket_cap_mb must be positive, got {}", *size)
          .hint("a size in MiB, or null for 25");
  if (config.pipeline() && config.pipeline()->pp_recv_buffer_pool_slack() < 0)
    problems.add("bad-value", "pipeline.pp_recv_buffer_pool_slack")
        .says("pp_recv_buffer_pool_slack must be >= 0, got {}", config.pipeline()->pp_recv_buffer_pool_slack())
        .hint("remove the key: it has no effect here");
  if (config.pipeline() && !config.pipeline()->pp_schedule() && !config.pipeline()->pp_schedule_csv())
    problems.add("missing-key", "pipeline.pp_schedule")
        .says("a pipeline needs pp_schedule or pp_schedule_csv")
        .hint("for example pp_schedule: 1F1B");
  return problems;
}

}  // namespace automodel::config
