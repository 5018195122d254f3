// A temporary folder for a test, removed with its contents.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <sys/statvfs.h>
#include <unistd.h>

namespace automodel::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (place() / "automodel-test-XXXXXX").native();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  /// Writes a file and creates its parent folders.
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    const auto file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  /// In memory if there is room and programs may run from there: the files of a checkpoint are synced, which takes
  /// seconds on a busy disk.
  static std::filesystem::path place() {
    constexpr const char* kMemory = "/dev/shm";
    constexpr std::uint64_t kRoom = std::uint64_t{4} << 30U;
    struct statvfs system = {};
    const bool fits = std::getenv("TMPDIR") == nullptr && access(kMemory, W_OK) == 0 &&
                      statvfs(kMemory, &system) == 0 && (system.f_flag & ST_NOEXEC) == 0 &&
                      system.f_bavail * system.f_frsize >= kRoom;
    return fits ? std::filesystem::path(kMemory) : std::filesystem::temp_directory_path();
  }

  std::filesystem::path path_;
};

}  // namespace automodel::test
