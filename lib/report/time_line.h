// A traced step, as planned and as executed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::report {

struct Bar {
  int rank = 0;
  bool compute = true;        ///< false: a message
  double begin = 0, end = 0;  ///< seconds
  std::string kind = {};      ///< "forward", "full backward", ...
  std::string name = {};      ///< "1F3"
};

struct Lanes {
  std::string name = {};  ///< "planned", "executed"
  int ranks = 0;
  double makespan = 0;  ///< seconds
  std::vector<Bar> bars = {};
};

struct StepTrace {
  std::string file = {};
  std::vector<Lanes> lanes = {};
};

/// Parses Chrome trace events as schedule::chrome_trace writes them; no lanes for any other file.
StepTrace read_trace(std::string_view text, const std::string& file);

}  // namespace automodel::report
