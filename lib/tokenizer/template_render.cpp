// Renders the syntax tree of a chat template.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "tokenizer/template_tree.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

using Expression = TemplateExpression;
using Storage = TemplateValue::Storage;

enum class Flow { kOn, kBreak, kContinue };

[[noreturn]] void no_operation(std::string_view sign, const TemplateValue& left, const TemplateValue& right) {
  throw TemplateError(fmt::format("{} {} {} cannot be", left.type(), sign, right.type()));
}

/// As Python's operators: the remainder has the divisor's sign, and a negative power of an integer is a fraction.
/// Integers that a double cannot hold are refused.
TemplateValue numeric(std::string_view sign, const TemplateValue& left, const TemplateValue& right) {
  constexpr double kExact = 9e15;
  const double a = left.number(), b = right.number();
  const bool whole = left.data.index() != 4 && right.data.index() != 4 && !(sign == "**" && b < 0);
  if ((sign == "/" || sign == "//" || sign == "%") && b == 0) throw TemplateError("division by zero");
  double value = 0;
  if (sign == "+") value = a + b;
  if (sign == "-") value = a - b;
  if (sign == "*") value = a * b;
  if (sign == "/") return Storage(a / b);
  if (sign == "//" || sign == "%") {
    double rest = std::fmod(a, b);
    if (rest == 0)
      rest = std::copysign(0.0, b);
    else if ((rest < 0) != (b < 0))
      rest += b;
    value = sign == "%" ? rest : std::copysign(std::round((a - rest) / b), a / b);
  }
  if (sign == "**") {
    value = std::pow(a, b);
    if (!std::isfinite(value)) throw TemplateError(fmt::format("{} ** {} has no value", a, b));
  }
  if (!whole) return Storage(value);
  if (!(std::max({std::abs(value), std::abs(a), std::abs(b)}) < kExact)) throw TemplateError("the number is too large");
  return Storage(static_cast<std::int64_t>(value));
}

TemplateValue repeated(const std::string& text, std::int64_t times, TemplateBudget& budget) {
  TemplateText out(budget);
  if (text.empty()) times = 0;
  for (std::int64_t i = 0; i < times; ++i) out.add(text);
  return TemplateValue::paid(out.take());
}

TemplateValue binary(const std::string& sign, const TemplateValue& left, const TemplateValue& right,
                     TemplateBudget& budget) {
  if (sign == "~") {
    TemplateText out(budget);
    out.add(left.as_text() != nullptr ? *left.as_text() : left.str(budget));
    out.add(right.as_text() != nullptr ? *right.as_text() : right.str(budget));
    return TemplateValue::paid(out.take());
  }
  if (left.is_number() && right.is_number()) return numeric(sign, left, right);
  if (sign == "+" && left.as_text() != nullptr && right.as_text() != nullptr)
    return TemplateValue::paid(TemplateText(budget).add(*left.as_text()).add(*right.as_text()).take());
  const auto kind = left.sequence();
  if (sign == "+" && kind == right.sequence() && (kind == Sequence::kList || kind == Sequence::kTuple)) {
    TemplateList out = items_of(left, budget);
    const TemplateList more = items_of(right, budget);
    out.insert(out.end(), more.begin(), more.end());
    return TemplateValue::list(std::move(out), budget, *kind);
  }
  for (const auto& [text, times] : {std::pair(&left, &right), std::pair(&right, &left)})
    if (sign == "*" && text->as_text() != nullptr && times->is_number() && times->type() != "float")
      return repeated(*text->as_text(), static_cast<std::int64_t>(times->number()), budget);
  no_operation(sign, left, right);
}

int ordered(const std::string& left, const std::string& right, TemplateBudget& budget) {
  budget.read(std::min(left.size(), right.size()));
  return left.compare(right);
}

bool compare(const std::string& sign, const TemplateValue& left, const TemplateValue& right, TemplateBudget& budget) {
  if (sign == "==") return left.equals(right, budget);
  if (sign == "!=") return !left.equals(right, budget);
  if (sign == "in") return contains(right, left, budget);
  if (sign == "not in") return !contains(right, left, budget);
  int order = 0;
  if (left.is_number() && right.is_number())
    order = left.number() < right.number() ? -1 : left.number() > right.number() ? 1 : 0;
  else if (left.as_text() == nullptr || right.as_text() == nullptr)
    no_operation(sign, left, right);
  else
    order = ordered(*left.as_text(), *right.as_text(), budget);
  if (sign == "<") return order < 0;
  if (sign == ">") return order > 0;
  return sign == "<=" ? order <= 0 : order >= 0;
}

class Renderer {
 public:
  Renderer(TemplateDict variables, TemplateBudget& budget, std::vector<TextSpan>* marked)
      : budget_(budget), marked_(marked) {
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
    const TemplateBudget::Level level(budget_);
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

  Flow run(const TemplateNode& node, std::string& out) {
    budget_.step();
    switch (node.kind) {
      case TemplateNode::Kind::kText: print(node.text, out); return Flow::kOn;
      case TemplateNode::Kind::kOutput: print(evaluate(*node.expression), out); return Flow::kOn;
      case TemplateNode::Kind::kFor: return loop(node, out);
      case TemplateNode::Kind::kIf: return block(evaluate(*node.expression).truth() ? node.body : node.otherwise, out);
      case TemplateNode::Kind::kSet: assign(node); return Flow::kOn;
      case TemplateNode::Kind::kCapture: {
        std::string text;
        scopes_.emplace_back();
        const Flow flow = block(node.body, text);
        scopes_.pop_back();
        if (flow != Flow::kOn) return flow;  // nothing is set
        set(node.names[0], TemplateValue::paid(std::move(text)));
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
    const std::size_t parameters = macro.names.size() - 1, required = parameters - macro.parts.size();
    if (given.size() > parameters)
      throw TemplateError(fmt::format("'{}' takes {} arguments", macro.names[0], parameters));
    for (const auto& [name, value] : named)
      if (std::find(macro.names.begin() + 1, macro.names.end(), name) == macro.names.end())
        throw TemplateError(fmt::format("'{}' takes no argument '{}'", macro.names[0], name));
    TemplateDict own;
    for (std::size_t i = 0; i < parameters; ++i) {
      const auto& name = macro.names[i + 1];
      const auto found = std::find_if(named.begin(), named.end(), [&](const auto& item) { return item.first == name; });
      if (i < given.size())
        set_item(own, name, given[i], budget_);
      else if (found != named.end())
        set_item(own, name, found->second, budget_);
      else
        set_item(own, name, i < required ? TemplateValue() : evaluate(*macro.parts[i - required]), budget_);
    }
    budget_.step(static_cast<std::int64_t>(scopes_.front().size() + named.size() * parameters));
    std::vector<TemplateDict> scopes;
    scopes.push_back(scopes_.front());
    scopes.push_back(std::move(own));
    std::swap(scopes, scopes_);
    std::string text;
    block(macro.body, text);
    std::swap(scopes, scopes_);
    return TemplateValue::paid(std::move(text));
  }

  void print(const std::string& text, std::string& out) {
    budget_.write(text.size());
    if (out.size() + text.size() > TemplateBudget::kMostOutput) throw TemplateError("the text is too long");
    out += text;
  }
  void print(const TemplateValue& value, std::string& out) {
    value.as_text() != nullptr ? print(*value.as_text(), out) : print(value.str(budget_), out);
  }
  void set(const std::string& name, TemplateValue value) { set_item(scopes_.back(), name, std::move(value), budget_); }

  void assign(const TemplateNode& node) {
    TemplateValue value = evaluate(*node.expression);
    if (!node.attribute.empty()) {
      const auto* object = look_up(node.names[0]);
      if (object == nullptr || !object->is_namespace())
        throw TemplateError(fmt::format("'{}' is not a namespace", node.names[0]));
      return object->assign(node.attribute, std::move(value), budget_);
    }
    unpack(node.names, value);
  }

  void unpack(const std::vector<std::string>& names, const TemplateValue& value) {
    if (names.size() == 1) return set(names[0], value);
    const TemplateList items = items_of(value, budget_);
    if (items.size() != names.size())
      throw TemplateError(fmt::format("{} values for {} names", items.size(), names.size()));
    for (std::size_t i = 0; i < names.size(); ++i) set(names[i], items[i]);
  }

  /// Variables set in a loop are dropped after each iteration, as in Jinja, whose `else` is for loops of which no
  /// iteration came to its end: also those that break or continue each time.
  Flow loop(const TemplateNode& node, std::string& out) {
    TemplateList items = items_of(evaluate(*node.expression), budget_);
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
    const auto count = static_cast<std::int64_t>(items.size());
    bool ended = false;
    for (std::int64_t i = 0; i < count; ++i) {
      TemplateDict facts = {{"index", Storage(i + 1)},           {"index0", Storage(i)},
                            {"revindex", Storage(count - i)},    {"revindex0", Storage(count - i - 1)},
                            {"first", Storage(i == 0)},          {"last", Storage(i + 1 == count)},
                            {"length", Storage(count)},          {"depth", Storage(std::int64_t{1})},
                            {"depth0", Storage(std::int64_t{0})}};
      if (i > 0) facts.emplace_back("previtem", items[static_cast<std::size_t>(i) - 1]);
      if (i + 1 < count) facts.emplace_back("nextitem", items[static_cast<std::size_t>(i) + 1]);
      scopes_.emplace_back();
      set("loop", TemplateValue::dict(std::move(facts), budget_));
      unpack(node.names, items[static_cast<std::size_t>(i)]);
      const Flow flow = block(node.body, out);
      scopes_.pop_back();
      if (flow == Flow::kBreak) break;
      ended = ended || flow == Flow::kOn;
    }
    return ended ? Flow::kOn : block(node.otherwise, out);
  }

  const TemplateValue* look_up(const std::string& name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto* found = find_item(*scope, name, budget_)) return found;
    return nullptr;
  }

  TemplateValue evaluate(const Expression& e) {
    const TemplateBudget::Level level(budget_);
    budget_.step();
    return at_line(e.line, [&] { return value_of(e); });
  }

  TemplateValue value_of(const Expression& e) {
    switch (e.kind) {
      case Expression::Kind::kLiteral: return e.value;
      case Expression::Kind::kName: {
        const auto* found = look_up(e.text);
        return found == nullptr ? TemplateValue() : *found;
      }
      case Expression::Kind::kList:
      case Expression::Kind::kTuple: {
        TemplateList out;
        for (const auto& part : e.parts) out.push_back(evaluate(*part));
        return TemplateValue::list(std::move(out), budget_,
                                   e.kind == Expression::Kind::kList ? Sequence::kList : Sequence::kTuple);
      }
      case Expression::Kind::kDict: {
        TemplateDict out;
        for (std::size_t i = 0; i < e.parts.size(); i += 2) {
          const auto key = evaluate(*e.parts[i]);
          if (key.as_text() == nullptr)
            throw TemplateError(fmt::format("keys of dictionaries are strings here, not {}", key.type()));
          set_item(out, *key.as_text(), evaluate(*e.parts[i + 1]), budget_);
        }
        return TemplateValue::dict(std::move(out), budget_);
      }
      case Expression::Kind::kNot: return Storage(!evaluate(*e.parts[0]).truth());
      case Expression::Kind::kNegative: {
        const auto value = evaluate(*e.parts[0]);
        return value.type() == "float" ? Storage(-value.number())
                                       : binary("-", Storage(std::int64_t{0}), value, budget_);
      }
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
        return binary(e.text, left, evaluate(*e.parts[1]), budget_);
      }
      case Expression::Kind::kCompare: return comparison(e);
      case Expression::Kind::kIf:
        if (evaluate(*e.parts[1]).truth()) return evaluate(*e.parts[0]);
        return e.parts[2] ? evaluate(*e.parts[2]) : TemplateValue();
      case Expression::Kind::kAttribute:
        return member_of(evaluate(*e.parts[0]), TemplateValue::paid(e.text), true, budget_);
      case Expression::Kind::kItem: {
        const auto object = evaluate(*e.parts[0]);
        return member_of(object, evaluate(*e.parts[1]), false, budget_);
      }
      case Expression::Kind::kSlice: return slice(e);
      case Expression::Kind::kCall: return call(e);
      case Expression::Kind::kFilter: {
        const auto given = arguments(e);
        return apply_filter(e.text, evaluate(*e.parts[0]), given, budget_);
      }
      case Expression::Kind::kTest: {
        const auto given = arguments(e);
        if (!given.named.empty()) throw TemplateError("arguments of tests have no names here");
        return Storage(apply_test(e.text, evaluate(*e.parts[0]), given.plain, budget_));
      }
    }
    return {};
  }

  TemplateValue comparison(const Expression& e) {
    auto left = evaluate(*e.parts[0]);
    for (std::size_t i = 0; i < e.operators.size(); ++i) {
      auto right = evaluate(*e.parts[i + 1]);
      if (!compare(e.operators[i], left, right, budget_)) return Storage(false);
      left = std::move(right);
    }
    return Storage(true);
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
    const auto* text = object.as_text();
    const std::int64_t size =
        static_cast<std::int64_t>(text == nullptr ? object.as_list()->size() : count_code_points(*text, budget_));
    const std::int64_t by = bound(3).value_or(1);
    if (by == 0) throw TemplateError("a slice has no step of 0");
    const auto place = [&](std::optional<std::int64_t> at, std::int64_t otherwise) {
      if (!at) return otherwise;
      const std::int64_t from_begin = *at < 0 ? *at + size : *at;
      return by > 0 ? std::clamp<std::int64_t>(from_begin, 0, size)
                    : std::clamp<std::int64_t>(from_begin, -1, size - 1);
    };
    const std::int64_t begin = place(bound(1), by > 0 ? 0 : size - 1), end = place(bound(2), by > 0 ? size : -1);
    if (text != nullptr && by == 1)
      return part_of(*text, static_cast<std::size_t>(begin), static_cast<std::size_t>(std::max(begin, end)), budget_);
    const TemplateList items = items_of(object, budget_);
    TemplateList out;
    TemplateText letters(budget_);
    for (std::int64_t i = begin; by > 0 ? i < end : i > end;) {
      const auto& item = items[static_cast<std::size_t>(i)];
      if (text != nullptr)
        letters.add(*item.as_text());
      else
        out.push_back(item);
      if (by > 0 ? by > end - i : by < end - i) break;
      i += by;
    }
    return text != nullptr ? TemplateValue::paid(letters.take())
                           : TemplateValue::list(std::move(out), budget_, *object.sequence());
  }

  TemplateArguments arguments(const Expression& e) {
    TemplateArguments out;
    const std::size_t plain = e.parts.size() - e.names.size();
    for (std::size_t i = 1; i < plain; ++i) out.plain.push_back(evaluate(*e.parts[i]));
    for (std::size_t i = 0; i < e.names.size(); ++i)
      set_item(out.named, e.names[i], evaluate(*e.parts[plain + i]), budget_);
    return out;
  }

  TemplateValue call(const Expression& e) {
    const Expression& callee = *e.parts[0];
    const auto given = arguments(e);
    if (callee.kind == Expression::Kind::kName) {
      const auto macro = macros_.find(callee.text);
      return macro == macros_.end() ? call_function(callee.text, given, budget_)
                                    : call_macro(*macro->second, given.plain, given.named);
    }
    if (callee.kind == Expression::Kind::kAttribute)
      return call_method(evaluate(*callee.parts[0]), callee.text, given, budget_);
    throw TemplateError("only functions and methods can be called");
  }

  TemplateBudget& budget_;
  std::vector<TemplateDict> scopes_;
  std::map<std::string, const TemplateNode*, std::less<>> macros_;
  std::vector<TextSpan>* marked_;
  const std::string* root_ = nullptr;  ///< the template's output
};

}  // namespace

std::string render_template(const TemplateBlock& block, TemplateDict variables, TemplateBudget& budget,
                            std::vector<TextSpan>* marked) {
  return Renderer(std::move(variables), budget, marked).run(block);
}

}  // namespace automodel::tokenizer
