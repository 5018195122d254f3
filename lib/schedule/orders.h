// The orders that the table in generators.cpp names; each stands in the source file of its name. An order assumes a
// request that check_request accepted; `check_...` says what it demands beyond the columns of the table.
#pragma once

#include <string>

#include "base/diagnostic.h"
#include "schedule/generators.h"

namespace automodel::schedule::orders {

Schedule gpipe(const Request& request);
Schedule one_f_one_b(const Request& request);
Schedule looped_bfs(const Request& request);
Schedule interleaved_1f1b(const Request& request);
Schedule interleaved_zero_bubble(const Request& request);
Schedule zbv_zero_bubble(const Request& request);
Schedule dual_pipe_v(const Request& request);
Schedule megatron_interleaved(const Request& request);

Diagnostics check_rounds(const Request& request);
Diagnostics check_dual_pipe_v(const Request& request);
Diagnostics check_megatron_interleaved(const Request& request);

/// "6" or "4 or 6": the legal values next to `given`, none above `highest`; "" where there are none.
template <class Legal>
std::string nearest_legal(int given, int highest, Legal&& legal) {
  std::string out;
  for (int below = given - 1; below >= 1; --below)
    if (legal(below)) {
      out = std::to_string(below);
      break;
    }
  for (int above = given + 1; above <= highest; ++above)
    if (legal(above)) return out + (out.empty() ? "" : " or ") + std::to_string(above);
  return out;
}

}  // namespace automodel::schedule::orders
