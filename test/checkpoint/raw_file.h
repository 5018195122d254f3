// Safetensors files made by hand, valid and invalid, without the writer under test.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace automodel::test {

/// The header's length, the header and the data, exactly as given.
inline std::string raw_safetensors(const std::string& header, const std::string& data) {
  std::string out(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return out + header + data;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string out(values.size() * sizeof(T), '\0');
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

}  // namespace automodel::test
