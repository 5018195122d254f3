#include "config/peft_config.h"

#include "config/reader.h"
#include "config/scalar.h"

namespace automodel::config {
namespace {

void read_patterns(Reader& reader, const Node& node, const std::string& path, void* out) {
  constexpr const char* kWanted = "string or list of strings";
  auto& patterns = static_cast<ModulePatterns*>(out)->patterns;
  patterns.clear();
  if (node.is_null()) return;
  if (node.kind == Node::Kind::kMap) return reader.mismatch(node, path, kWanted);
  const auto add = [&](const Node& item) {
    const auto value = item.kind == Node::Kind::kScalar ? to_value(item) : Value();
    if (value.string() == nullptr || value.string()->empty()) return reader.mismatch(item, path, kWanted);
    patterns.push_back(*value.string());
  };
  if (node.kind == Node::Kind::kList)
    for (const auto& item : node.items) add(item);
  else
    add(node);
}

}  // namespace

TypeInfo ModulePatterns::config_type() {
  return {[]() -> std::string { return "string or list of strings"; }, read_patterns,
          [](const void* value, Keys) -> Value {
            Value::List out;
            for (const auto& pattern : static_cast<const ModulePatterns*>(value)->patterns) out.emplace_back(pattern);
            return out;
          },
          [] {
            Value out;
            out.set("type", Value::List{"string", "array", "null"});
            return out;
          }};
}

Diagnostics check(const PeftConfig& config) {
  Diagnostics problems;
  const bool targets = !config.target_modules->patterns.empty(), excludes = !config.exclude_modules->patterns.empty();
  if (targets && excludes)
    problems.add("bad-value", "exclude_modules")
        .says("target_modules and exclude_modules cannot both be given")
        .hint("target_modules names what gets an adapter, exclude_modules what gets none");
  if (config.match_all_linear() && (targets || excludes))
    problems.add("bad-value", "match_all_linear")
        .says("match_all_linear selects every linear module, but modules are named as well")
        .hint("remove match_all_linear, or the names");
  return problems;
}

}  // namespace automodel::config
