#include "arch/families.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "arch/hf_config.h"
#include "golden_folder.h"

namespace automodel::arch {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("every family is documented and compared with transformers") {
  const fs::path golden(automodel::golden_folder());
  const auto page = read(golden.parent_path().parent_path() / "docs" / "models.md");
  std::set<std::string> compared;
  for (const auto& folder : fs::directory_iterator(golden / "hf" / "models")) {
    const auto config = parse_hf_config(read(folder.path() / "config.json"), "config.json");
    REQUIRE(config.errors.empty());
    compared.insert(config.spec->model_type);
    CHECK(fs::exists(folder.path() / "reference.json"));
  }
  for (const auto& file : fs::directory_iterator(golden / "hf_families")) {
    if (file.path().extension() != ".json") continue;
    const auto config = parse_hf_config(nlohmann::json::parse(read(file.path()))["config"].dump(), "config.json");
    REQUIRE(config.errors.empty());
    compared.insert(config.spec->model_type);
  }
  for (const auto* family : families()) {
    CAPTURE(std::string(family->model_type));
    CHECK(page.find("| `" + std::string(family->model_type) + "` | `" + std::string(family->architecture) + "` |") !=
          std::string::npos);
    CHECK(compared.contains(std::string(family->model_type)));
  }
}

TEST_CASE("each recorded transformers 4 config gives the same model as its transformers 5 config") {
  int legacy = 0;
  for (const auto& folder : fs::directory_iterator(fs::path(automodel::golden_folder()) / "hf" / "models")) {
    if (!fs::exists(folder.path() / "config.legacy.json")) continue;
    CAPTURE(folder.path().filename().string());
    ++legacy;
    const auto now = parse_hf_config(read(folder.path() / "config.json"), "config.json");
    const auto then = parse_hf_config(read(folder.path() / "config.legacy.json"), "config.legacy.json");
    REQUIRE(now.spec);
    REQUIRE(then.spec);
    CHECK(*now.spec == *then.spec);
  }
  CHECK(legacy == 5);
}

}  // namespace
}  // namespace automodel::arch
