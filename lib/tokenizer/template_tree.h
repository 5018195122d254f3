// The syntax tree of a chat template.
#pragma once

#include <array>
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
    kTuple,     ///< parts
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
  int depth = 1;  ///< expressions inside each other, this one included
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
/// macro, generation, break, continue and expressions; other statements (include, ...) throw TemplateError. The tree is
/// at most TemplateBudget::kMostDepth deep.
TemplateBlock parse_template(std::string_view source);

/// The byte range [begin, end) of a text.
struct TextSpan {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Renders with these variables; `marked`, if not null, receives the spans of {% generation %} blocks. Throws
/// TemplateError.
std::string render_template(const TemplateBlock& block, TemplateDict variables, TemplateBudget& budget,
                            std::vector<TextSpan>* marked = nullptr);

/// What a filter, test, method or function is given.
struct TemplateArguments {
  TemplateList plain = {};
  TemplateDict named = {};
};

/// Built-in filters, tests, methods and functions. They throw TemplateError.
TemplateValue apply_filter(const std::string& name, const TemplateValue& value, const TemplateArguments& given,
                           TemplateBudget& budget);
/// Filters that iterate over a list: map, select, dictsort and others.
bool is_list_filter(const std::string& name);
TemplateValue apply_list_filter(const std::string& name, const TemplateValue& value, const TemplateArguments& given,
                                TemplateBudget& budget);
/// The filter `tojson`: json.dumps as transformers configures it.
TemplateValue json_filter(const TemplateValue& value, const std::array<const TemplateValue*, 4>& given,
                          TemplateBudget& budget);
/// Tuples of the keys and values of a dictionary; none if undefined.
TemplateList pairs_of(const TemplateValue& value, TemplateBudget& budget);
/// An item's attribute by its path ("a.b", "content.0.text", or a place); `otherwise`, if not null, where a part is
/// missing.
TemplateValue attribute_of(const TemplateValue& item, const TemplateValue& path, const TemplateValue* otherwise,
                           TemplateBudget& budget);
/// Escapes every non-ASCII character of JSON text as \uXXXX.
std::string ascii_json(const std::string& json);
bool apply_test(const std::string& name, const TemplateValue& value, const TemplateList& arguments,
                TemplateBudget& budget);
TemplateValue call_method(const TemplateValue& object, const std::string& name, const TemplateArguments& given,
                          TemplateBudget& budget);
TemplateValue call_function(const std::string& name, const TemplateArguments& given, TemplateBudget& budget);
/// Whether `part` is in `whole`.
bool contains(const TemplateValue& whole, const TemplateValue& part, TemplateBudget& budget);
/// The place of `part` in `text`, at or after `from`; npos if it is not there. Takes linear time.
std::size_t find_text(std::string_view text, std::string_view part, std::size_t from, TemplateBudget& budget);

/// Arguments by the names of a filter's, method's or function's parameters, which are separated by blanks; null where
/// one is not given. Names behind "/" can also be used by a call, as in Python. What has no place is refused: an
/// argument that is dropped would render another text than Jinja's.
std::array<const TemplateValue*, 4> place_arguments(std::string_view what, std::string_view parameters,
                                                    const TemplateArguments& given);

}  // namespace automodel::tokenizer
