// Reading the recorded values under test/golden.
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

#include "golden_folder.h"

namespace automodel::golden {

/// The JSON document at `path` below test/golden.
inline nlohmann::json load(const std::string& path) {
  std::ifstream file(automodel::golden_folder() + "/" + path);
  if (!file) throw std::runtime_error("no golden file " + path);
  return nlohmann::json::parse(file);
}

}  // namespace automodel::golden
