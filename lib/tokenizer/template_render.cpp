// Renders the syntax tree of a chat template.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "tokenizer/template_tree.h"

namespace automodel::tokenizer {
namespace {

using Expression = TemplateExpression;
using Storage = TemplateValue::Storage;

constexpr std::size_t kMostText = 64 << 20;
constexpr std::int64_t kMostSteps = 5'000'000;
constexpr int kMostCalls = 50;

enum class Flow { kOn, kBreak, kContinue };

[[noreturn]] void no_operation(std::string_view sign, const TemplateValue& left, const TemplateValue& right) {
  throw TemplateError(fmt::format("{} {} {} cannot be", left.type(), sign, right.type()));
}

TemplateValue numeric(std::string_view sign, const TemplateValue& left, const TemplateValue& right) {
  const bool whole = left.data.index() != 4 && right.data.index() != 4;
  const double a = left.number(), b = right.number();
  if ((sign == "/" || sign == "//" || sign == "%") && b == 0) throw TemplateError("division by zero");
  double value = 0;
  if (sign == "+") value = a + b;
  if (sign == "-") value = a - b;
  if (sign == "*") value = a * b;
  if (sign == "/") return Storage(a / b);
  if (sign == "//") value = std::floor(a / b);
  if (sign == "%") value = a - b * std::floor(a / b);
  if (sign == "**") value = std::pow(a, b);
  if (!whole) return Storage(value);
  if (!(std::abs(value) < 9e15)) throw TemplateError("the number is too large");
  return Storage(static_cast<std::int64_t>(value));
}

TemplateValue binary(const std::string& sign, const TemplateValue& left, const TemplateValue& right) {
  if (sign == "~") return TemplateValue::text(left.str() + right.str());
  if (left.is_number() && right.is_number()) return numeric(sign, left, right);
  if (sign == "+" && left.as_text() != nullptr && right.as_text() != nullptr) {
    if (left.as_text()->size() + right.as_text()->size() > kMostText) throw TemplateError("the text is too long");
    return TemplateValue::text(*left.as_text() + *right.as_text());
  }
  if (sign == "+" && left.as_list() != nullptr && right.as_list() != nullptr) {
    TemplateList out = *left.as_list();
    if (out.size() + right.as_list()->size() > 1'000'000) throw TemplateError("the list is too long");
    out.insert(out.end(), right.as_list()->begin(), right.as_list()->end());
    return TemplateValue::list(std::move(out));
  }
  if (sign == "*" && left.as_text() != nullptr && right.as_int() != nullptr) {
    std::string out;
    const auto times = std::max<std::int64_t>(*right.as_int(), 0);
    if (times > 100'000 || left.as_text()->size() * static_cast<std::size_t>(times) > kMostText)
      throw TemplateError("the text is too long");
    for (std::int64_t i = 0; i < times; ++i) out += *left.as_text();
    return TemplateValue::text(std::move(out));
  }
  no_operation(sign, left, right);
}

bool compare(const std::string& sign, const TemplateValue& left, const TemplateValue& right) {
  if (sign == "==") return left.equals(right);
  if (sign == "!=") return !left.equals(right);
  if (sign == "in") return contains(right, left);
  if (sign == "not in") return !contains(right, left);
  int order = 0;
  if (left.is_number() && right.is_number())
    order = left.number() < right.number() ? -1 : left.number() > right.number() ? 1 : 0;
  else if (left.as_text() != nullptr && right.as_text() != nullptr)
    order = left.as_text()->compare(*right.as_text());
  else
    no_operation(sign, left, right);
  if (sign == "<") return order < 0;
  if (sign == ">") return order > 0;
  return sign == "<=" ? order <= 0 : order >= 0;
}

/// What iterating over a value yields: code points of a string, items of a list, keys of a dictionary.
TemplateList items_of(const TemplateValue& value) {
  if (const auto* list = value.as_list()) return *list;
  TemplateList out;
  if (const auto* dict = value.as_dict()) {
    for (const auto& [key, item] : *dict) out.push_back(TemplateValue::text(key));
    return out;
  }
  if (value.as_text() != nullptr) return *apply_filter("list", value, {}, {}).as_list();
  if (value.is_undefined()) return out;
  throw TemplateError(fmt::format("there is nothing to go through in {}", value.type()));
}

class Renderer {
 public:
  Renderer(TemplateDict variables, std::vector<TextSpan>* marked) : marked_(marked) {
    scopes_.push_back(std::move(variables));
  }

  std::string run(const TemplateBlock& nodes) {
    std::string out;
    root_ = &out;
    block(nodes, out);
    return out;
  }

 private:
  Flow block(const TemplateBlock& nodes, std::string& out) {
    for (const auto& node : nodes) {
      const Flow flow = at_line(node.line, [&] { return run(node, out); });
      if (flow != Flow::kOn) return flow;
    }
    return Flow::kOn;
  }

  /// Adds the line to an error that has none.
  template <class Do>
  static auto at_line(int line, Do&& act) -> decltype(act()) {
    try {
      return act();
    } catch (const TemplateError& error) {
      if (error.line > 0) throw;
      throw TemplateError(error.what(), line);
    }
  }

  void step() {
    if (++steps_ > kMostSteps) throw TemplateError("the template does not come to an end");
  }

  Flow run(const TemplateNode& node, std::string& out) {
    step();
    switch (node.kind) {
      case TemplateNode::Kind::kText: print(node.text, out); return Flow::kOn;
      case TemplateNode::Kind::kOutput: print(evaluate(*node.expression).str(), out); return Flow::kOn;
      case TemplateNode::Kind::kFor: return loop(node, out);
      case TemplateNode::Kind::kIf: return block(evaluate(*node.expression).truth() ? node.body : node.otherwise, out);
      case TemplateNode::Kind::kSet: assign(node); return Flow::kOn;
      case TemplateNode::Kind::kCapture: {
        std::string text;
        scopes_.emplace_back();
        block(node.body, text);
        scopes_.pop_back();
        set_item(scopes_.back(), node.names[0], TemplateValue::text(std::move(text)));
        return Flow::kOn;
      }
      case TemplateNode::Kind::kScope: return scope(node, out);
      case TemplateNode::Kind::kMacro: macros_[node.names[0]] = &node; return Flow::kOn;
      case TemplateNode::Kind::kBreak: return Flow::kBreak;
      case TemplateNode::Kind::kContinue: return Flow::kContinue;
    }
    return Flow::kOn;
  }

  /// Text that is not yet output (in a macro or a set block) gets a span relative to the output so far, as in
  /// transformers.
  Flow scope(const TemplateNode& node, std::string& out) {
    const std::size_t before = out.size(), begin = root_->size();
    const Flow flow = block(node.body, out);
    if (marked_ != nullptr) marked_->push_back({begin, begin + out.size() - before});
    return flow;
  }

  /// A macro sees its arguments and the outermost scope, but no variables of loops.
  TemplateValue call_macro(const TemplateNode& macro, const TemplateList& given, const TemplateDict& named) {
    if (++depth_ > kMostCalls) throw TemplateError("macros call each other too deeply");
    const std::size_t parameters = macro.names.size() - 1, required = parameters - macro.parts.size();
    if (given.size() > parameters)
      throw TemplateError(fmt::format("'{}' takes {} arguments", macro.names[0], parameters));
    TemplateDict own;
    for (std::size_t i = 0; i < parameters; ++i) {
      const auto& name = macro.names[i + 1];
      const auto found = std::find_if(named.begin(), named.end(), [&](const auto& item) { return item.first == name; });
      if (i < given.size())
        set_item(own, name, given[i]);
      else if (found != named.end())
        set_item(own, name, found->second);
      else
        set_item(own, name, i < required ? TemplateValue() : evaluate(*macro.parts[i - required]));
    }
    std::vector<TemplateDict> scopes;
    scopes.push_back(scopes_.front());
    scopes.push_back(std::move(own));
    std::swap(scopes, scopes_);
    std::string text;
    block(macro.body, text);
    std::swap(scopes, scopes_);
    --depth_;
    return TemplateValue::text(std::move(text));
  }

  void print(const std::string& text, std::string& out) {
    if (out.size() + text.size() > kMostText) throw TemplateError("the text is too long");
    out += text;
  }

  void assign(const TemplateNode& node) {
    TemplateValue value = evaluate(*node.expression);
    if (!node.attribute.empty()) {
      auto* object = look_up(node.names[0]);
      if (object == nullptr || object->as_dict() == nullptr)
        throw TemplateError(fmt::format("'{}' is not a namespace", node.names[0]));
      return set_item(*object->as_dict(), node.attribute, std::move(value));
    }
    unpack(node.names, value);
  }

  void unpack(const std::vector<std::string>& names, const TemplateValue& value) {
    if (names.size() == 1) return set_item(scopes_.back(), names[0], value);
    const TemplateList items = items_of(value);
    if (items.size() != names.size())
      throw TemplateError(fmt::format("{} values for {} names", items.size(), names.size()));
    for (std::size_t i = 0; i < names.size(); ++i) set_item(scopes_.back(), names[i], items[i]);
  }

  /// Variables set in a loop are dropped after each iteration, as in Jinja.
  Flow loop(const TemplateNode& node, std::string& out) {
    TemplateList items = items_of(evaluate(*node.expression));
    if (node.condition) {
      TemplateList kept;
      for (auto& item : items) {
        scopes_.emplace_back();
        unpack(node.names, item);
        const bool wanted = evaluate(*node.condition).truth();
        scopes_.pop_back();
        if (wanted) kept.push_back(std::move(item));
      }
      items = std::move(kept);
    }
    if (items.empty()) return block(node.otherwise, out);
    const auto count = static_cast<std::int64_t>(items.size());
    for (std::int64_t i = 0; i < count; ++i) {
      step();
      TemplateDict facts = {{"index", Storage(i + 1)},        {"index0", Storage(i)},
                            {"revindex", Storage(count - i)}, {"revindex0", Storage(count - i - 1)},
                            {"first", Storage(i == 0)},       {"last", Storage(i + 1 == count)},
                            {"length", Storage(count)}};
      if (i > 0) facts.emplace_back("previtem", items[static_cast<std::size_t>(i) - 1]);
      if (i + 1 < count) facts.emplace_back("nextitem", items[static_cast<std::size_t>(i) + 1]);
      scopes_.emplace_back();
      set_item(scopes_.back(), "loop", TemplateValue::dict(std::move(facts)));
      unpack(node.names, items[static_cast<std::size_t>(i)]);
      const Flow flow = block(node.body, out);
      scopes_.pop_back();
      if (flow == Flow::kBreak) break;
    }
    return Flow::kOn;
  }

  TemplateValue* look_up(const std::string& name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (auto* found = find_item(*scope, name)) return found;
    return nullptr;
  }

  TemplateValue evaluate(const Expression& e) {
    step();
    return at_line(e.line, [&] { return value_of(e); });
  }

  TemplateValue value_of(const Expression& e) {
    switch (e.kind) {
      case Expression::Kind::kLiteral: return e.value;
      case Expression::Kind::kName: {
        const auto* found = look_up(e.text);
        return found == nullptr ? TemplateValue() : *found;
      }
      case Expression::Kind::kList: {
        TemplateList out;
        for (const auto& part : e.parts) out.push_back(evaluate(*part));
        return TemplateValue::list(std::move(out));
      }
      case Expression::Kind::kDict: {
        TemplateDict out;
        for (std::size_t i = 0; i < e.parts.size(); i += 2)
          set_item(out, evaluate(*e.parts[i]).str(), evaluate(*e.parts[i + 1]));
        return TemplateValue::dict(std::move(out));
      }
      case Expression::Kind::kNot: return Storage(!evaluate(*e.parts[0]).truth());
      case Expression::Kind::kNegative: return binary("-", Storage(std::int64_t{0}), evaluate(*e.parts[0]));
      case Expression::Kind::kAnd: {
        auto left = evaluate(*e.parts[0]);
        return left.truth() ? evaluate(*e.parts[1]) : left;
      }
      case Expression::Kind::kOr: {
        auto left = evaluate(*e.parts[0]);
        return left.truth() ? left : evaluate(*e.parts[1]);
      }
      case Expression::Kind::kBinary: {
        const auto left = evaluate(*e.parts[0]);
        return binary(e.text, left, evaluate(*e.parts[1]));
      }
      case Expression::Kind::kCompare: return comparison(e);
      case Expression::Kind::kIf:
        if (evaluate(*e.parts[1]).truth()) return evaluate(*e.parts[0]);
        return e.parts[2] ? evaluate(*e.parts[2]) : TemplateValue();
      case Expression::Kind::kAttribute: return member(evaluate(*e.parts[0]), TemplateValue::text(e.text));
      case Expression::Kind::kItem: return member(evaluate(*e.parts[0]), evaluate(*e.parts[1]));
      case Expression::Kind::kSlice: return slice(e);
      case Expression::Kind::kCall: return call(e);
      case Expression::Kind::kFilter: {
        TemplateDict named;
        const TemplateList given = arguments(e, named);
        return apply_filter(e.text, evaluate(*e.parts[0]), given, named);
      }
      case Expression::Kind::kTest: {
        TemplateDict named;
        const TemplateList given = arguments(e, named);
        return Storage(apply_test(e.text, evaluate(*e.parts[0]), given));
      }
    }
    return {};
  }

  TemplateValue comparison(const Expression& e) {
    auto left = evaluate(*e.parts[0]);
    for (std::size_t i = 0; i < e.operators.size(); ++i) {
      auto right = evaluate(*e.parts[i + 1]);
      if (!compare(e.operators[i], left, right)) return Storage(false);
      left = std::move(right);
    }
    return Storage(true);
  }

  /// An unknown member is undefined; looking up a member of an undefined value is an error.
  static TemplateValue member(const TemplateValue& object, const TemplateValue& key) {
    if (object.is_undefined()) throw TemplateError(fmt::format("an undefined value has no member {}", key.repr()));
    if (auto* dict = object.as_dict()) {
      const auto* found = key.as_text() == nullptr ? nullptr : find_item(*dict, *key.as_text());
      return found == nullptr ? TemplateValue() : *found;
    }
    if (key.as_int() == nullptr || (object.as_list() == nullptr && object.as_text() == nullptr)) return {};
    const TemplateList items = items_of(object);
    const auto size = static_cast<std::int64_t>(items.size());
    const std::int64_t at = *key.as_int() < 0 ? *key.as_int() + size : *key.as_int();
    return at < 0 || at >= size ? TemplateValue() : items[static_cast<std::size_t>(at)];
  }

  TemplateValue slice(const Expression& e) {
    const auto object = evaluate(*e.parts[0]);
    if (object.as_list() == nullptr && object.as_text() == nullptr)
      throw TemplateError(fmt::format("{} cannot be sliced", object.type()));
    const auto bound = [&](std::size_t i) -> std::optional<std::int64_t> {
      if (!e.parts[i]) return std::nullopt;
      const auto value = evaluate(*e.parts[i]);
      if (value.is_none()) return std::nullopt;
      if (value.as_int() == nullptr) throw TemplateError("bounds of slices are integers");
      return *value.as_int();
    };
    const TemplateList items = items_of(object);
    const auto size = static_cast<std::int64_t>(items.size());
    const std::int64_t by = bound(3).value_or(1);
    if (by == 0) throw TemplateError("a slice has no step of 0");
    const auto place = [&](std::optional<std::int64_t> at, std::int64_t otherwise) {
      if (!at) return otherwise;
      const std::int64_t from_begin = *at < 0 ? *at + size : *at;
      return by > 0 ? std::clamp<std::int64_t>(from_begin, 0, size)
                    : std::clamp<std::int64_t>(from_begin, -1, size - 1);
    };
    const std::int64_t begin = place(bound(1), by > 0 ? 0 : size - 1), end = place(bound(2), by > 0 ? size : -1);
    TemplateList out;
    std::string text;
    for (std::int64_t i = begin; by > 0 ? i < end : i > end;) {
      const auto& item = items[static_cast<std::size_t>(i)];
      if (object.as_text() != nullptr)
        text += *item.as_text();
      else
        out.push_back(item);
      if (by > 0 ? by > end - i : by < end - i) break;
      i += by;
    }
    return object.as_text() != nullptr ? TemplateValue::text(std::move(text)) : TemplateValue::list(std::move(out));
  }

  TemplateList arguments(const Expression& e, TemplateDict& named) {
    TemplateList out;
    const std::size_t plain = e.parts.size() - e.names.size();
    for (std::size_t i = 1; i < plain; ++i) out.push_back(evaluate(*e.parts[i]));
    for (std::size_t i = 0; i < e.names.size(); ++i) set_item(named, e.names[i], evaluate(*e.parts[plain + i]));
    return out;
  }

  TemplateValue call(const Expression& e) {
    const Expression& callee = *e.parts[0];
    TemplateDict named;
    const TemplateList given = arguments(e, named);
    if (callee.kind == Expression::Kind::kName) {
      const auto macro = macros_.find(callee.text);
      return macro == macros_.end() ? call_function(callee.text, given, named)
                                    : call_macro(*macro->second, given, named);
    }
    if (callee.kind == Expression::Kind::kAttribute) return call_method(evaluate(*callee.parts[0]), callee.text, given);
    throw TemplateError("only functions and methods can be called");
  }

  std::vector<TemplateDict> scopes_;
  std::map<std::string, const TemplateNode*, std::less<>> macros_;
  std::vector<TextSpan>* marked_;
  const std::string* root_ = nullptr;  ///< the template's output
  int depth_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace

std::string render_template(const TemplateBlock& block, TemplateDict variables, std::vector<TextSpan>* marked) {
  return Renderer(std::move(variables), marked).run(block);
}

}  // namespace automodel::tokenizer
