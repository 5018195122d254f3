#include "config/training_config.h"

#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "base/spelling.h"
#include "config/reader.h"
#include "config/run_config.h"
#include "config/scalar.h"

namespace automodel::config {
namespace {

constexpr std::array<std::pair<std::string_view, int>, 7> kSignals = {{{"SIGTERM", SIGTERM},
                                                                       {"SIGINT", SIGINT},
                                                                       {"SIGUSR1", SIGUSR1},
                                                                       {"SIGUSR2", SIGUSR2},
                                                                       {"SIGHUP", SIGHUP},
                                                                       {"SIGQUIT", SIGQUIT},
                                                                       {"SIGXCPU", SIGXCPU}}};

void read_signals(Reader& reader, const Node& node, const std::string& path, void* out) {
  auto& signals = static_cast<SignalList*>(out)->signals;
  signals.clear();
  const auto add = [&](const Node& item) {
    if (item.kind == Node::Kind::kScalar) {
      for (const auto& [name, number] : kSignals)
        if (item.text == name || item.text == name.substr(3) || item.text == std::to_string(number))
          return signals.push_back(number);
    }
    std::vector<std::string_view> names;
    for (const auto& [name, number] : kSignals) names.push_back(name);
    reader.refuse("bad-value", path, item.where)
        .says("{} must name a signal, got '{}'", path, item.text)
        .hint(suggestion(item.text, names));
  };
  if (node.kind == Node::Kind::kList)
    for (const auto& item : node.items) add(item);
  else if (!node.is_null())
    add(node);
}

void read_trace(Reader& reader, const Node& node, const std::string& path, void* out) {
  auto& choice = *static_cast<TraceChoice*>(out);
  choice = {};
  if (node.is_null()) return;
  if (node.kind == Node::Kind::kScalar) {
    const auto value = to_value(node);
    if (value.string() == nullptr || value.string()->empty())
      return reader.mismatch(node, path, "file name or list of steps", "trace.json, or [1, 100]");
    choice.file = *value.string();
    return;
  }
  reader.read(node, path, choice.steps);
  for (const auto step : choice.steps)
    if (step < 0)
      reader.refuse("bad-value", path, node.where).says("{} is not a step", step).hint("steps count from 0");
}

}  // namespace

TypeInfo SignalList::config_type() {
  return {[]() -> std::string { return "signal name, list of them or null"; }, read_signals,
          [](const void* value, Keys) -> Value {
            Value::List out;
            for (const int signal : static_cast<const SignalList*>(value)->signals)
              for (const auto& [name, number] : kSignals)
                if (number == signal) out.emplace_back(name);
            if (out.empty()) return nullptr;
            return out.size() == 1 ? out.front() : Value(out);
          },
          [] {
            Value out;
            out.set("type", Value::List{"string", "integer", "array", "null"});
            return out;
          }};
}

TypeInfo TraceChoice::config_type() {
  return {[]() -> std::string { return "file name or list of steps"; }, read_trace,
          [](const void* value, Keys) -> Value {
            const auto& choice = *static_cast<const TraceChoice*>(value);
            if (choice.file) return *choice.file;
            if (choice.steps.empty()) return nullptr;
            Value::List out;
            for (const auto step : choice.steps) out.emplace_back(step);
            return out;
          },
          [] {
            Value out;
            out.set("type", Value::List{"string", "array", "null"});
            return out;
          }};
}

}  // namespace automodel::config
