#include "train/text_stream.h"

#include <string_view>

namespace automodel::train {
namespace {

/// Whether a text ends inside a UTF-8 character: with only its first bytes, or with a replacement character from the
/// tokenizer.
bool ends_inside(std::string_view text) {
  if (text.ends_with("\xEF\xBF\xBD")) return true;
  std::size_t tail = 0;  // continuation bytes at the end
  while (tail < 3 && tail < text.size() && (static_cast<unsigned char>(text[text.size() - 1 - tail]) & 0xC0) == 0x80)
    ++tail;
  if (tail >= text.size()) return false;
  const auto lead = static_cast<unsigned char>(text[text.size() - 1 - tail]);
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  return length > tail + 1;
}

}  // namespace

std::string TextStream::add(std::int32_t token) {
  ids_.push_back(token);
  const std::span<const std::int32_t> all(ids_);
  const auto before = decode_(all.subspan(first_, given_ - first_)), now = decode_(all.subspan(first_));
  if (now.size() <= before.size() || ends_inside(now)) return {};
  auto out = now.substr(before.size());
  first_ = given_;
  given_ = ids_.size();
  text_ += out;
  return out;
}

std::string TextStream::finish() {
  const std::span<const std::int32_t> all(ids_);
  const auto before = decode_(all.subspan(first_, given_ - first_)), now = decode_(all.subspan(first_));
  auto out = now.size() > before.size() ? now.substr(before.size()) : std::string();
  first_ = given_ = ids_.size();
  text_ += out;
  return out;
}

}  // namespace automodel::train
