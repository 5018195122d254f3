#include "tokenizer/word_piece.h"

#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tokenizer/unicode.h"

namespace automodel::tokenizer {

/// A word's time grows with the cube of its length. Files have 100 or 200.
constexpr std::int64_t kMostCharacters = 1000;
constexpr std::size_t kMostPrefix = 64;  ///< bytes, copied for every token that is tried

std::unique_ptr<const WordPieceModel> WordPieceModel::read(const JsonPart& part) {
  const std::size_t before = part.problems().size();
  std::unique_ptr<WordPieceModel> out(new WordPieceModel);
  if (!read_vocabulary(part, out->vocabulary_, out->tokens_)) return nullptr;
  out->prefix_ = part.text_if("continuing_subword_prefix").value_or("##");
  if (out->prefix_.size() > kMostPrefix) part.at("continuing_subword_prefix").fail("it is longer than any");
  if (part.has("max_input_chars_per_word"))
    out->most_characters_ = static_cast<std::size_t>(part.integer("max_input_chars_per_word", 0, kMostCharacters));
  const auto unknown = part.text_if("unk_token").value_or("[UNK]");
  out->unknown_ = out->tokens_.find(unknown);
  if (out->unknown_ == kNoId) part.at("unk_token").fail(fmt::format("'{}' is not in the vocabulary", unknown));
  return part.problems().size() > before ? nullptr : std::move(out);
}

void WordPieceModel::encode(std::string_view piece, PieceScratch& scratch, std::vector<Id>& out) const {
  auto& begins = scratch.ids;  // start of each character, then the end of the piece
  begins.clear();
  for (std::size_t at = 0; at < piece.size(); at += code_point_at(piece, at).bytes)
    begins.push_back(static_cast<std::int32_t>(at));
  const std::size_t characters = begins.size();
  if (characters > most_characters_) return out.push_back(unknown_);
  begins.push_back(static_cast<std::int32_t>(piece.size()));
  const std::size_t before = out.size();
  std::string token;
  for (std::size_t first = 0; first < characters;) {
    std::size_t last = characters;
    Id id = kNoId;
    for (; last > first; --last) {
      token = first > 0 ? prefix_ : std::string();
      token.append(piece, static_cast<std::size_t>(begins[first]),
                   static_cast<std::size_t>(begins[last] - begins[first]));
      if (id = tokens_.find(token); id != kNoId) break;
    }
    if (id == kNoId) {  // if any part of a word is unknown, the whole word becomes one unknown token
      out.resize(before);
      return out.push_back(unknown_);
    }
    out.push_back(id);
    first = last;
  }
}

}  // namespace automodel::tokenizer
