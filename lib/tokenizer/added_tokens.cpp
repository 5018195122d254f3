#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

/// At each place of a text, as many bytes are looked at as the longest token has that begins as the text does.
constexpr std::size_t kMostContent = 1000;

}  // namespace

AddedToken read_added_token(const JsonPart& part) {
  const bool special = part.flag("special", false);
  if (part.text("content").size() > kMostContent)
    part.at("content").fail(fmt::format("an added token of more than {} bytes", kMostContent));
  return {.content = part.text("content"),
          .special = special,
          .normalized = part.flag("normalized", !special),
          .lstrip = part.flag("lstrip", false),
          .rstrip = part.flag("rstrip", false),
          .single_word = part.flag("single_word", false)};
}

TokenFinder::TokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& contents)
    : tokens_(std::move(tokens)), nodes_(1) {
  AUTOMODEL_CHECK(tokens_.size() == contents.size(), "one content a token");
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (contents[i].empty()) continue;
    std::size_t node = 0;
    for (const char c : contents[i]) {
      auto [next, made] =
          nodes_[node].next.try_emplace(static_cast<unsigned char>(c), static_cast<std::int32_t>(nodes_.size()));
      const auto to = static_cast<std::size_t>(next->second);
      if (made) nodes_.emplace_back();
      node = to;
    }
    if (nodes_[node].token < 0) nodes_[node].token = static_cast<std::int32_t>(i);
  }
  for (const auto& [byte, node] : nodes_[0].next) first_[byte] = node;
  if (std::any_of(tokens_.begin(), tokens_.end(), [](const AddedToken& t) { return t.single_word; })) {
    std::string problem;
    word_ = Pattern::make(fmt::format("[{}]", kWordSet), problem);
    AUTOMODEL_CHECK(word_.has_value(), problem);
  }
}

std::optional<TokenFinder::Found> TokenFinder::find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    auto node = static_cast<std::size_t>(first_[static_cast<unsigned char>(text[begin])]);
    if (node == 0) continue;
    std::optional<Found> longest;
    for (std::size_t at = begin + 1;; ++at) {
      if (nodes_[node].token >= 0) longest = Found{begin, at, &tokens_[static_cast<std::size_t>(nodes_[node].token)]};
      if (at == text.size()) break;
      const auto next = nodes_[node].next.find(static_cast<unsigned char>(text[at]));
      if (next == nodes_[node].next.end()) break;
      node = static_cast<std::size_t>(next->second);
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

bool TokenFinder::stands_alone(std::string_view text, const Found& found, PatternMatcher& matcher) const {
  const auto is_word = [&](std::size_t at) {
    return matcher.find(*word_, text.substr(at, code_point_at(text, at).bytes), 0).has_value();
  };
  const bool before = found.begin > 0 && is_word(last_code_point(text.substr(0, found.begin)));
  const bool after = found.end < text.size() && is_word(found.end);
  return !before && !after;
}

void TokenFinder::split(std::string_view text, PatternMatcher& matcher,
                        const std::function<void(std::string_view, const AddedToken*)>& give) const {
  std::size_t done = 0;
  for (std::size_t from = 0;;) {
    const auto found = find(text, from);
    if (!found) break;
    from = found->end;
    if (found->token->single_word && !stands_alone(text, *found, matcher)) continue;
    std::size_t begin = found->begin, end = found->end;
    // As in `tokenizers`: with lstrip a token takes the white space that the previous one left; without, it is found
    // also in what the previous one took, and the text goes on behind it.
    if (found->token->lstrip) begin = std::max(begin - trailing_space(text.substr(0, begin)), done);
    if (found->token->rstrip) end += leading_space(text.substr(end));
    if (begin > done) give(text.substr(done, begin - done), nullptr);
    if (begin < end) give(text.substr(begin, end - begin), found->token);
    done = end;
  }
  if (done < text.size()) give(text.substr(done), nullptr);
}

}  // namespace automodel::tokenizer
