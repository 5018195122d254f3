// From a template's tokens to its tree.
// long: one grammar, with mutually recursive levels.
#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "tokenizer/template_lexer.h"
#include "tokenizer/template_tree.h"

namespace automodel::tokenizer {
namespace {

using Kind = TemplateToken::Kind;
using Expression = TemplateExpression;
constexpr int kMaxDepth = 150;
constexpr std::array<std::string_view, 6> kComparisons = {"==", "!=", "<", ">", "<=", ">="};

std::unique_ptr<Expression> make(Expression::Kind kind, int line, std::string text = {}) {
  auto out = std::make_unique<Expression>();
  out->kind = kind;
  out->line = line;
  out->text = std::move(text);
  return out;
}

class Parser {
 public:
  explicit Parser(std::string_view source) {
    if (source.size() > TemplateBudget::kMostSource) throw TemplateError("the template is too long");
    tokens_ = lex_template(source);
  }

  TemplateBlock run() {
    TemplateBlock out = block({});
    if (now().kind != Kind::kEnd) fail(fmt::format("'{}' stands alone", now().text));
    return out;
  }

 private:
  /// Limits the depth of recursion, so that no input overflows the stack.
  class Deeper {
   public:
    explicit Deeper(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth) parser_.fail("the template is nested too deeply");
    }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ~Deeper() { --parser_.depth_; }

   private:
    Parser& parser_;
  };

  const TemplateToken& now() const { return tokens_[at_]; }
  const TemplateToken& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  [[noreturn]] void fail(const std::string& message) const { throw TemplateError(message, now().line); }
  bool is_sign(std::string_view sign) const { return now().kind == Kind::kSign && now().text == sign; }
  bool is_word(std::string_view word) const { return now().kind == Kind::kName && now().text == word; }
  bool take_sign(std::string_view sign) {
    if (!is_sign(sign)) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    if (!is_word(word)) return false;
    ++at_;
    return true;
  }
  void expect(Kind kind, const char* what) {
    if (now().kind != kind) fail(fmt::format("{} is expected", what));
    ++at_;
  }
  void expect_sign(std::string_view sign) {
    if (!take_sign(sign)) fail(fmt::format("'{}' is expected", sign));
  }
  std::string name() {
    if (now().kind != Kind::kName) fail("a name is expected");
    return tokens_[at_++].text;
  }

  /// Chains of operators and filters nest without recursion of the parser: the tree's depth is limited here.
  void add(Expression& to, ExpressionPtr part) const {
    if (part) to.depth = std::max(to.depth, part->depth + 1);
    if (to.depth > TemplateBudget::kMostDepth) fail("the expression is too long");
    to.parts.push_back(std::move(part));
  }

  /// Parses up to a block tag that begins with one of `ends`, leaving that word as the next token, or to the end.
  TemplateBlock block(const std::vector<std::string_view>& ends) {
    const Deeper deeper(*this);
    TemplateBlock out;
    for (;;) {
      const int line = now().line;
      if (now().kind == Kind::kEnd) return out;
      if (now().kind == Kind::kText) {
        out.push_back({.kind = TemplateNode::Kind::kText, .line = line, .text = tokens_[at_++].text});
      } else if (now().kind == Kind::kOutputBegin) {
        ++at_;
        out.push_back({.kind = TemplateNode::Kind::kOutput, .line = line, .expression = tuple()});
        expect(Kind::kOutputEnd, "}}");
      } else {
        expect(Kind::kBlockBegin, "a tag");
        if (now().kind == Kind::kName && std::find(ends.begin(), ends.end(), now().text) != ends.end()) return out;
        statement(line, out);
      }
    }
  }

  void end_of_block() { expect(Kind::kBlockEnd, "%}"); }

  void statement(int line, TemplateBlock& out) {
    const std::string word = name();
    if (word == "for") return out.push_back(for_loop(line));
    if (word == "if") return out.push_back(condition(line));
    if (word == "set") return out.push_back(assignment(line));
    if (word == "macro") return out.push_back(macro(line));
    if (word == "generation") {
      TemplateNode node{.kind = TemplateNode::Kind::kScope, .line = line};
      end_of_block();
      node.body = block({"endgeneration"});
      finish("endgeneration");
      return out.push_back(std::move(node));
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) fail(fmt::format("'{}' outside of a loop", word));
      end_of_block();
      return out.push_back(
          {.kind = word == "break" ? TemplateNode::Kind::kBreak : TemplateNode::Kind::kContinue, .line = line});
    }
    fail(fmt::format("the statement '{}' is not supported", word));
  }

  void finish(std::string_view word) {
    if (!take_word(word)) fail(fmt::format("'{}' is expected", word));
    end_of_block();
  }

  TemplateNode for_loop(int line) {
    TemplateNode node{.kind = TemplateNode::Kind::kFor, .line = line};
    const bool bracketed = take_sign("(");
    do node.names.push_back(name());
    while (take_sign(","));
    if (bracketed) expect_sign(")");
    if (!take_word("in")) fail("'in' is expected");
    node.expression = tuple(false);
    if (take_word("if")) node.condition = expression();
    take_word("recursive");
    end_of_block();
    ++loops_;
    node.body = block({"else", "endfor"});
    --loops_;
    if (take_word("else")) {
      end_of_block();
      node.otherwise = block({"endfor"});
    }
    finish("endfor");
    return node;
  }

  TemplateNode macro(int line) {
    TemplateNode node{.kind = TemplateNode::Kind::kMacro, .line = line};
    node.names.push_back(name());
    expect_sign("(");
    while (!take_sign(")")) {
      node.names.push_back(name());
      if (take_sign("="))
        node.parts.push_back(expression());
      else if (!node.parts.empty())
        fail("parameters with defaults come last");
      if (!is_sign(")")) expect_sign(",");
    }
    end_of_block();
    const int loops = std::exchange(loops_, 0);
    node.body = block({"endmacro"});
    loops_ = loops;
    if (!take_word("endmacro")) fail("'endmacro' is expected");
    if (now().kind == Kind::kName) ++at_;  // its name may be repeated
    end_of_block();
    return node;
  }

  TemplateNode condition(int line) {
    TemplateNode node{.kind = TemplateNode::Kind::kIf, .line = line};
    node.expression = tuple();
    end_of_block();
    node.body = block({"elif", "else", "endif"});
    const int next = now().line;
    if (take_word("elif")) {
      const Deeper deeper(*this);
      node.otherwise.push_back(condition(next));
      return node;  // the recursive call consumed endif
    }
    if (take_word("else")) {
      end_of_block();
      node.otherwise = block({"endif"});
    }
    finish("endif");
    return node;
  }

  TemplateNode assignment(int line) {
    TemplateNode node{.kind = TemplateNode::Kind::kSet, .line = line};
    node.names.push_back(name());
    if (take_sign(".")) node.attribute = name();
    while (node.attribute.empty() && take_sign(",")) node.names.push_back(name());
    if (take_sign("=")) {
      node.expression = tuple();
      end_of_block();
      return node;
    }
    if (node.names.size() > 1 || !node.attribute.empty()) fail("'=' is expected");
    node.kind = TemplateNode::Kind::kCapture;
    end_of_block();
    node.body = block({"endset"});
    finish("endset");
    return node;
  }

  /// An expression, or a comma-separated sequence of them, which forms a tuple.
  ExpressionPtr tuple(bool with_condition = true) {
    const auto one = [&] { return with_condition ? expression() : or_expression(); };
    const int line = now().line;
    auto first = one();
    if (!is_sign(",")) return first;
    auto out = make(Expression::Kind::kTuple, line);
    add(*out, std::move(first));
    while (take_sign(",")) {
      if (now().kind == Kind::kBlockEnd || now().kind == Kind::kOutputEnd || is_sign(")")) break;
      add(*out, one());
    }
    return out;
  }

  ExpressionPtr expression() {
    const Deeper deeper(*this);
    auto value = or_expression();
    while (is_word("if")) {
      auto out = make(Expression::Kind::kIf, now().line);
      ++at_;
      add(*out, std::move(value));
      add(*out, or_expression());
      add(*out, take_word("else") ? expression() : nullptr);
      value = std::move(out);
    }
    return value;
  }

  ExpressionPtr pair(Expression::Kind kind, std::string text, ExpressionPtr left, ExpressionPtr right, int line) {
    auto out = make(kind, line, std::move(text));
    add(*out, std::move(left));
    add(*out, std::move(right));
    return out;
  }

  /// Left-associative operators of one precedence. The tree is as deep as a chain is long.
  template <class Next>
  ExpressionPtr chain(Next next, const std::vector<std::string_view>& signs) {
    auto left = next();
    while (now().kind == Kind::kSign && std::find(signs.begin(), signs.end(), now().text) != signs.end()) {
      const auto sign = tokens_[at_++];
      left = pair(Expression::Kind::kBinary, sign.text, std::move(left), next(), sign.line);
    }
    return left;
  }
  template <class Next>
  ExpressionPtr logic(Next next, std::string_view word, Expression::Kind kind) {
    auto left = next();
    while (is_word(word)) {
      const int line = tokens_[at_++].line;
      left = pair(kind, "", std::move(left), next(), line);
    }
    return left;
  }

  ExpressionPtr or_expression() {
    return logic([&] { return and_expression(); }, "or", Expression::Kind::kOr);
  }
  ExpressionPtr and_expression() {
    return logic([&] { return not_expression(); }, "and", Expression::Kind::kAnd);
  }
  ExpressionPtr not_expression() {
    const Deeper deeper(*this);
    if (!is_word("not")) return comparison();
    auto out = make(Expression::Kind::kNot, now().line);
    ++at_;
    add(*out, not_expression());
    return out;
  }

  ExpressionPtr comparison() {
    auto first = sum();
    auto out = make(Expression::Kind::kCompare, now().line);
    for (;;) {
      if (now().kind == Kind::kSign &&
          std::find(kComparisons.begin(), kComparisons.end(), now().text) != kComparisons.end()) {
        out->operators.push_back(tokens_[at_++].text);
      } else if (is_word("in")) {
        ++at_;
        out->operators.emplace_back("in");
      } else if (is_word("not") && after().kind == Kind::kName && after().text == "in") {
        at_ += 2;
        out->operators.emplace_back("not in");
      } else {
        break;
      }
      if (out->parts.empty()) add(*out, std::move(first));
      add(*out, sum());
    }
    return out->parts.empty() ? std::move(first) : std::move(out);
  }

  ExpressionPtr sum() {
    return chain([&] { return concatenation(); }, {"+", "-"});
  }
  ExpressionPtr concatenation() {
    return chain([&] { return product(); }, {"~"});
  }
  ExpressionPtr product() {
    return chain([&] { return power(); }, {"*", "/", "//", "%"});
  }
  ExpressionPtr power() {
    return chain([&] { return unary(true); }, {"**"});
  }

  ExpressionPtr unary(bool filters) {
    const Deeper deeper(*this);
    ExpressionPtr out;
    const int line = now().line;
    if (take_sign("-")) {
      auto negative = make(Expression::Kind::kNegative, line);
      add(*negative, unary(false));
      out = std::move(negative);
    } else if (take_sign("+")) {
      out = unary(false);
    } else {
      out = postfix(primary());
    }
    return filters ? filtered(std::move(out)) : std::move(out);
  }

  ExpressionPtr primary() {
    const auto token = now();
    ++at_;
    switch (token.kind) {
      case Kind::kName: return word(token);
      case Kind::kString: {
        std::string text = token.text;
        while (now().kind == Kind::kString) text += tokens_[at_++].text;
        return literal(TemplateValue::paid(std::move(text)), token.line);
      }
      case Kind::kInteger:
      case Kind::kFloat: return number(token);
      case Kind::kText:
      case Kind::kOutputBegin:
      case Kind::kOutputEnd:
      case Kind::kBlockBegin:
      case Kind::kBlockEnd:
      case Kind::kSign:
      case Kind::kEnd: break;
    }
    --at_;
    if (take_sign("(")) {
      if (take_sign(")")) return make(Expression::Kind::kTuple, token.line);
      auto out = tuple();
      expect_sign(")");
      return out;
    }
    if (take_sign("[")) return list(token.line);
    if (take_sign("{")) return dictionary(token.line);
    fail("a value is expected");
  }

  static ExpressionPtr literal(TemplateValue value, int line) {
    auto out = make(Expression::Kind::kLiteral, line);
    out->value = std::move(value);
    return out;
  }
  ExpressionPtr word(const TemplateToken& token) {
    if (token.text == "true" || token.text == "True") return literal(TemplateValue::Storage(true), token.line);
    if (token.text == "false" || token.text == "False") return literal(TemplateValue::Storage(false), token.line);
    if (token.text == "none" || token.text == "None") return literal(TemplateValue::none(), token.line);
    return make(Expression::Kind::kName, token.line, token.text);
  }
  ExpressionPtr number(const TemplateToken& token) {
    std::string text = token.text;
    std::erase(text, '_');
    if (token.kind == Kind::kFloat) return literal(TemplateValue::Storage(float_of(text)), token.line);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) throw TemplateError("the number is too large", token.line);
    return literal(TemplateValue::Storage(value), token.line);
  }
  /// As in Python, what is too small is 0.
  double float_of(const std::string& text) {
    double value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc()) return value;
    if (text.find_first_not_of('0') < text.find('.')) fail("the number is too large");
    return 0;
  }
  ExpressionPtr list(int line) {
    auto out = make(Expression::Kind::kList, line);
    while (!take_sign("]")) {
      add(*out, expression());
      if (!is_sign("]")) expect_sign(",");
    }
    return out;
  }
  ExpressionPtr dictionary(int line) {
    auto out = make(Expression::Kind::kDict, line);
    while (!take_sign("}")) {
      add(*out, expression());
      expect_sign(":");
      add(*out, expression());
      if (!is_sign("}")) expect_sign(",");
    }
    return out;
  }

  ExpressionPtr postfix(ExpressionPtr value) {
    for (;;) {
      const int line = now().line;
      if (take_sign(".")) {
        auto out = make(Expression::Kind::kAttribute, line);
        if (now().kind == Kind::kInteger) {
          out->kind = Expression::Kind::kItem;
          add(*out, std::move(value));
          add(*out, number(tokens_[at_++]));
        } else {
          out->text = name();
          add(*out, std::move(value));
        }
        value = std::move(out);
      } else if (take_sign("[")) {
        value = subscript(std::move(value), line);
      } else if (is_sign("(")) {
        auto out = make(Expression::Kind::kCall, line);
        add(*out, std::move(value));
        arguments(*out);
        value = std::move(out);
      } else {
        return value;
      }
    }
  }

  ExpressionPtr subscript(ExpressionPtr value, int line) {
    std::array<ExpressionPtr, 3> bounds;
    bool slice = false;
    for (std::size_t i = 0; i < bounds.size(); ++i) {
      if (!is_sign(":") && !is_sign("]")) bounds[i] = expression();
      if (!take_sign(":")) break;
      slice = true;
    }
    expect_sign("]");
    auto out = make(slice ? Expression::Kind::kSlice : Expression::Kind::kItem, line);
    add(*out, std::move(value));
    if (!slice && !bounds[0]) fail("an index is expected");
    for (std::size_t i = 0; i < (slice ? 3u : 1u); ++i) add(*out, std::move(bounds[i]));
    return out;
  }

  void arguments(Expression& call) {
    expect_sign("(");
    while (!take_sign(")")) {
      if (now().kind == Kind::kName && after().kind == Kind::kSign && after().text == "=") {
        call.names.push_back(name());
        ++at_;
      } else if (!call.names.empty()) {
        fail("arguments with names come last");
      }
      add(call, expression());
      if (!is_sign(")")) expect_sign(",");
    }
  }

  ExpressionPtr filtered(ExpressionPtr value) {
    for (;;) {
      const int line = now().line;
      if (take_sign("|")) {
        auto out = make(Expression::Kind::kFilter, line, name());
        add(*out, std::move(value));
        if (is_sign("(")) arguments(*out);
        value = std::move(out);
      } else if (take_word("is")) {
        value = test(std::move(value), line);
      } else {
        return value;
      }
    }
  }

  ExpressionPtr test(ExpressionPtr value, int line) {
    const bool negated = take_word("not");
    auto out = make(Expression::Kind::kTest, line, name());
    add(*out, std::move(value));
    if (is_sign("(")) {
      arguments(*out);
    } else if (now().kind == Kind::kString || now().kind == Kind::kInteger || is_sign("[") ||
               (now().kind == Kind::kName && !is_word("else") && !is_word("or") && !is_word("and") && !is_word("is") &&
                !is_word("if") && !is_word("in") && !is_word("not"))) {
      add(*out, postfix(primary()));
    }
    if (!negated) return out;
    auto inverse = make(Expression::Kind::kNot, line);
    add(*inverse, std::move(out));
    return inverse;
  }

  std::vector<TemplateToken> tokens_ = {};
  std::size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

TemplateBlock parse_template(std::string_view source) {
  return Parser(source).run();
}

}  // namespace automodel::tokenizer
