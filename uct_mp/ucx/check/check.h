// `mp_info --check`: tries out, one by one, what the transport assumes of adapters.
#pragma once

#include <string>
#include <vector>

namespace ucx_mp::check {

// Prints a line per check, and what follows. 0: all that the transport relies on holds. 1: something does not, or it
// cannot be tried. `host`: the other end, "HOST[:PORT]"; empty: this host with itself, over its own ports.
[[nodiscard]] int check(const std::vector<std::string>& rails, const std::string& host);
// The other end. 0: the checks were made.
[[nodiscard]] int listen(const std::vector<std::string>& rails, unsigned port);

} // namespace ucx_mp::check
