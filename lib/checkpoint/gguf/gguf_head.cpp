#include "checkpoint/gguf/gguf_head.h"

#include <bit>

#include "checkpoint/format/file.h"

namespace automodel::checkpoint {
namespace {

constexpr std::uint64_t kAlignment = 32;  // the default of the format
constexpr std::uint32_t kVersion = 3;
// Types of values.
constexpr std::uint32_t kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9;

void put(std::string& out, std::uint64_t value, std::size_t bytes) {
  out += little_endian(value, bytes);
}
void put(std::string& out, std::string_view text) {
  put(out, text.size(), 8);
  out += text;
}
std::uint64_t padded(std::uint64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::uint64_t gguf_bytes(GgufType type, std::int64_t elements) {
  const auto count = static_cast<std::uint64_t>(elements);
  if (type == GgufType::kQ8_0) return count / kQ8Block * (kQ8Block + 2);
  return count * (type == GgufType::kF32 ? 4 : 2);
}

std::int64_t GgufTensor::elements() const {
  std::int64_t out = 1;
  for (const auto size : shape) out *= size;
  return out;
}

void GgufHead::begin(std::string_view key, std::uint32_t type) {
  put(keys_, key);
  put(keys_, type, 4);
  ++count_;
}
void GgufHead::add(std::string_view key, std::uint32_t value) {
  begin(key, kUint32);
  put(keys_, value, 4);
}
void GgufHead::add(std::string_view key, float value) {
  begin(key, kFloat32);
  put(keys_, std::bit_cast<std::uint32_t>(value), 4);
}
void GgufHead::add(std::string_view key, bool value) {
  begin(key, kBool);
  put(keys_, value ? 1 : 0, 1);
}
void GgufHead::add(std::string_view key, std::string_view value) {
  begin(key, kString);
  put(keys_, value);
}
void GgufHead::add(std::string_view key, const std::vector<std::string>& values) {
  begin(key, kArray);
  put(keys_, kString, 4);
  put(keys_, values.size(), 8);
  for (const auto& value : values) put(keys_, std::string_view(value));
}
void GgufHead::add(std::string_view key, const std::vector<float>& values) {
  begin(key, kArray);
  put(keys_, kFloat32, 4);
  put(keys_, values.size(), 8);
  for (const auto value : values) put(keys_, std::bit_cast<std::uint32_t>(value), 4);
}
void GgufHead::add(std::string_view key, const std::vector<std::int32_t>& values) {
  begin(key, kArray);
  put(keys_, kInt32, 4);
  put(keys_, values.size(), 8);
  for (const auto value : values) put(keys_, static_cast<std::uint32_t>(value), 4);
}

std::string GgufHead::finish(std::vector<GgufTensor>& tensors) const {
  std::string out = "GGUF";
  put(out, kVersion, 4);
  put(out, tensors.size(), 8);
  put(out, count_, 8);
  out += keys_;
  std::uint64_t offset = 0;
  for (auto& tensor : tensors) {
    tensor.offset = offset;
    put(out, std::string_view(tensor.name));
    put(out, tensor.shape.size(), 4);
    for (auto i = tensor.shape.size(); i-- > 0;) put(out, static_cast<std::uint64_t>(tensor.shape[i]), 8);
    put(out, static_cast<std::uint32_t>(tensor.type), 4);
    put(out, offset, 8);
    offset = padded(offset + gguf_bytes(tensor.type, tensor.elements()));
  }
  out.resize(padded(out.size()), '\0');
  return out;
}

}  // namespace automodel::checkpoint
