#include "tokenizer/bpe.h"

#include <algorithm>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
/// Up to this many symbols, scanning all ranks is faster than a priority queue.
constexpr std::size_t kShort = 48;

/// Ids far beyond the number of entries mean a broken file, and would allocate needless memory.
std::int64_t most_id(std::size_t entries) {
  return static_cast<std::int64_t>(std::min<std::size_t>(entries * 16 + 100'000, 1u << 28));
}

}  // namespace

bool read_vocabulary(const JsonPart& part, std::vector<std::pair<std::string, Id>>& vocabulary, TokenTable& tokens) {
  const JsonPart vocab = part.at("vocab");
  if (!vocab.node().is_object()) {
    vocab.fail("an object of tokens and ids is expected");
    return false;
  }
  const std::int64_t most = most_id(vocab.node().size());
  std::size_t bytes = 0;
  for (const auto& [token, id] : vocab.node().items()) bytes += token.size();
  if (bytes > std::numeric_limits<std::uint32_t>::max()) {
    vocab.fail("the vocabulary has more than 4 GiB");
    return false;
  }
  tokens.reserve(vocab.node().size(), bytes);
  vocabulary.reserve(vocab.node().size());
  for (const auto& [token, id] : vocab.node().items()) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() > most) {
      vocab.fail(fmt::format("the id of '{}' is {}; ids of {} tokens lie between 0 and {}", token,
                             id.is_primitive() ? id.dump() : "no number", vocab.node().size(), most));
      return false;
    }
    vocabulary.emplace_back(token, id.get<Id>());
    tokens.insert(token, id.get<Id>());
  }
  return true;
}

std::unique_ptr<const BpeModel> BpeModel::read(const JsonPart& part, bool byte_level) {
  const std::size_t before = part.problems().size();
  auto model = std::make_unique<BpeModel>();
  model->byte_level_ = byte_level;
  model->byte_fallback_ = part.flag("byte_fallback", false);
  model->fuse_unknown_ = part.flag("fuse_unk", false);
  model->ignore_merges_ = part.flag("ignore_merges", false);
  if (const auto dropout = part.at("dropout"); !dropout.is_null() && dropout.node() != 0.0)
    dropout.fail("dropout makes tokens random", "set it to null");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!part.text_if(key).value_or("").empty()) part.at(key).fail("is not supported", "set it to null");
  if (model->take_vocabulary(part)) model->read_merges(part);
  if (const auto unknown = part.text_if("unk_token")) {
    model->unknown_ = model->tokens_.find(*unknown);
    if (model->unknown_ == kNoId) part.at("unk_token").fail(fmt::format("'{}' is not in the vocabulary", *unknown));
  }
  if (part.problems().size() > before) return nullptr;
  return model;
}

bool BpeModel::take_vocabulary(const JsonPart& part) {
  if (!read_vocabulary(part, vocabulary_, tokens_)) return false;
  if (byte_level_)
    for (const auto& [token, id] : vocabulary_)
      if (const auto raw = bytes_of(token)) whole_.insert(*raw, id);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::string token;
    append_utf8(byte_characters()[byte], token);
    bytes_[byte] = tokens_.find(token);
    named_[byte] = tokens_.find(fmt::format("<0x{:02X}>", byte));
  }
  for (std::size_t c = 0; c < 128; ++c) ascii_[c] = tokens_.find(std::string(1, static_cast<char>(c)));
  return true;
}

void BpeModel::read_merges(const JsonPart& part) {
  const JsonPart merges = part.at("merges");
  if (!merges.node().is_array()) return merges.fail("a list of pairs is expected");
  merges_.reserve(merges.node().size());
  pairs_.reserve(merges.node().size());
  const std::size_t before = part.problems().size();
  std::uint32_t rank = 0;
  for (const auto& merge : merges.node()) {
    const bool pair = merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    if (pair) {
      add_merge(merges, merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(), rank);
    } else if (merge.is_string()) {
      const std::string_view text = merge.get_ref<const std::string&>();
      const std::size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
        return merges.fail(fmt::format("item {} is '{}'; two tokens with a space between are expected", rank, text));
      add_merge(merges, text.substr(0, space), text.substr(space + 1), rank);
    } else {
      return merges.fail(fmt::format("item {} is not a pair of tokens", rank));
    }
    if (part.problems().size() > before) return;
    ++rank;
  }
}

void BpeModel::add_merge(const JsonPart& at, std::string_view left, std::string_view right, std::uint32_t rank) {
  const Id a = tokens_.find(left), b = tokens_.find(right);
  const Id both = tokens_.find(std::string(left).append(right));
  if (a == kNoId || b == kNoId || both == kNoId)
    return at.fail(fmt::format(
        "item {} merges '{}' and '{}', and one of them or both together are not in the vocabulary", rank, left, right));
  merges_.insert(a, b, {rank, both});
  pairs_.emplace_back(a, b);
}

/// Converts characters to ids. A character without an id becomes its bytes if they all have ids, else the unknown
/// token.
void BpeModel::start(std::string_view piece, std::vector<Id>& ids) const {
  bool unknown_waits = false;
  for (std::size_t at = 0; at < piece.size();) {
    const auto first = static_cast<unsigned char>(piece[at]);
    const std::size_t length = first < 128 ? 1 : code_point_at(piece, at).bytes;
    const Id id = first < 128 ? ascii_[first] : tokens_.find(piece.substr(at, length));
    const std::string_view character = piece.substr(at, length);
    at += length;
    if (id != kNoId) {
      if (unknown_waits) ids.push_back(unknown_);
      unknown_waits = false;
      ids.push_back(id);
      continue;
    }
    if (byte_fallback_ && std::all_of(character.begin(), character.end(),
                                      [&](char c) { return named_[static_cast<unsigned char>(c)] != kNoId; })) {
      // A pending unknown token is emitted after these bytes, as in `tokenizers`.
      for (const char c : character) ids.push_back(named_[static_cast<unsigned char>(c)]);
      continue;
    }
    if (unknown_ == kNoId) continue;
    if (unknown_waits && !fuse_unknown_) ids.push_back(unknown_);
    unknown_waits = true;
  }
  if (unknown_waits) ids.push_back(unknown_);
}

void BpeModel::start_bytes(std::string_view piece, std::vector<Id>& ids) const {
  const bool complete = unknown_ == kNoId && !byte_fallback_;
  if (!complete) return start(characters_of(piece), ids);
  for (const char c : piece)
    if (const Id id = bytes_[static_cast<unsigned char>(c)]; id != kNoId) ids.push_back(id);
}

void BpeModel::encode(std::string_view piece, PieceScratch& scratch, std::vector<Id>& out) const {
  if (piece.empty()) return;
  if (ignore_merges_) {
    if (const Id id = (byte_level_ ? whole_ : tokens_).find(piece); id != kNoId) {
      out.push_back(id);
      return;
    }
  }
  scratch.ids.clear();
  if (byte_level_)
    start_bytes(piece, scratch.ids);
  else
    start(piece, scratch.ids);
  if (scratch.ids.size() <= kShort)
    merge_short(scratch, out);
  else
    merge_long(scratch, out);
}

void BpeModel::merge_short(PieceScratch& scratch, std::vector<Id>& out) const {
  auto& ids = scratch.ids;
  auto& ranks = scratch.ranks;  // rank of the pair that starts at each id
  const auto rank_at = [&](std::size_t i) {
    if (i + 1 >= ids.size()) return kNoRank;
    const auto* merge = merges_.find(ids[i], ids[i + 1]);
    return merge == nullptr ? kNoRank : merge->rank;
  };
  ranks.resize(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) ranks[i] = rank_at(i);
  while (ids.size() > 1) {
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (*best == kNoRank) break;
    const auto i = static_cast<std::size_t>(best - ranks.begin());
    ids[i] = merges_.find(ids[i], ids[i + 1])->id;
    ids.erase(ids.begin() + (best - ranks.begin()) + 1);
    ranks.erase(best + 1);
    ranks[i] = rank_at(i);
    if (i > 0) ranks[i - 1] = rank_at(i - 1);
  }
  out.insert(out.end(), ids.begin(), ids.end());
}

void BpeModel::merge_long(PieceScratch& scratch, std::vector<Id>& out) const {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  symbols.clear();
  queue.clear();
  const auto count = static_cast<std::int32_t>(scratch.ids.size());
  for (std::int32_t i = 0; i < count; ++i)
    symbols.push_back({scratch.ids[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1, false});
  const auto symbol = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  // Lowest rank first, then leftmost.
  const auto later = [](const PieceScratch::Candidate& a, const PieceScratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  const auto offer = [&](std::int32_t left, std::int32_t right) {
    if (left < 0 || right < 0) return false;
    const auto* merge = merges_.find(symbol(left).id, symbol(right).id);
    if (merge != nullptr) queue.push_back({merge->rank, left, merge->id});
    return merge != nullptr;
  };
  for (std::int32_t i = 0; i + 1 < count; ++i) offer(i, i + 1);
  std::make_heap(queue.begin(), queue.end(), later);
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), later);
    const auto top = queue.back();
    queue.pop_back();
    Symbol& left = symbol(top.at);
    if (left.gone || left.next < 0) continue;
    const auto* merge = merges_.find(left.id, symbol(left.next).id);
    if (merge == nullptr || merge->id != top.id) continue;  // stale: one of the two has merged since
    symbol(left.next).gone = true;
    left.id = top.id;
    left.next = symbol(left.next).next;
    if (left.next >= 0) symbol(left.next).previous = top.at;
    if (offer(left.previous, top.at)) std::push_heap(queue.begin(), queue.end(), later);
    if (offer(top.at, left.next)) std::push_heap(queue.begin(), queue.end(), later);
  }
  for (std::int32_t i = 0; i >= 0; i = symbol(i).next) out.push_back(symbol(i).id);
}

std::optional<BpeModel::Cuts> BpeModel::cuts(std::string_view mark) const {
  if (byte_level_ || ignore_merges_ || tokens_.find(mark) == kNoId) return std::nullopt;
  std::vector<std::string_view> text_of;
  for (const auto& [token, id] : vocabulary_) {
    if (text_of.size() <= static_cast<std::size_t>(id)) text_of.resize(static_cast<std::size_t>(id) + 1);
    text_of[static_cast<std::size_t>(id)] = token;
  }
  std::vector<bool> is_byte(text_of.size());
  for (const Id id : named_)
    if (id != kNoId) is_byte[static_cast<std::size_t>(id)] = true;
  std::set<char32_t> joined;
  for (const auto& [left, right] : pairs_) {
    // If bytes merge, a token's spelling differs from the text that it covers.
    if (is_byte[static_cast<std::size_t>(left)] || is_byte[static_cast<std::size_t>(right)]) return std::nullopt;
    const std::string both =
        std::string(text_of[static_cast<std::size_t>(left)]).append(text_of[static_cast<std::size_t>(right)]);
    for (std::size_t at = both.find(mark, 1); at != std::string::npos; at = both.find(mark, at + 1)) {
      const std::string_view before = std::string_view(both).substr(0, at);
      joined.insert(code_point_at(both, last_code_point(before)).value);
    }
  }
  return Cuts{std::string(mark), {joined.begin(), joined.end()}};
}

}  // namespace automodel::tokenizer
