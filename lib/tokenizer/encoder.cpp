// Encoding: added tokens, normalization, splitting into pieces, ids.
#include <algorithm>

#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

/// Longer pieces rarely repeat.
constexpr std::size_t kLongestCached = 64;
constexpr std::size_t kMostText = 4 << 20;

}  // namespace

PieceCache::Slot& PieceCache::slot(std::string_view piece) {
  const std::uint64_t hash = hash_bytes(piece);
  std::size_t i = hash & (kSlots - 1);
  while (slots_[i].length != 0 &&
         (slots_[i].hash != hash || std::string_view(text_).substr(slots_[i].text, slots_[i].length) != piece))
    i = (i + 1) & (kSlots - 1);
  slots_[i].hash = hash;
  return slots_[i];
}

void PieceCache::fill(Slot& slot, std::string_view piece, std::span<const Id> ids) {
  if (used_ * 2 >= kSlots || text_.size() + piece.size() > kMostText) {
    // Clearing everything is cheaper than tracking which pieces are in use.
    std::fill(slots_.begin(), slots_.end(), Slot{});
    text_.clear();
    ids_.clear();
    used_ = 0;
    return;
  }
  slot.text = static_cast<std::uint32_t>(text_.size());
  slot.length = static_cast<std::uint32_t>(piece.size());
  slot.ids = static_cast<std::uint32_t>(ids_.size());
  slot.count = static_cast<std::uint32_t>(ids.size());
  text_.append(piece);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++used_;
}

void Encoder::encode(std::string_view text, bool special, std::vector<Id>& out) {
  std::string repaired;
  if (valid_prefix(text) != text.size()) {
    append_lossy(text, repaired);
    text = repaired;
  }
  const auto& surround = tokenizer_.surround_;
  if (special) out.insert(out.end(), surround.before.begin(), surround.before.end());
  tokenizer_.raw_finder_->split(text, matcher_, [&](std::string_view part, const AddedToken* token) {
    if (token != nullptr)
      out.push_back(token->id);
    else
      encode_part(part, part.data() == text.data(), out);
  });
  if (special) out.insert(out.end(), surround.after.begin(), surround.after.end());
}

void Encoder::encode_part(std::string_view part, bool first, std::vector<Id>& out) {
  std::string normalized;
  if (!tokenizer_.normalizer_.empty()) {
    normalized = part;
    first = tokenizer_.normalizer_.apply(normalized, matcher_) && first;
    part = normalized;
  }
  const auto encode_one = [&](const Piece& piece) {
    if (tokenizer_.cuts_)
      encode_cut(piece.text, out);
    else
      encode_piece(piece.text, out);
  };
  tokenizer_.normalized_finder_->split(part, matcher_, [&](std::string_view own, const AddedToken* token) {
    if (token != nullptr)
      out.push_back(token->id);
    else
      tokenizer_.pre_tokenizer_.run({own, first && own.data() == part.data()}, matcher_, encode_one);
  });
}

void Encoder::encode_cut(std::string_view piece, std::vector<Id>& out) {
  const auto& cuts = *tokenizer_.cuts_;
  std::size_t begin = 0;
  for (std::size_t at = piece.find(cuts.mark, 1); at != std::string_view::npos; at = piece.find(cuts.mark, at + 1)) {
    const char32_t before = code_point_at(piece, last_code_point(piece.substr(0, at))).value;
    if (std::binary_search(cuts.joined.begin(), cuts.joined.end(), before)) continue;
    encode_piece(piece.substr(begin, at - begin), out);
    begin = at;
  }
  encode_piece(piece.substr(begin), out);
}

void Encoder::encode_piece(std::string_view piece, std::vector<Id>& out) {
  if (piece.empty()) return;
  if (piece.size() > kLongestCached) return tokenizer_.model_->encode(piece, scratch_, out);
  auto& slot = cache_.slot(piece);
  if (slot.length != 0) {
    const auto ids = cache_.ids(slot);
    out.insert(out.end(), ids.begin(), ids.end());
    return;
  }
  const std::size_t before = out.size();
  tokenizer_.model_->encode(piece, scratch_, out);
  cache_.fill(slot, piece, std::span(out).subspan(before));
}

}  // namespace automodel::tokenizer
