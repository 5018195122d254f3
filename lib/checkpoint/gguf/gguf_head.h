// The head of a GGUF file (version 3, the format of ggml and llama.cpp): a magic number, keys with values, and the
// place of each tensor. Tensors follow, each aligned to 32 bytes. Everything is little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::checkpoint {

/// Types of tensors, under ggml's numbers.
enum class GgufType : std::uint32_t { kF32 = 0, kF16 = 1, kQ8_0 = 8, kBf16 = 30 };

/// Elements that Q8_0 stores with one scale: 34 bytes.
inline constexpr std::int64_t kQ8Block = 32;

/// Bytes of so many elements; a multiple of kQ8Block for Q8_0.
std::uint64_t gguf_bytes(GgufType type, std::int64_t elements);

struct GgufTensor {
  std::string name = {};
  std::vector<std::int64_t> shape = {};  ///< as PyTorch has it, rows first; GGUF stores it the other way round
  GgufType type = GgufType::kF32;
  std::uint64_t offset = 0;  ///< from the start of the data
  std::int64_t elements() const;
};

class GgufHead {
 public:
  void add(std::string_view key, std::uint32_t value);
  void add(std::string_view key, float value);
  void add(std::string_view key, bool value);
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }
  void add(std::string_view key, const std::vector<std::string>& values);
  void add(std::string_view key, const std::vector<float>& values);
  void add(std::string_view key, const std::vector<std::int32_t>& values);

  /// The bytes before the data, padded; sets the tensors' offsets.
  std::string finish(std::vector<GgufTensor>& tensors) const;

 private:
  void begin(std::string_view key, std::uint32_t type);
  std::string keys_ = {};
  std::uint64_t count_ = 0;
};

}  // namespace automodel::checkpoint
