#include "tokenizer/normalizer.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/text_cleaning.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

constexpr int kMaxDepth = 16;

class NormalForm final : public Normalizer::Step {
 public:
  explicit NormalForm(void (*append)(std::string_view, std::string&)) : append_(append) {}
  bool apply(std::string& text, std::size_t, PatternMatcher&) const override {
    std::string out;
    out.reserve(text.size());
    append_(text, out);
    text = std::move(out);
    return true;
  }

 private:
  void (*append_)(std::string_view, std::string&);
};

class Prepend final : public Normalizer::Step {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  bool apply(std::string& text, std::size_t most, PatternMatcher&) const override {
    check_normalized(text.size() + prefix_.size(), most);
    if (!text.empty()) text.insert(0, prefix_);
    return true;
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer::Step {
 public:
  Replace(Needle needle, std::string by) : needle_(std::move(needle)), by_(std::move(by)) {}
  bool apply(std::string& text, std::size_t most, PatternMatcher& matcher) const override {
    const auto first = by_.empty() ? needle_.find(text, 0, matcher) : std::nullopt;
    text = needle_.replaced(text, by_, most, matcher);
    return !first || first->begin > 0 || first->end == 0;
  }

 private:
  Needle needle_;
  std::string by_;
};

class Strip final : public Normalizer::Step {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  bool apply(std::string& text, std::size_t, PatternMatcher&) const override {
    const std::size_t begin = left_ ? leading_space(text) : 0;
    text.erase(0, begin);
    if (right_) text.resize(text.size() - trailing_space(text));
    return begin == 0;
  }

 private:
  bool left_;
  bool right_;
};

}  // namespace

std::optional<Needle> Needle::read(const JsonPart& part) {
  Needle out;
  if (part.has("String")) {
    out.text_ = part.text("String");
    return out;
  }
  if (!part.has("Regex")) {
    part.fail("{\"String\": ...} or {\"Regex\": ...} is expected");
    return std::nullopt;
  }
  std::string problem;
  out.pattern_ = Pattern::make(part.text("Regex"), problem);
  if (out.pattern_) return out;
  part.fail(fmt::format("the pattern cannot be used: {}", problem), "it must be a regular expression");
  return std::nullopt;
}

std::optional<Match> Needle::find(std::string_view text, std::size_t from, PatternMatcher& matcher) const {
  if (pattern_) return matcher.find(*pattern_, text, from);
  const std::size_t at = text_.empty() ? std::string_view::npos : text.find(text_, from);
  if (at == std::string_view::npos) return std::nullopt;
  return Match{at, at + text_.size()};
}

std::optional<Match> next_match(const Needle& needle, std::string_view text, const std::optional<Match>& last,
                                PatternMatcher& matcher) {
  std::size_t from = last ? last->end : 0;
  if (last && last->begin == last->end) {
    if (from >= text.size()) return std::nullopt;
    from += code_point_at(text, from).bytes;
  }
  auto found = needle.find(text, from, matcher);
  // An empty match directly after a match does not count.
  if (found && last && found->begin == found->end && found->begin == last->end) {
    if (found->end >= text.size()) return std::nullopt;
    found = needle.find(text, found->end + code_point_at(text, found->end).bytes, matcher);
  }
  return found;
}

std::string Needle::replaced(std::string_view text, std::string_view by, std::size_t most,
                             PatternMatcher& matcher) const {
  std::string out;
  std::size_t done = 0;
  for (auto match = next_match(*this, text, std::nullopt, matcher); match;
       match = next_match(*this, text, match, matcher)) {
    check_normalized(out.size() + match->begin - done + by.size(), most);
    out.append(text.substr(done, match->begin - done)).append(by);
    done = match->end;
  }
  return out.append(text.substr(done));
}

void check_normalized(std::size_t bytes, std::size_t most) {
  if (bytes > most)
    throw Error(Diagnostic{"bad-tokenizer"}
                    .says("the normalizer makes more than {} bytes of a text", most)
                    .hint("tokenizer.json replaces or prepends too much; no known tokenizer does"));
}

Normalizer Normalizer::read(const JsonPart& part) {
  Normalizer out;
  if (!part.is_null()) out.add(part);
  return out;
}

void Normalizer::add(const JsonPart& part) {
  const std::string type = part.type();
  if (type == "Sequence") {
    if (part.path().size() > kMaxDepth * std::string_view("normalizers[0].").size())
      return part.fail("sequences lie too deep in each other");
    for (const auto& item : part.items("normalizers")) add(item);
  } else if (type == "NFC") {
    steps_.push_back(std::make_unique<NormalForm>(append_nfc));
  } else if (type == "NFD") {
    steps_.push_back(std::make_unique<NormalForm>(append_nfd));
  } else if (type == "Prepend") {
    steps_.push_back(std::make_unique<Prepend>(part.text("prepend")));
  } else if (type == "Replace") {
    if (auto needle = Needle::read(part.at("pattern")))
      steps_.push_back(std::make_unique<Replace>(std::move(*needle), part.text("content")));
  } else if (type == "Strip") {
    steps_.push_back(std::make_unique<Strip>(part.flag("strip_left", true), part.flag("strip_right", true)));
  } else if (type == "BertNormalizer" || type == "Lowercase" || type == "StripAccents" || type == "Precompiled") {
    if (auto step = read_cleaning(part)) steps_.push_back(std::move(step));
  } else {
    part.refuse_type("normalizer", {"NFC", "NFD", "Prepend", "Replace", "Strip", "BertNormalizer", "Lowercase",
                                    "StripAccents", "Precompiled", "Sequence"});
  }
}

bool Normalizer::apply(std::string& text, PatternMatcher& matcher) const {
  bool begins = true;
  const std::size_t most = most_normalized(text.size());
  for (const auto& step : steps_) {
    begins = step->apply(text, most, matcher) && begins;
    check_normalized(text.size(), most);
  }
  return begins;
}

}  // namespace automodel::tokenizer
