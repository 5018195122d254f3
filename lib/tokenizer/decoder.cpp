#include "tokenizer/decoder.h"

#include <array>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

std::string joined(const std::vector<std::string>& tokens) {
  std::string out;
  for (const auto& token : tokens) out += token;
  return out;
}

/// Decodes the concatenated bytes of all tokens; a token with a character outside the alphabet is kept as text.
class ByteLevel final : public Decoder::Step {
 public:
  void apply(std::vector<std::string>& tokens, PatternMatcher&) const override {
    std::string bytes;
    for (const auto& token : tokens) bytes += bytes_of(token).value_or(token);
    std::string text;
    append_lossy(bytes, text);
    tokens.clear();
    tokens.push_back(std::move(text));
  }
};

/// The byte of a token <0xNN>.
std::optional<char> byte_of_name(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : {token[3], token[4]}) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

/// A run of <0xNN> becomes text if it is valid UTF-8 as a whole; otherwise each byte becomes U+FFFD.
class ByteFallback final : public Decoder::Step {
 public:
  void apply(std::vector<std::string>& tokens, PatternMatcher&) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (valid_prefix(bytes) == bytes.size()) {
        if (!bytes.empty()) out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), std::string(kReplacement));
      }
      bytes.clear();
    };
    for (auto& token : tokens) {
      if (const auto byte = byte_of_name(token)) {
        bytes += *byte;
      } else {
        flush();
        out.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(out);
  }
};

class Fuse final : public Decoder::Step {
 public:
  void apply(std::vector<std::string>& tokens, PatternMatcher&) const override { tokens.assign(1, joined(tokens)); }
};

constexpr std::size_t kMostDecoded = std::size_t{64} << 20;  ///< bytes that replacements may make of all tokens

class Replace final : public Decoder::Step {
 public:
  Replace(Needle needle, std::string by) : needle_(std::move(needle)), by_(std::move(by)) {}
  void apply(std::vector<std::string>& tokens, PatternMatcher& matcher) const override {
    std::size_t left = kMostDecoded;
    for (auto& token : tokens) {
      token = needle_.replaced(token, by_, left, matcher);
      left -= token.size();
    }
  }

 private:
  Needle needle_;
  std::string by_;
};

/// Strips `content` from each token: up to `begin` times at its start and up to `end` times at its end.
class Strip final : public Decoder::Step {
 public:
  Strip(std::string content, std::int64_t begin, std::int64_t end)
      : content_(std::move(content)), begin_(begin), end_(end) {}
  void apply(std::vector<std::string>& tokens, PatternMatcher&) const override {
    for (auto& token : tokens) {
      for (std::int64_t i = 0; i < begin_ && token.starts_with(content_); ++i) token.erase(0, content_.size());
      for (std::int64_t i = 0; i < end_ && token.ends_with(content_); ++i) token.resize(token.size() - content_.size());
    }
  }

 private:
  std::string content_;
  std::int64_t begin_;
  std::int64_t end_;
};

/// Marks become spaces; those of the first token are removed if encoding prepended one.
class Metaspace final : public Decoder::Step {
 public:
  Metaspace(std::string mark, bool prepended) : mark_(std::move(mark)), prepended_(prepended) {}
  void apply(std::vector<std::string>& tokens, PatternMatcher&) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::string_view by = i == 0 && prepended_ ? "" : " ";
      std::string out;
      std::size_t done = 0;
      for (std::size_t at = tokens[i].find(mark_); at != std::string::npos; at = tokens[i].find(mark_, done)) {
        out.append(tokens[i], done, at - done).append(by);
        done = at + mark_.size();
      }
      tokens[i] = out.append(tokens[i], done);
    }
  }

 private:
  std::string mark_;
  bool prepended_;
};

/// Tokens that continue a word lose their prefix, all others are preceded by a space; `clean` removes spaces that
/// English typography does not have.
class WordPiece final : public Decoder::Step {
 public:
  WordPiece(std::string prefix, bool clean) : prefix_(std::move(prefix)), clean_(clean) {}
  void apply(std::vector<std::string>& tokens, PatternMatcher&) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      auto& token = tokens[i];
      if (i > 0 && token.starts_with(prefix_))
        token.erase(0, prefix_.size());
      else if (i > 0)
        token.insert(0, 1, ' ');
      if (clean_) clean(token);
    }
  }

 private:
  static void clean(std::string& token) {
    using Row = std::pair<std::string_view, std::string_view>;
    constexpr std::array kRows = {Row{" .", "."},   Row{" ?", "?"},     Row{" !", "!"},    Row{" ,", ","},
                                  Row{" ' ", "'"},  Row{" n't", "n't"}, Row{" 'm", "'m"},  Row{" do not", " don't"},
                                  Row{" 's", "'s"}, Row{" 've", "'ve"}, Row{" 're", "'re"}};
    for (const auto& [from, to] : kRows)
      for (std::size_t at = token.find(from); at != std::string::npos; at = token.find(from, at + to.size()))
        token.replace(at, from.size(), to);
  }

  std::string prefix_;
  bool clean_;
};

constexpr std::int64_t kMostStripped = 1'000'000;

/// The single character of a member; adds a problem if it is anything else.
std::string character(const JsonPart& part, std::string_view key, std::string_view otherwise) {
  std::string out = part.text_if(key).value_or(std::string(otherwise));
  if (out.empty() || code_point_at(out, 0).bytes != out.size()) {
    part.at(key).fail("one character is expected");
    return std::string(otherwise);
  }
  return out;
}

}  // namespace

Decoder Decoder::read(const JsonPart& part) {
  Decoder out;
  if (part.is_null())
    out.separator_ = std::string(1, ' ');
  else
    out.add(part);
  return out;
}

void Decoder::add(const JsonPart& part) {
  const std::string type = part.type();
  if (part.path().size() > 300) return part.fail("sequences lie too deep in each other");
  if (type == "Sequence") {
    for (const auto& item : part.items("decoders")) add(item);
  } else if (type == "ByteLevel") {
    steps_.push_back(std::make_unique<ByteLevel>());
  } else if (type == "ByteFallback") {
    steps_.push_back(std::make_unique<ByteFallback>());
  } else if (type == "Fuse") {
    steps_.push_back(std::make_unique<Fuse>());
  } else if (type == "Metaspace") {
    const bool legacy = part.flag("add_prefix_space", true);
    const std::string scheme = part.text_if("prepend_scheme").value_or(legacy ? "always" : "never");
    steps_.push_back(std::make_unique<Metaspace>(character(part, "replacement", kSpaceMark), scheme != "never"));
  } else if (type == "Replace") {
    if (auto needle = Needle::read(part.at("pattern")))
      steps_.push_back(std::make_unique<Replace>(std::move(*needle), part.text("content")));
  } else if (type == "Strip") {
    steps_.push_back(std::make_unique<Strip>(character(part, "content", " "), part.integer("start", 0, kMostStripped),
                                             part.integer("stop", 0, kMostStripped)));
  } else if (type == "WordPiece") {
    steps_.push_back(std::make_unique<WordPiece>(part.text_if("prefix").value_or("##"), part.flag("cleanup", true)));
  } else {
    part.refuse_type("decoder",
                     {"ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Strip", "WordPiece", "Sequence"});
  }
}

std::string Decoder::decode(std::vector<std::string> tokens, PatternMatcher& matcher) const {
  for (const auto& step : steps_) step->apply(tokens, matcher);
  if (separator_.empty()) return joined(tokens);
  std::string out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += separator_;
    out += tokens[i];
  }
  return out;
}

}  // namespace automodel::tokenizer
