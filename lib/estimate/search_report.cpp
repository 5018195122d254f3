// Search results as text and JSON, with the reasons why the recipe's own configuration is slower.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/json_writer.h"
#include "base/text_table.h"
#include "estimate/search.h"

namespace automodel::estimate {
namespace {

std::string mesh_text(const mesh::MeshSizes& s) {
  std::string out = fmt::format("pp {} tp {} dp {}", s.pp, s.tp, s.dp());
  if (s.cp > 1) out += fmt::format(" cp {}", s.cp);
  if (s.ep > 1) out += fmt::format(" ep {}", s.ep);
  return out;
}

/// What takes longer in the recipe than in the best plan, largest difference first; at most two items.
std::string why(const SearchResult& result) {
  if (!result.own || result.best.empty()) return "";
  const auto &own = *result.own, &best = result.best[0];
  const double more = own.step - best.step;
  if (more <= 0.005 * best.step) return "no tried plan is faster";
  struct Part {
    std::string_view name;
    double own, best;
    double more() const { return own - best; }
  };
  const auto rest = [](const Candidate& c) {
    const auto& p = c.parts;
    return c.step - p.bubble - p.data_parallel - p.optimizer - p.tensor - p.experts;
  };
  std::array parts = {
      Part{"waits of the pipeline", own.parts.bubble, best.parts.bubble},
      Part{"tensor-parallel messages", own.parts.tensor, best.parts.tensor},
      Part{"token dispatch to experts", own.parts.experts, best.parts.experts},
      Part{"exposed data-parallel communication", own.parts.data_parallel, best.parts.data_parallel},
      Part{"the optimizer", own.parts.optimizer, best.parts.optimizer},
      Part{"computing, with what is recomputed and the overhead of each layer", rest(own), rest(best)},
  };
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.more() > b.more(); });
  std::string out;
  for (const auto& part : {parts[0], parts[1]})
    if (part.more() > 0.2 * more)
      out += fmt::format("{}{}: {} instead of {}", out.empty() ? "" : "; ", part.name, format_seconds(part.own),
                         format_seconds(std::max(0.0, part.best)));
  return out;
}

std::string own_text(const SearchResult& result) {
  if (result.best.empty()) return "";
  const double more = result.own->step / result.best[0].step - 1;
  return more <= 0.005 ? fmt::format("recipe    {}\n", why(result))
                       : fmt::format("recipe    {:.0f}% slower than the best: {}\n", 100 * more, why(result));
}

void write(JsonWriter& json, const Candidate& c) {
  json.begin_object();
  json.key("sizes");
  json.begin_object();
  json.member("pp", c.sizes.pp);
  json.member("tp", c.sizes.tp);
  json.member("dp", c.sizes.dp());
  json.member("cp", c.sizes.cp);
  json.member("ep", c.sizes.ep);
  json.end_object();
  json.member("schedule", c.schedule);
  json.member("microbatch", c.microbatch);
  json.member("recompute", c.recompute);
  json.member("reduce", c.reduce);
  json.member("step", c.step);
  json.member("tokens_per_second", c.tokens_per_second);
  json.member("mfu", c.mfu);
  json.member("bubble_fraction", c.bubble);
  json.member("memory", static_cast<std::int64_t>(c.memory));
  json.member("fit", name_of(c.fit));
  json.key("overrides");
  json.begin_object();
  for (const auto& each : c.overrides) json.member(each.key, each.value);
  json.end_object();
  json.end_object();
}

}  // namespace

std::string to_text(const SearchResult& result) {
  std::string out = fmt::format(
      "search    {} ranks of {}{}: {} candidates, {} planned in full, {}\n", result.world_size, result.hardware.name,
      result.hardware.memory ? " with " + format_bytes(*result.hardware.memory) : " with unknown memory",
      result.considered, result.planned, format_seconds(result.seconds));
  TextTable table({"#", "mesh", "schedule", "microbatch", "recompute", "reduce", "step", "tokens/s", "MFU",
                   "est. bubble", "memory"});
  const auto add = [&](const std::string& number, const Candidate& c) {
    const std::string fit = c.fit == Fit::kTight ? " tight" : c.fit == Fit::kDoesNotFit ? " does not fit" : "";
    table.add({number, mesh_text(c.sizes), c.schedule, std::to_string(c.microbatch), c.recompute, c.reduce,
               format_seconds(c.step), format_count(c.tokens_per_second), fmt::format("{:.1f}%", 100 * c.mfu),
               fmt::format("{:.1f}%", 100 * c.bubble), format_bytes(c.memory) + fit});
  };
  for (std::size_t i = 0; i < result.best.size(); ++i) add(std::to_string(i + 1), result.best[i]);
  if (result.own) add("recipe", *result.own);
  if (result.best.empty())
    out += result.untried == 0 ? "  nothing fits\n"
                               : fmt::format("  none of these fits; {} more were not tried, the search took too long\n",
                                             result.untried);
  else
    out += table.text();
  if (!result.best.empty() && result.best[0].fit == Fit::kTight)
    out += "  all of these are tight: above 90% of the memory there is\n";
  if (result.own) out += own_text(result);
  if (!result.refused.empty()) out += "refused\n";
  for (const auto& refusal : result.refused)
    out += fmt::format("  {} x {} ({})\n", refusal.count, refusal.reason, refusal.example);
  return out;
}

std::string to_json(const SearchResult& result) {
  JsonWriter json;
  json.begin_object();
  json.member("world_size", result.world_size);
  json.member("hardware", result.hardware.name);
  json.member("considered", result.considered);
  json.member("planned", result.planned);
  json.member("untried", result.untried);
  json.member("seconds", result.seconds);
  json.key("best");
  json.begin_array();
  for (const auto& c : result.best) {
    write(json, c);
  }
  json.end_array();
  json.key("recipe");
  if (result.own) {
    write(json, *result.own);
    json.member("why", why(result));
  } else {
    json.value(nullptr);
    json.key("why");
    json.value(nullptr);
  }
  json.key("refused");
  json.begin_array();
  for (const auto& refusal : result.refused) {
    json.begin_object();
    json.member("reason", refusal.reason);
    json.member("count", refusal.count);
    json.member("example", refusal.example);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.take();
}

}  // namespace automodel::estimate
