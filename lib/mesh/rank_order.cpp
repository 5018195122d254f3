#include "mesh/rank_order.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include <fmt/format.h>

#include "base/spelling.h"

namespace automodel::mesh {
namespace {

struct Token {
  std::string_view name;
  Axis axis;
  int OrderSizes::*size;
};
constexpr std::array kTokens = {
    Token{"tp", Axis::kTp, &OrderSizes::tp},      Token{"pp", Axis::kPp, &OrderSizes::pp},
    Token{"dp", Axis::kDpShard, &OrderSizes::dp}, Token{"ep", Axis::kEp, &OrderSizes::ep},
    Token{"cp", Axis::kCp, &OrderSizes::cp},      Token{"gtp_remat", Axis::kWeightRemat, &OrderSizes::weight_remat},
};

const Token* find_token(std::string_view name) {
  const auto found = std::find_if(kTokens.begin(), kTokens.end(), [&](const Token& t) { return t.name == name; });
  return found == kTokens.end() ? nullptr : &*found;
}

std::vector<std::string> split(std::string_view order) {
  std::vector<std::string> out(1);
  for (const char c : order)
    if (c == '-')
      out.emplace_back();
    else
      out.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::vector<std::string_view> known_names() {
  std::vector<std::string_view> out;
  out.reserve(kTokens.size());
  for (const auto& token : kTokens) out.push_back(token.name);
  return out;
}

}  // namespace

std::optional<RankGrid> rank_order(const OrderSizes& sizes, std::string_view order, Rank first_rank,
                                   Diagnostics& problems) {
  const std::size_t before = problems.size();
  if (sizes.ep > 1 && sizes.cp > 1)
    problems.push_back({"bad-value",
                        fmt::format("ep {} and cp {} in one rank order", sizes.ep, sizes.cp),
                        "cp belongs to the grid of dense layers, ep to that of experts",
                        {},
                        "order"});
  std::vector<GridDim> fastest_first;
  AxisSet seen;
  for (const auto& word : split(order)) {
    const Token* token = find_token(word);
    if (token == nullptr) {
      problems.push_back({"bad-value",
                          fmt::format("unknown axis '{}' in rank order '{}'", word, order),
                          suggestion(word, known_names()),
                          {},
                          "order"});
    } else if (seen.contains(token->axis)) {
      problems.push_back({"bad-value",
                          fmt::format("axis '{}' stands twice in rank order '{}'", word, order),
                          "name each axis once",
                          {},
                          "order"});
    } else {
      seen = seen | token->axis;
      fastest_first.push_back({token->axis, sizes.*token->size});
    }
  }
  for (const auto& token : kTokens) {
    if (seen.contains(token.axis)) continue;
    const int size = sizes.*token.size;
    if (size > 1)
      problems.push_back({"missing-axis",
                          fmt::format("{} has size {}, but rank order '{}' does not name it", token.name, size, order),
                          fmt::format("use for example order: {}", kDefaultRankOrder),
                          {},
                          "order"});
    fastest_first.push_back({token.axis, size});
  }
  if (problems.size() > before) return std::nullopt;
  std::reverse(fastest_first.begin(), fastest_first.end());
  return RankGrid(std::move(fastest_first), first_rank);
}

std::string order_string(const RankGrid& grid) {
  std::string out;
  for (auto dim = grid.dims().rbegin(); dim != grid.dims().rend(); ++dim) {
    if (!out.empty()) out += '-';
    out += dim->axis == Axis::kDpShard ? "dp" : name_of(dim->axis);
  }
  return out;
}

std::optional<AxisSet> parse_order_axes(std::string_view tokens) {
  AxisSet out;
  for (const auto& word : split(tokens)) {
    const Token* token = find_token(word);
    if (token == nullptr) return std::nullopt;
    out = out | token->axis;
  }
  return out;
}

}  // namespace automodel::mesh
