#include "launch/forwarding.h"

namespace automodel::launch {

std::string wait_and_forward(const std::string& traps, const std::string& untrap) {
  return "pid=$!\n" +
         std::string(
             "stop() {\n"
             "  kill -USR1 \"$pid\" 2>/dev/null\n"
             "  (sleep 3; kill -USR1 \"$pid\" 2>/dev/null) &\n"
             "}\n") +
         traps +
         "code=0\n"
         "while true; do\n"
         "  wait \"$pid\"\n"
         "  code=$?\n"
         "  kill -0 \"$pid\" 2>/dev/null || break\n"
         "done\n" +
         untrap;
}

}  // namespace automodel::launch
