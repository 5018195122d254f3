// Arbitrary bytes as another trainer's configuration: it becomes a recipe that can be read, or is refused with
// problems. The first byte says whose it is, and how the file's name ends.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "config/recipe.h"
#include "foreign/conversion.h"

namespace {

struct Folder {
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  Folder() {
    if (mkdtemp(name.data()) == nullptr) std::abort();
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(name, ignored);
  }
  std::string name = std::filesystem::temp_directory_path().string() + "/foreign_fuzz.XXXXXX";
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automodel;  // NOLINT(google-build-using-namespace)
  if (size == 0) return 0;
  static const Folder folder;
  const auto formats = foreign::formats();
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr const char* kNames[] = {"file.yaml", "file.json", "file.toml", "file.txt"};
  const std::string path = folder.name + "/" + kNames[(data[0] / 16) % 4];
  std::ofstream(path, std::ios::binary) << text;
  foreign::Request request{.files = {{std::string(formats[data[0] % 16 % formats.size()]), path}},
                           .world_size = 8,
                           .accept_adamw = true,
                           .allow_inexact = true,
                           .environment = [](const std::string&) { return std::nullopt; }};
  const auto made = foreign::convert(request);
  (void)foreign::recognise(path, text);
  (void)foreign::to_json(made);
  for (const auto& problem : made.problems)
    if (problem.message.empty()) std::abort();
  if (!made.problems.empty()) return 0;
  const auto loaded = config::read_recipe(made.recipe, "made.yaml", {}, request.environment);
  // Values may be out of a recipe's range, but what is printed is YAML with known keys.
  for (const auto& problem : loaded.problems)
    if (problem.id == "yaml-syntax" || problem.id == "unknown-key" || problem.id == "duplicate-key") std::abort();
  return 0;
}
