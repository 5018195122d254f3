#include "report/plan_diff.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/json_writer.h"
#include "base/text_table.h"
#include "base/utf8.h"
#include "base/version.h"
#include "config/differences.h"
#include "plan/facts.h"
#include "report/plan_verdict.h"

namespace automodel::report {
namespace {

struct Change {
  std::string name;           ///< "batch.global_batch_size"
  std::string before, after;  ///< JSON
  plan::Affects affects = {};
};

/// The value at a dotted path.
const config::Value* find_path(const config::Value& root, std::string_view path) {
  const config::Value* value = &root;
  for (std::size_t dot = 0; value != nullptr && dot != std::string_view::npos;) {
    dot = path.find('.');
    value = value->find(path.substr(0, dot));
    if (dot != std::string_view::npos) path.remove_prefix(dot + 1);
  }
  return value;
}

std::vector<Change> changed_keys(const config::Recipe& before, const config::Recipe& after) {
  const auto old_values = config::to_dict(before), new_values = config::to_dict(after);
  std::vector<Change> out;
  for (const auto& each : config::differences(before, after)) {
    const auto shown = [&](const config::Value& values) {
      const auto* found = find_path(values, each.key);
      return found == nullptr ? std::string("null") : config::to_json(*found);
    };
    out.push_back({each.key, shown(old_values), shown(new_values)});
  }
  return out;
}

/// Decisions that differ, with all that each of them affects.
std::vector<Change> changed_decisions(const plan::TrainingPlan& before, const plan::TrainingPlan& after) {
  const auto old_facts = plan::facts_of(before), new_facts = plan::facts_of(after);
  const std::array<std::pair<plan::Effect, config::Value>, 3> effects = {
      {{&plan::Affects::numbers, plan::facts_of(after, &plan::Affects::numbers)},
       {&plan::Affects::time, plan::facts_of(after, &plan::Affects::time)},
       {&plan::Affects::memory, plan::facts_of(after, &plan::Affects::memory)}}};
  std::vector<Change> out;
  if (new_facts.map() == nullptr) return out;
  for (const auto& [part, facts] : *new_facts.map()) {
    if (facts.map() == nullptr) continue;
    for (const auto& [name, value] : *facts.map()) {
      const auto* section = old_facts.find(part);
      const auto* old_value = section == nullptr ? nullptr : section->find(name);
      if (old_value != nullptr && *old_value == value) continue;
      Change change{part + "." + name, old_value == nullptr ? "null" : config::to_json(*old_value),
                    config::to_json(value)};
      for (const auto& [effect, values] : effects) {
        const auto* affected = values.find(part);
        change.affects.*effect = affected != nullptr && affected->find(name) != nullptr;
      }
      out.push_back(std::move(change));
    }
  }
  return out;
}

std::string words(const plan::Affects& affects) {
  std::vector<std::string_view> out;
  if (affects.numbers) out.push_back("numbers");
  if (affects.time) out.push_back("time");
  if (affects.memory) out.push_back("memory");
  return fmt::format("{}", fmt::join(out, ", "));
}

/// Long values, such as lists of modules, keep their beginning.
std::string cell(const std::string& json) {
  return printable(json, 40);
}

std::string table(const std::vector<Change>& changes, const char* first, bool effects) {
  TextTable out(effects ? std::vector<std::string>{first, "before", "after", "affects"}
                        : std::vector<std::string>{first, "before", "after"});
  for (const auto& each : changes) {
    std::vector<std::string> row = {each.name, cell(each.before), cell(each.after)};
    if (effects) row.push_back(words(each.affects));
    out.add(std::move(row));
  }
  return out.text();
}

void write_changes(JsonWriter& json, std::string_view name, const std::vector<Change>& changes, bool decisions) {
  json.key(name);
  json.begin_array();
  for (const auto& each : changes) {
    json.begin_object();
    json.member(decisions ? "decision" : "key", each.name);
    json.key("before");
    json.document(each.before);
    json.key("after");
    json.document(each.after);
    if (decisions) {
      json.member("numbers", each.affects.numbers);
      json.member("time", each.affects.time);
      json.member("memory", each.affects.memory);
    }
    json.end_object();
  }
  json.end_array();
}

void write_costs(JsonWriter& json, std::string_view name, const estimate::EstimatedPlan& plan) {
  json.key(name);
  if (!plan.estimate) return json.value(nullptr);
  json.begin_object();
  json.member("memory", plan.estimate->memory.peak());
  json.member("step", plan.estimate->time.step);
  json.member("tokens_per_second", plan.estimate->time.tokens_per_second);
  json.end_object();
}

std::string ratio(double before, double after) {
  return before > 0 ? fmt::format("x {:.3g}", after / before) : "";
}

}  // namespace

std::string diff_to_text(const Planned& before, const Planned& after) {
  const auto keys = changed_keys(before.loaded.recipe, after.loaded.recipe);
  auto decisions = changed_decisions(before.plan, after.plan);
  // Whole sections, whose keys are listed below.
  std::erase_if(decisions, [](const Change& each) { return each.name.starts_with("settings."); });
  std::string out = fmt::format("before    {}: {}\nafter     {}: {}\n", printable(before.loaded.path),
                                verdict(before.plan), printable(after.loaded.path), verdict(after.plan));
  if (before.plan.estimate && after.plan.estimate) {
    const auto &one = *before.plan.estimate, &other = *after.plan.estimate;
    TextTable costs({"estimate", "before", "after", "ratio"});
    costs.add({"memory of the heaviest rank", format_bytes(one.memory.peak()), format_bytes(other.memory.peak()),
               ratio(one.memory.peak(), other.memory.peak())});
    costs.add({"time of a step", format_seconds(one.time.step), format_seconds(other.time.step),
               ratio(one.time.step, other.time.step)});
    costs.add({"tokens per second", format_count(one.time.tokens_per_second),
               format_count(other.time.tokens_per_second),
               ratio(one.time.tokens_per_second, other.time.tokens_per_second)});
    out += costs.text();
  }
  out += decisions.empty() ? "decisions equal\n" : "decisions\n" + table(decisions, "decision", true);
  out += keys.empty() ? "keys      equal\n" : "keys of the recipes\n" + table(keys, "key", false);
  return out;
}

std::string diff_to_json(const Planned& before, const Planned& after) {
  JsonWriter json;
  json.begin_object();
  json.member("automodel", kVersion);
  json.member("recipe", before.loaded.path);
  json.member("other", after.loaded.path);
  write_changes(json, "keys", changed_keys(before.loaded.recipe, after.loaded.recipe), false);
  write_changes(json, "decisions", changed_decisions(before.plan, after.plan), true);
  write_costs(json, "before", before.plan);
  write_costs(json, "after", after.plan);
  json.end_object();
  return json.take();
}

}  // namespace automodel::report
