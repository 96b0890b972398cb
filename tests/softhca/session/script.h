// Fault scripts: one step per line, `#` starts a comment.
//   at TIME FAULT                               since the program was started: at 1.5s port down 0:softhca_0:1
//   after TIME FAULT                            since the step before
//   at packet N FAULT                           armed at the start: at packet 1000 drop 100% 0:softhca_0:1
//   every TIME from TIME to TIME FAULT          repeated
//   random COUNT from TIME to TIME [for TIME] FAULT
//                                               COUNT times at random moments; each takes one of the targets that FAULT
//                                               matches and, with `for`, is undone after that time (port down, link
//                                               down, drop, corrupt, ack-drop, delay, rate)
// FAULT as in faults.h. The same seed gives the same steps.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/clock.h"
#include "softhca/image.h"

namespace softhca {

struct ScriptStep {
    Nanos at = 0;      // since the start
    std::string fault; // words of faults.h
};

// Steps in order of time. Throws FabricError "file:line: ...". All faults are checked against the fabric.
std::vector<ScriptStep> parse_script(const FabricImage& image, const std::string& text, const std::string& file,
                                     uint64_t seed);
std::vector<ScriptStep> load_script(const FabricImage& image, const std::string& file, uint64_t seed);

} // namespace softhca
