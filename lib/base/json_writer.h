// Writes JSON directly into a string, for documents too large to build as a tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace automodel {

/// Writes one JSON document on a single line, inserting commas and colons. Calls must nest as the document does:
///   JsonWriter json; json.begin_object(); json.key("a"); json.value(1); json.end_object(); json.take();
class JsonWriter {
 public:
  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_array() { open('['); }
  void end_array() { close(']'); }
  /// The name of the next value.
  void key(std::string_view name);

  void value(std::nullptr_t) { literal("null"); }
  void value(bool flag) { literal(flag ? "true" : "false"); }
  void value(int number) { value(static_cast<std::int64_t>(number)); }
  void value(std::int64_t number);
  void value(std::size_t number) { value(static_cast<std::int64_t>(number)); }
  /// The shortest text that round-trips to the same double; null for NaN and infinities.
  void value(double number);
  /// Bytes that are not valid UTF-8 become U+FFFD.
  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(std::span<const std::int32_t> numbers);
  template <class T>
  void value(const std::vector<T>& items) {
    begin_array();
    for (const auto& item : items) value(item);
    end_array();
  }
  /// A value that is already JSON text.
  void document(std::string_view json) { literal(json); }
  /// key() followed by value().
  template <class T>
  void member(std::string_view name, const T& item) {
    key(name);
    value(item);
  }

  /// The document; the writer is empty afterwards.
  std::string take();

 private:
  void open(char bracket);
  void close(char bracket);
  void literal(std::string_view text);
  void separate();
  void quote(std::string_view text);

  std::string out_ = {};
  bool first_ = true;  ///< no comma before the next value: it is the first in its object or array, or follows a key
};

}  // namespace automodel
