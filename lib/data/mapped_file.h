// A file's bytes as memory.
#pragma once

#include <filesystem>
#include <string_view>

namespace automodel::data {

/// Read-only mapping of a whole file; pages come from the page cache when they are touched. The file must not become
/// shorter while it is mapped.
class MappedFile {
 public:
  /// Throws std::system_error where the file cannot be opened or mapped.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  std::string_view text() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace automodel::data
