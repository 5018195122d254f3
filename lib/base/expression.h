// A regular expression. Not std::regex where it is used: every file that does compiles all of it.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace automodel {

class Expression {
 public:
  /// None where `text` is no regular expression (of ECMAScript).
  static std::optional<Expression> read(const std::string& text);

  /// The whole text is what is meant.
  bool matches(const std::string& text) const;
  /// A part of it is.
  bool found_in(const std::string& text) const;
  /// What the first group of a text that matches holds.
  std::optional<std::string> first_group(const std::string& text) const;

 private:
  struct Compiled;
  explicit Expression(std::shared_ptr<const Compiled> compiled);
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace automodel
