#include "data/picture_text.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"
#include "pictures/decode.h"

namespace automodel::data {
namespace {

std::int64_t area(pictures::Size size) {
  return std::int64_t{size.width} * size.height;
}

}  // namespace

void TextPixels::add(pictures::Size size) {
  constexpr std::int64_t kMost = 4 * pictures::kMostPixels;
  if (processor_)
    if (const auto why = processor_->refusal(size); !why.empty()) throw pictures::PictureError(why);
  const auto resized = processor_ ? processor_->resized(size) : size;
  if (area(resized) > pictures::kMostPixels)
    throw pictures::PictureError(fmt::format("its {} x {} pixels would be resized to {} x {}, more than {} in all",
                                             size.width, size.height, resized.width, resized.height,
                                             pictures::kMostPixels));
  auto made = area(resized);
  if (processor_ && processor_->patches && processor_->patches->parts) {
    const auto& patches = *processor_->patches;
    const int part = patches.parts->part, count = patches.cut(size).count();
    made += std::int64_t{count} * part * part;
    if (made > pictures::kMostPixels)
      throw pictures::PictureError(
          fmt::format("its {} x {} pixels would be cut into {} parts of {} x {}, more than {} pixels", size.width,
                      size.height, count, part, part, pictures::kMostPixels));
  }
  sum_ += area(size) + made;
  if (sum_ > kMost)
    throw pictures::PictureError(
        fmt::format("its pictures together have more than {} pixels, as files and resized", kMost));
}

RowRefused no_room_for_pictures(std::int64_t most) {
  return RowRefused(fmt::format("its pictures need more than the {} tokens that there may be", most));
}

std::optional<PictureText> PictureText::open(const tokenizer::Tokenizer& tokenizer, Encode encode,
                                             const pictures::PictureTokens& tokens, const std::string& key,
                                             Diagnostics& problems) {
  PictureText out(tokenizer, std::move(encode), tokens);
  if (!out.find_tokens(key, problems)) return std::nullopt;
  return out;
}

/// Tokenised as transformers' processors do: with special tokens, unless the template has begun with the BOS itself.
std::vector<std::int32_t> PictureText::ids(std::string text) const {
  if (tokens_.begin >= 0) text = enclosed(text);
  const auto& roles = tokenizer_->roles();
  const auto bos = roles.find("bos_token");
  const bool begun = bos != roles.end() && !bos->second.empty() && text.starts_with(bos->second);
  return encode_(text, !begun);
}

std::string PictureText::enclosed(const std::string& text) const {
  const auto begin = tokenizer_->token(tokens_.begin), placeholder = tokenizer_->token(tokens_.placeholder);
  const auto& name = tokens_.own_lines ? begin : placeholder;
  const auto whole = fmt::format("{0}{1}{2}{3}{0}", tokens_.own_lines ? "\n\n" : "", begin, placeholder,
                                 tokenizer_->token(tokens_.end));
  std::string out;
  for (std::size_t at = 0; !name.empty();) {
    const auto found = text.find(name, at);
    out += text.substr(at, found - at);
    if (found == std::string::npos) return out;
    out += whole;
    at = found + name.size();
  }
  return text;
}

bool PictureText::find_tokens(const std::string& key, Diagnostics& problems) {
  for (const auto id : {tokens_.begin, tokens_.end}) {
    if (id < 0 || !tokenizer_->token(id).empty()) continue;
    problems.add("bad-tokenizer", key)
        .says("the tokenizer has no token {}, which the processor puts around a picture", id)
        .hint("the tokenizer and the processor must be of one model");
    return false;
  }
  if (!tokens_.processor) return true;
  const auto& processor = *tokens_.processor;
  const auto find = [&](const std::string& text, std::string_view place) -> std::optional<std::int32_t> {
    const auto token = single_token(text);
    if (token && *token != tokens_.placeholder) return token;
    problems.add("bad-tokenizer", key)
        .says(token
                  ? fmt::format("'{}', which the processor puts {}, is their placeholder", printable(text), place)
                  : fmt::format("the tokenizer has no token '{}', which the processor puts {}", printable(text), place))
        .hint("the tokenizer and the processor must be of one model");
    return std::nullopt;
  };
  if (tokens_.in_parts()) {  // Step3p7Processor has no settings for their names
    for (const auto& [text, token] : {std::pair("<patch_start>", &part_begin_), std::pair("<patch_end>", &part_end_),
                                      std::pair("<patch_newline>", &parts_row_end_),
                                      std::pair("<im_start>", &whole_begin_), std::pair("<im_end>", &whole_end_)}) {
      const auto found = find(text, "around parts of a picture");
      if (!found) return false;
      *token = *found;
    }
    return true;
  }
  if (!processor.picture_begin.empty()) {
    const auto begin = find(processor.picture_begin, "around a picture"),
               end = begin ? find(processor.picture_end, "around a picture") : std::nullopt;
    if (!end) return false;
    tokens_.begin = *begin;
    tokens_.end = *end;
    return true;
  }
  for (const auto& [text, token] :
       {std::pair(&processor.row_end, &row_end_), std::pair(&processor.picture_end, &picture_end_)}) {
    if (text->empty()) continue;
    *token = find(*text, "behind rows of a picture");
    if (!*token) return false;
  }
  return true;
}

std::optional<std::int32_t> PictureText::single_token(std::string_view text) const {
  const auto ids = encode_(text, false);
  return ids.size() == 1 ? std::optional(ids.front()) : std::nullopt;
}

void PictureText::add_parts(pictures::Size size, std::vector<std::int32_t>& out) const {
  const auto& patches = *tokens_.processor->patches;
  const auto square = [&](std::int32_t begin, int side, std::int32_t end) {
    out.push_back(begin);
    out.insert(out.end(), static_cast<std::size_t>(patches.tokens_of(side)), tokens_.placeholder);
    out.push_back(end);
  };
  const auto parts = patches.cut(size);
  for (int row = 0; row < parts.rows; ++row) {
    for (int column = 0; column < parts.columns; ++column) square(part_begin_, patches.parts->part, part_end_);
    if (row + 1 < parts.rows) out.push_back(parts_row_end_);
  }
  square(whole_begin_, patches.parts->whole, whole_end_);
}

std::vector<std::int32_t> PictureText::with_pictures(const std::vector<std::int32_t>& ids,
                                                     std::span<const pictures::Size> sizes, std::int64_t most) const {
  const auto placeholders = static_cast<std::size_t>(std::ranges::count(ids, tokens_.placeholder));
  if (placeholders != sizes.size())
    throw RowRefused(fmt::format("the text has {} placeholder{} for {} picture{}", placeholders,
                                 placeholders == 1 ? "" : "s", sizes.size(), sizes.size() == 1 ? "" : "s"));
  std::int64_t wanted = 0;
  for (const auto size : sizes) wanted += tokens_.count(size);
  if (wanted > most) throw no_room_for_pictures(most);
  std::vector<std::int32_t> out;
  auto picture = sizes.begin();
  for (const auto id : ids) {
    if (id != tokens_.placeholder) {
      out.push_back(id);
      continue;
    }
    const auto size = *picture++;
    if (tokens_.in_parts()) {
      add_parts(size, out);
      continue;
    }
    if (!row_end_) {
      out.insert(out.end(), static_cast<std::size_t>(tokens_.count(size)), id);
      continue;
    }
    const auto [columns, rows] = tokens_.grid(size);
    for (int row = 0; row < rows; ++row) {
      out.insert(out.end(), static_cast<std::size_t>(columns), id);
      out.push_back(row + 1 < rows ? *row_end_ : *picture_end_);
    }
  }
  return out;
}

}  // namespace automodel::data
