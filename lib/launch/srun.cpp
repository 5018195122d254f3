#include "launch/srun.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace automodel::launch {
namespace {

constexpr std::size_t kMostHosts = 1 << 16;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// A non-negative integer.
std::optional<int> whole_number(std::string_view text) {
  int out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size() && out >= 0 ? std::optional(out) : std::nullopt;
}

/// The number that `text`, or its part before `until`, represents; 0 if it is not one.
int number_of(std::string_view text, char until = '\0') {
  if (until != '\0') text = text.substr(0, text.find(until));
  return whole_number(text).value_or(0);
}

[[noreturn]] void refuse(std::string_view list) {
  throw Error(Diagnostic{"usage"}
                  .says("'{}' is not a list of hosts", list)
                  .hint("node1,node2 or node[01-16,20], as scontrol show hostnames takes it")
                  .at({"command line", 0, 0}));
}

/// Splits at commas outside brackets.
std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> out;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') inside = true;
    if (i < list.size() && list[i] == ']') inside = false;
    if (i < list.size() && (inside || list[i] != ',')) continue;
    if (i > begin) out.push_back(list.substr(begin, i - begin));
    begin = i + 1;
  }
  return out;
}

/// Expands "rack[1-2]n[01-03]": handles the first brackets here, the rest by recursion.
void add_expanded(std::vector<std::string>& out, const std::string& prefix, std::string_view pattern,
                  std::string_view list) {
  const auto open = pattern.find('[');
  if (open == std::string_view::npos) {
    if (pattern.find(']') != std::string_view::npos || out.size() >= kMostHosts) refuse(list);
    out.push_back(prefix + std::string(pattern));
    return;
  }
  const auto close = pattern.find(']', open);
  if (close == std::string_view::npos) refuse(list);
  const auto ranges = parts_of(pattern.substr(open + 1, close - open - 1));
  if (ranges.empty()) refuse(list);
  for (const auto range : ranges) {
    const auto dash = range.find('-');
    const auto low_text = range.substr(0, dash);
    const auto high_text = dash == std::string_view::npos ? low_text : range.substr(dash + 1);
    const auto low = whole_number(low_text), high = whole_number(high_text);
    if (!low || !high || *high < *low || static_cast<std::size_t>(*high - *low) >= kMostHosts) refuse(list);
    for (int number = *low; number <= *high; ++number)
      add_expanded(out, fmt::format("{}{}{:0{}}", prefix, pattern.substr(0, open), number, low_text.size()),
                   pattern.substr(close + 1), list);
  }
}

/// The value of the option at `at`, as "--long VALUE", "--long=VALUE", "-s VALUE" or "-sVALUE"; advances `at` to the
/// option's last word.
std::optional<std::string> value_of(const std::vector<std::string>& words, std::size_t& at, std::string_view letter,
                                    std::string_view name) {
  const auto& word = words[at];
  if (word.starts_with(name) && word.size() > name.size() && word[name.size()] == '=')
    return word.substr(name.size() + 1);
  if (!letter.empty() && word.starts_with(letter) && word.size() > letter.size() && word[1] != '-')
    return word.substr(letter.size());
  if ((word == name || (!letter.empty() && word == letter)) && at + 1 < words.size()) return words[++at];
  return std::nullopt;
}

}  // namespace

Allocation this_allocation() {
  auto hosts = variable("SLURM_JOB_NODELIST");
  if (hosts.empty()) return {};
  auto counts = variable("SLURM_TASKS_PER_NODE");
  return {std::move(hosts), std::move(counts), number_of(variable("SLURM_NTASKS"))};
}

bool starts_with_srun(const std::vector<std::string>& starter) {
  return !starter.empty() && std::filesystem::path(starter[0]).filename() == "srun";
}

std::vector<std::string> expand_hosts(std::string_view list) {
  std::vector<std::string> out;
  for (const auto part : parts_of(list)) add_expanded(out, "", part, list);
  return out;
}

std::vector<int> expand_counts(std::string_view list) {
  std::vector<int> out;
  for (const auto part : parts_of(list)) {
    const auto times = part.find("(x");
    const int each = number_of(part.substr(0, times));
    const int count = times == std::string_view::npos ? 1 : number_of(part.substr(times + 2), ')');
    if (each == 0 || count == 0 || out.size() + static_cast<std::size_t>(count) > kMostHosts) return {};
    out.insert(out.end(), static_cast<std::size_t>(count), each);
  }
  return out;
}

HostJob take_apart_srun(const std::vector<std::string>& starter, const Allocation& allocation) {
  HostJob out{.starter = Starter::kSrun};
  int nodes = 0, per_node = 0;
  std::string named;
  for (std::size_t i = 0; i < starter.size(); ++i) {
    if (const auto tasks = value_of(starter, i, "-n", "--ntasks"))
      out.ranks = number_of(*tasks);
    else if (const auto count = value_of(starter, i, "-N", "--nodes"))
      nodes = number_of(*count, '-');  // the minimum of "2-4"
    else if (const auto each = value_of(starter, i, "", "--ntasks-per-node"))
      per_node = number_of(*each);
    else if (const auto list = value_of(starter, i, "-w", "--nodelist"))
      named = *list;
    else
      out.words.push_back(starter[i]);
  }
  const auto hosts = expand_hosts(named.empty() ? allocation.hosts : named);
  const auto counts = named.empty() ? expand_counts(allocation.tasks_per_node) : std::vector<int>{};
  const bool spares = nodes > 0 && static_cast<std::size_t>(nodes) < hosts.size();
  const auto used = spares ? nodes : static_cast<int>(hosts.size());
  if (out.ranks == 0 && per_node > 0) out.ranks = per_node * used;
  if (out.ranks == 0) out.ranks = allocation.tasks;
  const int share = used == 0 ? 0 : (out.ranks + used - 1) / used;
  // The allocation's per-node counts apply if the command asks for exactly its tasks.
  const bool as_allocated = per_node == 0 && !spares && counts.size() == hosts.size() && out.ranks == allocation.tasks;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    out.hosts.push_back({hosts[i], std::max(1, per_node > 0 ? per_node : as_allocated ? counts[i] : share)});
  if (spares) out.at_once = static_cast<std::size_t>(nodes);
  if (out.ranks == 0)
    for (const auto& host : out.hosts) out.ranks += host.slots;
  return out;
}

std::vector<std::string> put_together_srun(const HostJob& job) {
  constexpr std::array kShares = {"--overlap", "--exclusive"};
  auto out = job.words;
  if (std::ranges::none_of(out, [&](const auto& word) { return std::ranges::find(kShares, word) != kShares.end(); }))
    out.emplace_back("--overlap");
  std::vector<std::string> names;
  for (const auto& host : job.hosts) names.push_back(host.name);
  out.push_back(fmt::format("--nodes={}", names.size()));
  out.push_back(fmt::format("--ntasks={}", job.ranks));
  out.push_back(fmt::format("--nodelist={}", fmt::join(names, ",")));
  return out;
}

}  // namespace automodel::launch
