#include "base/expression.h"

#include <regex>
#include <utility>

namespace automodel {

struct Expression::Compiled {
  std::regex expression;
};

Expression::Expression(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}

std::optional<Expression> Expression::read(const std::string& text) {
  try {
    return Expression(std::make_shared<Compiled>(Compiled{std::regex(text)}));
  } catch (const std::regex_error&) {
    return std::nullopt;
  }
}

bool Expression::matches(const std::string& text) const {
  return std::regex_match(text, compiled_->expression);
}

bool Expression::found_in(const std::string& text) const {
  return std::regex_search(text, compiled_->expression);
}

std::optional<std::string> Expression::first_group(const std::string& text) const {
  std::smatch parts;
  if (!std::regex_match(text, parts, compiled_->expression) || parts.size() < 2) return std::nullopt;
  return parts[1].str();
}

}  // namespace automodel
