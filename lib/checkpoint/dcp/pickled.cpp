#include "checkpoint/dcp/pickled.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "checkpoint/format/file.h"

namespace automodel::checkpoint::pickled {
namespace {

std::string marked(const std::vector<std::string>& items, std::size_t first, std::size_t last, char end) {
  std::string out = "(";
  for (auto i = first; i < last; ++i) out += items[i];
  return out + end;
}

/// As Python's: a reader holds no more than a batch on its stack.
std::string in_batches(const std::vector<std::string>& items, std::size_t batch, char end) {
  std::string out;
  for (std::size_t i = 0; i < items.size(); i += batch) out += marked(items, i, std::min(items.size(), i + batch), end);
  return out;
}

}  // namespace

std::string none() {
  return "N";
}

std::string boolean(bool value) {
  return value ? "\x88" : "\x89";
}

std::string integer(std::int64_t value) {
  if (value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max())
    return "J" + little_endian(static_cast<std::uint64_t>(value), 4);
  return "\x8a\x08" + little_endian(static_cast<std::uint64_t>(value), 8);
}

std::string real(double value) {
  std::string out = little_endian(std::bit_cast<std::uint64_t>(value), 8);
  return "G" + std::string(out.rbegin(), out.rend());  // the only number with its largest byte first
}

std::string text(std::string_view value) {
  return "X" + little_endian(value.size(), 4) + std::string(value);
}

std::string tuple(const std::vector<std::string>& items) {
  return items.empty() ? ")" : marked(items, 0, items.size(), 't');
}

std::string list(const std::vector<std::string>& items) {
  return "]" + in_batches(items, 1000, 'e');
}

std::string dict(const std::vector<std::string>& keys_and_values) {
  return "}" + in_batches(keys_and_values, 2000, 'u');
}

std::string global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}

std::string call(const std::string& function, const std::vector<std::string>& arguments) {
  return function + tuple(arguments) + "R";
}

std::string object(const std::string& of_class, const std::string& state) {
  return of_class + ")\x81" + state + "b";
}

std::string stored_elsewhere(const std::string& id) {
  return id + "Q";
}

std::string size(const std::vector<std::int64_t>& sizes) {
  std::vector<std::string> items;
  for (const auto each : sizes) items.push_back(integer(each));
  return call(global("torch", "Size"), {tuple(items)});
}

std::string document(const std::string& value) {
  return "\x80\x02" + value + ".";
}

}  // namespace automodel::checkpoint::pickled
