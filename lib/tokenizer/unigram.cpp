#include "tokenizer/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

constexpr double kUnknownPenalty = 10;  ///< relative to the lowest score, as in SentencePiece

}  // namespace

PrefixTree::PrefixTree(std::vector<std::pair<std::string_view, Id>> tokens) {
  std::stable_sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  struct Range {
    std::size_t node, begin, end, depth;
  };
  nodes_.emplace_back();
  std::vector<Range> open = {{0, 0, tokens.size(), 0}};
  for (std::size_t next = 0; next < open.size(); ++next) {
    auto [node, begin, end, depth] = open[next];
    for (; begin < end && tokens[begin].first.size() == depth; ++begin)
      if (depth > 0) nodes_[node].id = tokens[begin].second;
    nodes_[node].first = static_cast<std::uint32_t>(nodes_.size());
    while (begin < end) {
      const auto byte = static_cast<unsigned char>(tokens[begin].first[depth]);
      std::size_t last = begin;
      while (last < end && static_cast<unsigned char>(tokens[last].first[depth]) == byte) ++last;
      ++nodes_[node].count;
      open.push_back({nodes_.size(), begin, last, depth + 1});
      nodes_.push_back({.byte = byte});
      begin = last;
    }
  }
}

std::size_t PrefixTree::child(std::size_t node, unsigned char byte) const {
  const auto begin = nodes_.begin() + nodes_[node].first, end = begin + nodes_[node].count;
  const auto found =
      std::lower_bound(begin, end, byte, [](const Node& each, unsigned char wanted) { return each.byte < wanted; });
  return found != end && found->byte == byte ? static_cast<std::size_t>(found - nodes_.begin()) : 0;
}

std::unique_ptr<const UnigramModel> UnigramModel::read(const JsonPart& part) {
  const std::size_t before = part.problems().size();
  std::unique_ptr<UnigramModel> out(new UnigramModel);
  out->byte_fallback_ = part.flag("byte_fallback", false);
  if (!out->read_vocabulary(part)) return nullptr;
  if (part.has("unk_id"))
    out->unknown_ = static_cast<Id>(part.integer("unk_id", 0, static_cast<std::int64_t>(out->scores_.size()) - 1));
  return part.problems().size() > before ? nullptr : std::move(out);
}

bool UnigramModel::read_vocabulary(const JsonPart& part) {
  const JsonPart list = part.at("vocab");
  if (!list.node().is_array() || list.node().empty()) {
    list.fail("a list of tokens and scores is expected");
    return false;
  }
  double least = std::numeric_limits<double>::infinity();
  std::size_t bytes = 0;
  for (const auto& row : list.node()) {
    if (!row.is_array() || row.size() != 2 || !row[0].is_string() || !row[1].is_number() ||
        !std::isfinite(row[1].get<double>())) {
      list.fail(fmt::format("item {} is not a token with a score", vocabulary_.size()));
      return false;
    }
    vocabulary_.emplace_back(row[0].get<std::string>(), static_cast<Id>(vocabulary_.size()));
    scores_.push_back(row[1].get<double>());
    least = std::min(least, scores_.back());
    bytes += vocabulary_.back().first.size();
  }
  if (bytes > std::numeric_limits<std::uint32_t>::max() / 2) {
    list.fail("the vocabulary has more than 2 GiB");
    return false;
  }
  unknown_score_ = least - kUnknownPenalty;
  tokens_.reserve(vocabulary_.size(), bytes);
  std::vector<std::pair<std::string_view, Id>> all;
  for (const auto& [token, id] : vocabulary_) {
    tokens_.insert(token, id);
    all.emplace_back(token, id);
  }
  tree_ = std::make_unique<const PrefixTree>(std::move(all));
  for (std::size_t byte = 0; byte < 256; ++byte) bytes_[byte] = tokens_.find(fmt::format("<0x{:02X}>", byte));
  return true;
}

/// Viterbi search, left to right; among equal scores the first one found wins.
void UnigramModel::find_cuts(std::string_view piece, std::vector<PieceScratch::Cut>& cuts) const {
  cuts.assign(piece.size() + 1, {0, -1, kNoId});
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t character = code_point_at(piece, at).bytes;
    const double here = cuts[at].score;
    bool known = false;
    const auto offer = [&](std::size_t length, Id id, double score) {
      auto& cut = cuts[at + length];
      if (cut.begin < 0 || score > cut.score) cut = {score, static_cast<std::int32_t>(at), id};
    };
    tree_->find(piece.substr(at), [&](std::size_t length, Id id) {
      offer(length, id, here + scores_[static_cast<std::size_t>(id)]);
      known = known || length == character;
    });
    if (!known) offer(character, unknown_, here + unknown_score_);
    at += character;
  }
}

void UnigramModel::add_unknown(std::string_view text, std::vector<Id>& out) const {
  // A run of unknown characters may itself be a token even though its characters are not.
  if (const Id whole = tokens_.find(text); whole != kNoId) return out.push_back(whole);
  const auto byte_of = [&](char c) { return bytes_[static_cast<unsigned char>(c)]; };
  if (byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char c) { return byte_of(c) != kNoId; })) {
    for (const char c : text) out.push_back(byte_of(c));
    return;
  }
  if (unknown_ == kNoId)
    throw Error(Diagnostic{"bad-tokenizer"}
                    .says("'{}' has no token, and the tokenizer has none for what is unknown", text)
                    .hint("unk_id of the tokenizer's model names one"));
  out.push_back(unknown_);
}

void UnigramModel::encode(std::string_view piece, PieceScratch& scratch, std::vector<Id>& out) const {
  if (piece.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw Error(Diagnostic{"bad-tokenizer"}.says("a piece of text has more than 2 GiB").hint("cut the text"));
  auto& cuts = scratch.cuts;
  find_cuts(piece, cuts);
  // Collect token ends from back to front; adjacent unknown characters are merged into one.
  auto& ends = scratch.ids;
  ends.clear();
  for (auto end = static_cast<std::int32_t>(piece.size()); end > 0;) {
    const auto& cut = cuts[static_cast<std::size_t>(end)];
    const bool joins = cut.id == unknown_ && !ends.empty() &&
                       cuts[static_cast<std::size_t>(ends.back())].id == unknown_ &&
                       cuts[static_cast<std::size_t>(ends.back())].begin == end;
    if (joins)
      cuts[static_cast<std::size_t>(ends.back())].begin = cut.begin;
    else
      ends.push_back(end);
    end = cut.begin;
  }
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const auto& cut = cuts[static_cast<std::size_t>(*end)];
    if (cut.id == unknown_)
      add_unknown(piece.substr(static_cast<std::size_t>(cut.begin), static_cast<std::size_t>(*end - cut.begin)), out);
    else
      out.push_back(cut.id);
  }
}

}  // namespace automodel::tokenizer
