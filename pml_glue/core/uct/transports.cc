#include "pml_glue/core/uct/transports.h"

#include <sstream>

namespace ucx_mp::glue {

std::string transports_of(const std::string& wish, const char* tls) {
    if (wish != "auto") return wish;
    if (tls && *tls == '^') tls = nullptr; // UCP negates the whole list
    bool rc = false, dc = false;
    std::istringstream names(tls ? tls : "");
    for (std::string name; std::getline(names, name, ',');) {
        rc |= name == "mp_rc";
        dc |= name == "mp_dc";
    }
    const std::string host = "self,posix,cma,";
    if (rc != dc) return host + (rc ? "mp_rc" : "mp_dc");
    return host + "mp_rc,mp_dc";
}

} // namespace ucx_mp::glue
