// The syntax tree of a chat template.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/template_value.h"

namespace automodel::tokenizer {

struct TemplateExpression;
using ExpressionPtr = std::unique_ptr<const TemplateExpression>;

struct TemplateExpression {
  enum class Kind {
    kLiteral,
    kName,      ///< text
    kList,      ///< parts
    kDict,      ///< parts: key, value, key, value
    kNot,       ///< parts[0]
    kNegative,  ///< parts[0]
    kAnd,       ///< parts[0], parts[1]
    kOr,
    kBinary,     ///< text is the operator: + - * / // % ** ~
    kCompare,    ///< parts[0] operators[0] parts[1] operators[1] parts[2] ...
    kIf,         ///< parts[0] if parts[1] else parts[2] (may be null)
    kAttribute,  ///< parts[0].text
    kItem,       ///< parts[0][parts[1]]
    kSlice,      ///< parts[0][parts[1]:parts[2]:parts[3]], null if omitted
    kCall,       ///< parts[0](parts[1], ...); the last names.size() arguments are named
    kFilter,     ///< parts[0] | text(parts[1], ...)
    kTest,       ///< parts[0] is text parts[1] ...
  };
  Kind kind;
  int line = 0;
  std::string text = {};
  TemplateValue value = {};
  std::vector<ExpressionPtr> parts = {};
  std::vector<std::string> operators = {};
  std::vector<std::string> names = {};
};

struct TemplateNode;
using TemplateBlock = std::vector<TemplateNode>;

struct TemplateNode {
  enum class Kind {
    kText,
    kOutput,   ///< expression
    kFor,      ///< names in expression if condition: body else otherwise
    kIf,       ///< expression: body else otherwise
    kSet,      ///< names = expression, or names[0].attribute
    kCapture,  ///< names[0] = output of body
    kScope,    ///< body's output, with its span recorded ({% generation %})
    kMacro,    ///< names[0](names[1], ...) outputs body; the last parts.size() parameters have defaults
    kBreak,
    kContinue,
  };
  Kind kind;
  int line = 0;
  std::string text = {};
  std::vector<std::string> names = {};
  std::string attribute = {};
  ExpressionPtr expression = nullptr;
  ExpressionPtr condition = nullptr;
  std::vector<ExpressionPtr> parts = {};
  TemplateBlock body = {};
  TemplateBlock otherwise = {};
};

/// Parses Jinja as transformers configures it: trim_blocks, lstrip_blocks, break and continue. Supports for, if, set,
/// macro, generation, break, continue and expressions; other statements (include, ...) throw TemplateError.
TemplateBlock parse_template(std::string_view source);

/// The byte range [begin, end) of a text.
struct TextSpan {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Renders with these variables; `marked`, if not null, receives the spans of {% generation %} blocks. Throws
/// TemplateError.
std::string render_template(const TemplateBlock& block, TemplateDict variables,
                            std::vector<TextSpan>* marked = nullptr);

/// Built-in filters, tests, methods and functions. They throw TemplateError.
TemplateValue apply_filter(const std::string& name, const TemplateValue& value, const TemplateList& arguments,
                           const TemplateDict& named);
/// Filters that iterate over a list: map, select, dictsort and others.
bool is_list_filter(const std::string& name);
TemplateValue apply_list_filter(const std::string& name, const TemplateValue& value, const TemplateList& arguments,
                                const TemplateDict& named);
/// Escapes every non-ASCII character of JSON text as \uXXXX.
std::string ascii_json(const std::string& json);
bool apply_test(const std::string& name, const TemplateValue& value, const TemplateList& arguments);
TemplateValue call_method(const TemplateValue& object, const std::string& name, const TemplateList& arguments);
TemplateValue call_function(const std::string& name, const TemplateList& arguments, const TemplateDict& named);
/// Whether `part` is in `whole`.
bool contains(const TemplateValue& whole, const TemplateValue& part);

}  // namespace automodel::tokenizer
