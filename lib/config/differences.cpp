#include "config/differences.h"

#include <algorithm>

#include "config/types.h"

namespace automodel::config {
namespace {

class Comparison {
 public:
  std::vector<Override> take() && { return std::move(out_); }

  void maps(const TypeInfo& type, const std::string& path, const Value& before, const Value& after) {
    for (const auto& [key, item] : *after.map()) {
      const auto* field = field_of(type, key);
      const Value* old = before.find(key);
      if (old == nullptr && before.is_null() && field != nullptr) old = &field->initial;
      values(field == nullptr ? nullptr : field->type, join_path(path, key), old == nullptr ? Value() : *old, item);
    }
    if (const auto* entries = before.map())
      for (const auto& [key, item] : *entries)
        if (after.find(key) == nullptr && !item.is_null()) add(join_path(path, key), Value());
  }

 private:
  static const FieldInfo* field_of(const TypeInfo& type, const std::string& key) {
    if (type.fields == nullptr) return nullptr;
    const auto& fields = type.fields();
    const auto found =
        std::find_if(fields.begin(), fields.end(), [&](const FieldInfo& each) { return each.key == key; });
    return found == fields.end() ? nullptr : &*found;
  }

  void values(const TypeInfo* type, const std::string& path, const Value& before, const Value& after) {
    if (before == after) return;
    while (type != nullptr && type->fields == nullptr && type->choice == nullptr && type->inner != nullptr &&
           type->name().ends_with(" or null"))
      type = &type->inner();
    const bool section = type != nullptr && (type->fields != nullptr || type->choice != nullptr);
    // Different components have unrelated keys, so such a section is replaced as a whole.
    const bool other = section && type->choice != nullptr &&
                       (before.map() == nullptr || before.find(type->choice().key) == nullptr ||
                        *before.find(type->choice().key) != *after.find(type->choice().key));
    if (!section || other || after.map() == nullptr) return add(path, after);
    const auto count = out_.size();
    maps(*type, path, before, after);
    if (out_.size() == count) add(path, Value(Value::Map{}));  // a section that has only defaults
  }

  void add(const std::string& path, const Value& value) {
    const bool nested =
        value.map() != nullptr || (value.list() != nullptr && std::ranges::any_of(*value.list(), [](const Value& each) {
                                     return each.map() != nullptr || each.list() != nullptr;
                                   }));
    auto text = nested ? to_json(value) : to_yaml(value);
    if (text.ends_with('\n')) text.pop_back();
    out_.push_back({path, text, path + "=" + text});
  }

  std::vector<Override> out_ = {};
};

}  // namespace

std::vector<Override> differences(const Recipe& before, const Recipe& after) {
  Comparison comparison;
  comparison.maps(type_of<Recipe>(), "", to_dict(before), to_dict(after));
  return std::move(comparison).take();
}

}  // namespace automodel::config
