// A regular expression (ECMAScript). Wraps std::regex so that only one translation unit pays for compiling it.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace automodel {

class Expression {
 public:
  /// Empty if `text` is not a valid ECMAScript regular expression.
  static std::optional<Expression> read(const std::string& text);

  /// Whether the whole text matches.
  bool matches(const std::string& text) const;
  /// Whether any part of the text matches.
  bool found_in(const std::string& text) const;
  /// The first capture group if the whole text matches; empty if it does not, or if there is no group.
  std::optional<std::string> first_group(const std::string& text) const;

 private:
  struct Compiled;
  explicit Expression(std::shared_ptr<const Compiled> compiled);
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace automodel
